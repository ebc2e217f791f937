"""Policies prepared for decisions: one lookup for the literal entry, and one for each matching prefix."""

from enum import Enum

from kourou.access.addresses import Address
from kourou.access.policies import Acl, Entries, Entry, Pattern, PolicyType, ResourceType
from kourou.protocol.headers.table import Right


class Decision(Enum):
    """The decision of the policies about a request."""

    ALLOW = "allow"
    DENY = "the decision is deny."
    NO_POLICY = "no matched policies."


class Grants:
    """The policies of one user.

    Entries for the type of the resource come before entries for any type; among them the literal one, then prefixes
    from the longest to the shortest, then `*`. The first entry that applies to the action and the address decides.
    Default entries count only when no custom entry applies. Without an entry the request is denied.
    """

    def __init__(self, acl: Acl) -> None:
        self._policies = [
            _Policy(acl.policies[kind]) for kind in (PolicyType.CUSTOM, PolicyType.DEFAULT) if kind in acl.policies
        ]

    def decide(self, kind: ResourceType, name: str | None, rights: Right, address: Address) -> Decision:
        """May one of these rights be used on a resource from this address?"""
        for policy in self._policies:
            entry = policy.find(kind, name, rights, address)
            if entry is not None:
                return Decision.ALLOW if entry.is_allowed else Decision.DENY
        return Decision.NO_POLICY


class _Policy:
    """The entries of one type of policy. A lookup costs a few dictionary accesses, however many entries there are."""

    def __init__(self, entries: Entries) -> None:
        self._literals: dict[tuple[ResourceType, str], Entry] = {}
        self._prefixes: dict[ResourceType, dict[int, dict[str, Entry]]] = {}  # by type, length and prefix
        self._wholes: list[Entry] = []  # of all resources of a type, and at the end of all types
        for entry in entries:
            resource = entry.resource
            if resource.pattern is Pattern.LITERAL:
                self._literals[resource.type, resource.name] = entry
            elif resource.pattern is Pattern.PREFIXED:
                by_length = self._prefixes.setdefault(resource.type, {})
                by_length.setdefault(len(resource.name), {})[resource.name] = entry
            else:
                self._wholes.append(entry)
        self._wholes.sort(key=lambda entry: entry.resource.type is ResourceType.ANY)
        for kind, by_length in self._prefixes.items():  # the longest first
            self._prefixes[kind] = dict(sorted(by_length.items(), reverse=True))

    def find(self, kind: ResourceType, name: str | None, rights: Right, address: Address) -> Entry | None:
        if name is not None:
            literal = self._literals.get((kind, name))
            if literal is not None and literal.applies_to(rights, address):
                return literal
            for length, entries in self._prefixes.get(kind, {}).items():
                prefixed = entries.get(name[:length])
                if prefixed is not None and prefixed.applies_to(rights, address):
                    return prefixed
        for entry in self._wholes:
            if entry.resource.includes(kind, name) and entry.applies_to(rights, address):
                return entry
        return None
