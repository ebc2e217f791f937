"""Policies: entries that allow or deny actions on resources, as Apache's access control has them.

    resource   *   Topic:orders   Topic:orders-*   Group:*   Cluster:main
    actions    All Pub Sub Create Update Delete Get List
    decision   Allow, Deny

A name that ends in `*` is a prefix. An entry may be limited to source addresses.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from kourou.access.addresses import Address, Network, parse_networks
from kourou.access.errors import AccessError
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.headers.table import Right

ENTRIES_MAX = 1_000
"""The most entries of one user, for each type of policy."""
SOURCES_MAX = 100
"""The most source addresses of one entry."""
SOURCES_OF_USER_MAX = 1_000
"""The most source addresses of one user: each of them is parsed, written to the file and compared."""
RESOURCE_CHARS_MAX = 512

ALL = Right(sum(right.value for right in Right))
_ACTIONS = {right.name.lower(): right for right in Right if right.name} | {"all": ALL}


class ResourceType(Enum):
    """The type of a resource."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"

    __hash__ = object.__hash__  # a policy has a thousand entries, which are looked up by their types


class Pattern(Enum):
    """Which names a resource includes, in the order in which entries are examined."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2

    __hash__ = object.__hash__


_TYPES = {one.value.lower(): one for one in ResourceType}


class Resource(msgspec.Struct, frozen=True):
    """The resources of an entry: all of a type, those with a prefix, or a single one."""

    type: ResourceType
    name: str = ""
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """The resource as text."""
        if self.type is ResourceType.ANY:
            return "*"
        return f"{self.type.value}:{self.name}{'' if self.pattern is Pattern.LITERAL else '*'}"

    def includes(self, kind: ResourceType, name: str | None) -> bool:
        """Is this one of the resources? `name` None stands for all resources of a type."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not kind or (name is None and self.pattern is not Pattern.ANY):
            return False
        return self.pattern is Pattern.ANY or (
            name == self.name if self.pattern is Pattern.LITERAL else str(name).startswith(self.name)
        )


ANYTHING = Resource(ResourceType.ANY, "", Pattern.ANY)


def parse_resource(text: str | None) -> Resource | None:
    """The resource that a text names; None if it names none."""
    if text is None or not text.strip() or len(text) > RESOURCE_CHARS_MAX:
        return None
    if text == "*":
        return ANYTHING
    word, _, name = text.partition(":")
    kind = _TYPES.get(word.lower())
    if kind is None:
        return None
    if kind is ResourceType.ANY:
        return ANYTHING
    if name == "*":
        return Resource(kind, "", Pattern.ANY)
    if name.endswith("*"):
        return Resource(kind, name[: name.index("*")], Pattern.PREFIXED)
    return Resource(kind, name)


class Entry(msgspec.Struct, frozen=True):
    """Whether some actions are allowed on a resource, from some addresses."""

    resource: Resource
    actions: tuple[str, ...]
    """As they were given: `All` stays `All`."""
    rights: Right
    sources: tuple[str, ...]
    networks: tuple[Network, ...]
    """The same as `sources`, parsed; empty for any address."""
    is_allowed: bool

    def applies_to(self, rights: Right, address: Address) -> bool:
        """Does the entry apply to one of these rights, and to this address?"""
        return bool(self.rights.value & rights.value) and (
            not self.networks or any(address in network for network in self.networks)
        )

    @property
    def info(self) -> PolicyEntryInfo:
        """The entry in an answer."""
        return PolicyEntryInfo(
            resource=self.resource.key,
            actions=list(self.actions),
            source_ips=list(self.sources) or None,
            decision="Allow" if self.is_allowed else "Deny",
        )


def new_entry(info: PolicyEntryInfo) -> Entry:
    """The entry that a request describes. Raises AccessError."""
    resource = parse_resource(info.resource)
    if resource is None:
        raise AccessError("The resource is null.")
    named = [name for name in info.actions or () if name.lower() in _ACTIONS or name.lower() == "any"]
    if not named:
        raise AccessError("The actions is empty.")
    rights = 0
    actions: dict[str, None] = {}
    for name in named:
        if name.lower() == "any":
            raise AccessError("The actions can not be Any.")
        rights |= _ACTIONS[name.lower()].value
        actions[name.capitalize()] = None
    sources = tuple(info.source_ips or ())
    if len(sources) > SOURCES_MAX:
        raise AccessError(f"The entry has {len(sources)} source addresses, the limit is {SOURCES_MAX}: use CIDR blocks")
    networks = parse_networks(sources)
    decision = (info.decision or "").lower()
    if decision not in ("allow", "deny"):
        raise AccessError("The decision is null or illegal.")
    return Entry(resource, tuple(actions), Right(rights), sources, networks, decision == "allow")


class PolicyType(Enum):
    """Default entries count only when no custom entry applies."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


def find_policy_type(text: str | None) -> PolicyType:
    """The type with this name, in any case; Custom if there is no name."""
    return next((one for one in PolicyType if one.value.lower() == (text or "").lower()), PolicyType.CUSTOM)


Entries = tuple[Entry, ...]


class Acl(msgspec.Struct, frozen=True):
    """All policies of one subject."""

    subject: str
    policies: dict[PolicyType, Entries]

    @property
    def size(self) -> int:
        """The number of entries."""
        return sum(map(len, self.policies.values()))

    @property
    def source_count(self) -> int:
        """The number of source addresses of all entries."""
        return sum(len(entry.sources) for entries in self.policies.values() for entry in entries)

    @property
    def info(self) -> AclInfo:
        """The policies in an answer."""
        return AclInfo(
            subject=self.subject,
            policies=[
                PolicyInfo(policy_type=kind.value, entries=[entry.info for entry in entries])
                for kind, entries in self.policies.items()
            ],
        )

    def merged(self, other: "Acl") -> "Acl":
        """With the other's entries: each replaces the entry of the same resource. Raises AccessError."""
        policies = dict(self.policies)
        for kind, entries in other.policies.items():
            policies[kind] = _merge((*policies.get(kind, ()), *entries))
        return Acl(self.subject, policies)

    def without(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Without the entry of a resource."""
        policies = dict(self.policies)
        kept = tuple(entry for entry in policies.pop(kind, ()) if entry.resource != resource)
        if kept:
            policies[kind] = kept
        return Acl(self.subject, policies)

    def about(self, text: str) -> "Acl":
        """Only the entries whose resource contains this text."""
        found = {
            kind: tuple(entry for entry in entries if text in entry.resource.key)
            for kind, entries in self.policies.items()
        }
        return Acl(self.subject, {kind: entries for kind, entries in found.items() if entries})


def check_size(info: AclInfo) -> None:
    """Raises AccessError if a request has more entries or source addresses than can be parsed in a moment."""
    count = sum(len(policy.entries or ()) for policy in info.policies or ())
    if count > ENTRIES_MAX:
        raise AccessError(f"The request has {count} entries, the limit is {ENTRIES_MAX}: use prefixes, or two requests")
    count = sum(len(entry.source_ips or ()) for policy in info.policies or () for entry in policy.entries or ())
    if count > SOURCES_OF_USER_MAX:
        raise AccessError(
            f"The policies have {count} source addresses, the limit is {SOURCES_OF_USER_MAX}: use CIDR blocks"
        )


def new_acl(subject: str, info: AclInfo) -> Acl:
    """The policies that a request describes. Raises AccessError."""
    policies: dict[PolicyType, Entries] = {}
    for policy in info.policies or ():
        if not policy.entries:
            continue
        kind = find_policy_type(policy.policy_type)
        policies[kind] = _merge((*policies.get(kind, ()), *map(new_entry, policy.entries[: ENTRIES_MAX + 1])))
    if not policies:
        raise AccessError("The policies is empty.")
    return Acl(subject, policies)


def _merge(entries: Iterable[Entry]) -> Entries:
    """One entry for each resource: the last one, in the place of the first."""
    found: dict[Resource, Entry] = {}
    for entry in entries:
        found[entry.resource] = entry
    if len(found) > ENTRIES_MAX:
        raise AccessError(f"The policy has more than {ENTRIES_MAX} entries: use prefixes such as Topic:orders-*")
    return tuple(found.values())
