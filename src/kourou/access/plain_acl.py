"""plain_acl.yml, the access control of RocketMQ 4: read, checked, and turned into users and policies.

    globalWhiteRemoteAddresses: ["10.0.0.*"]
    accounts:
      - accessKey: billing
        secretKey: 12345678
        admin: false
        defaultTopicPerm: DENY
        defaultGroupPerm: SUB
        topicPerms: ["orders=PUB|SUB"]
        groupPerms: ["billing=SUB"]

Java: PlainPermissionManager, AclUtils.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from kourou.access.addresses import AddressPattern
from kourou.access.errors import AccessFileError
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.headers.table import PUB, SUB, Right

KEY_CHARS_MIN = 7
"""Access keys and secrets have more than six characters."""

ACCOUNTS_MAX = 5_000
RULES_MAX = 50_000
"""Limits for all files together."""

DEPTH_MAX = 32
"""Lists and maps within each other. YAML's parser uses the stack of its thread, and a full one ends the process."""

VALUE_CHARS_MAX = 16 * 1024
"""Characters of a value. A long number takes time that grows with the square of them."""

EXPANDED_MAX = 2 * 1024 * 1024
"""Characters and values of a file with all its aliases replaced. The files have 1 MiB at most."""

_PERMISSIONS = {"DENY": Right(0), "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """One account. The secret is never logged."""

    access_key: str
    secret_key: str
    trusted: AddressPattern | None = None
    """Requests from there are served without a signature, as the file's author asked for."""
    is_admin: bool = False
    default_topic: Right = Right(0)
    default_group: Right = Right(0)
    topics: Mapping[str, Right] = {}
    groups: Mapping[str, Right] = {}

    @property
    def has_rules(self) -> bool:
        """An administrator without a list of permissions may do everything, whatever the defaults say."""
        return bool(self.topics or self.groups)

    def rights_on_topic(self, topic: str) -> Right:
        return self.topics.get(topic, self.default_topic)

    def rights_on_group(self, group: str) -> Right:
        return self.groups.get(group, self.default_group)

    def __repr__(self) -> str:
        return f"Account({self.access_key!r})"


class PlainAcl(msgspec.Struct, frozen=True):
    """The accounts of all files."""

    accounts: Mapping[str, Account]
    trusted: tuple[AddressPattern, ...] = ()
    """Requests from there are served unchecked."""

    @property
    def trusts_everybody(self) -> bool:
        return any(pattern.includes_all for pattern in self.trusted)


def parse(files: Iterable[tuple[str, str]]) -> PlainAcl:
    """The accounts in files, given as (name, text). Raises AccessFileError."""
    accounts: dict[str, Account] = {}
    owners: dict[str, str] = {}
    trusted: list[AddressPattern] = []
    rules = 0
    for path, text in files:
        content = _load(path, text)
        try:
            trusted += map(AddressPattern, _strings(content, "globalWhiteRemoteAddresses"))
            for number, entry in enumerate(_list(content, "accounts"), 1):
                account = _account(entry, number)
                if account.access_key in accounts:
                    raise AccessFileError(
                        f"accessKey {account.access_key!r} is also in {owners[account.access_key]}: remove one of them"
                    )
                rules += len(account.topics) + len(account.groups)
                if len(accounts) == ACCOUNTS_MAX or rules > RULES_MAX:
                    raise AccessFileError(
                        f"there are more than {ACCOUNTS_MAX} accounts or {RULES_MAX} permissions: "
                        "use users and policies (docs/access-control.md), or remove some"
                    )
                accounts[account.access_key] = account
                owners[account.access_key] = path
        except AccessFileError as error:
            raise AccessFileError(f"{path}: {error}") from None
    return PlainAcl(accounts, tuple(trusted))


def _load(path: str, text: str) -> Mapping[str, Any]:
    try:
        _check_shape(path, text)
        content = msgspec.yaml.decode(text)
        _check_aliases(path, content)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark is not None else ""
        raise AccessFileError(f"{path} is not valid YAML{line}: correct the file") from None
    except msgspec.DecodeError as error:
        where = getattr(error.__cause__ or error.__context__, "problem_mark", None)
        line = f" in line {where.line + 1}" if where is not None else ""
        raise AccessFileError(f"{path} is not valid YAML{line}: correct the file") from None
    except ValueError:  # a number or a date that is none; its text may be of a secret
        raise AccessFileError(f"{path} has a number or a date that is not valid: write it in quotes") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise AccessFileError(f"{path} has no keys at its top level: write `accounts:` and a list of accounts")
    return content


def _check_aliases(path: str, content: Any) -> None:
    """Raises AccessFileError if aliases make a small file a large one, or an endless one."""
    room, waiting = EXPANDED_MAX, [content]
    while waiting:
        value = waiting.pop()
        room -= 1
        if isinstance(value, dict):
            waiting += value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            room -= len(value)
        if room - len(waiting) < 0:
            raise AccessFileError(f"{path} has aliases that repeat too much: write the entries themselves")


def _check_shape(path: str, text: str) -> None:
    """Raises AccessFileError, yaml.YAMLError: a text is nested too deeply, or has too long a value."""
    depth = 0
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        elif isinstance(event, yaml.ScalarEvent) and len(event.value) > VALUE_CHARS_MAX:
            raise AccessFileError(f"{path} has a value of more than {VALUE_CHARS_MAX} characters: write several")
        if depth > DEPTH_MAX:
            raise AccessFileError(f"{path} is nested deeper than {DEPTH_MAX} lists and maps: correct the file")


def _account(entry: Any, number: int) -> Account:
    if not isinstance(entry, dict):
        raise AccessFileError(f"account {number} is not a map of keys such as accessKey and secretKey")
    keys = [_text_of(entry, name) for name in ("accessKey", "secretKey")]
    for name, key in zip(("accessKey", "secretKey"), keys, strict=True):
        if len(key) < KEY_CHARS_MIN:
            raise AccessFileError(
                f"{name} of account {number} is shorter than {KEY_CHARS_MIN} characters: use a longer one"
            )
    address = _text_of(entry, "whiteRemoteAddress")
    return Account(
        access_key=keys[0],
        secret_key=keys[1],
        trusted=AddressPattern(address) if address else None,
        is_admin=entry.get("admin") is True,
        default_topic=_rights(_text_of(entry, "defaultTopicPerm")),
        default_group=_rights(_text_of(entry, "defaultGroupPerm")),
        topics=_rules(entry, "topicPerms"),
        groups=_rules(entry, "groupPerms"),
    )


def _rules(entry: Mapping[str, Any], key: str) -> dict[str, Right]:
    found = {}
    for rule in _strings(entry, key):
        name, equals, rights = rule.partition("=")
        if not equals or not name.strip() or rights.strip() not in _PERMISSIONS:
            raise AccessFileError(f"{key} has {rule[:80]!r}: write name=PUB, name=SUB, name=PUB|SUB or name=DENY")
        found[name.strip()] = _PERMISSIONS[rights.strip()]
    return found


def _rights(text: str) -> Right:
    """The rights of a permission; an unknown one denies, as in RocketMQ."""
    return _PERMISSIONS.get(text.strip(), Right(0))


def _text_of(entry: Mapping[str, Any], key: str) -> str:
    """A value as text, empty if there is none. Raises AccessFileError for a list or a map."""
    return _scalar(entry.get(key) or "", key)


def _scalar(value: Any, key: str) -> str:
    if isinstance(value, list | dict):  # with YAML's aliases a short one can be endless as text
        raise AccessFileError(f"{key} has a list or a map where a text is expected")
    try:
        return str(value)
    except ValueError:  # a number of very many digits
        raise AccessFileError(f"{key} has a number that is too long: write it in quotes") from None


def _list(content: Mapping[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    if found is None:
        return []
    if not isinstance(found, list):
        raise AccessFileError(f"{key} is not a list: write one entry per line, each after `- `")
    return found


def _strings(content: Mapping[str, Any], key: str) -> list[str]:
    return [_scalar(one, key) for one in _list(content, key)]


# ── As users and policies ───────────────────────────────────────────────────────────────────────────────────────────


def migrate(account: Account) -> tuple[UserInfo, AclInfo]:
    """An account as a user with policies. Trusted addresses have no counterpart and are dropped.

    A rule of plain_acl.yml decides about all rights on its topic or group, while a policy's entry decides only about
    those that it names, and default entries about the others. So each rule becomes two entries, of which the second, a
    default entry, denies the other rights.
    """
    user = UserInfo(
        username=account.access_key,
        password=account.secret_key,
        user_type="Super" if account.is_admin else "Normal",
    )
    rules = {f"Topic:{name}": rights for name, rights in account.topics.items()}
    rules |= {f"Group:{name}": rights for name, rights in account.groups.items()}
    custom = [_entry(resource, rights) for resource, rights in rules.items()]
    default = [_entry("Topic:*", account.default_topic), _entry("Group:*", account.default_group)]
    default += [_entry(resource, Right(0)) for resource in rules]
    policies = [PolicyInfo(policy_type="Custom", entries=custom)] if custom else []
    policies.append(PolicyInfo(policy_type="Default", entries=default))
    return user, AclInfo(subject=f"User:{account.access_key}", policies=policies)


def _entry(resource: str, rights: Right) -> PolicyEntryInfo:
    names = [right.name.capitalize() for right in (PUB, SUB) if right in rights and right.name]
    return PolicyEntryInfo(resource=resource, actions=names or ["All"], decision="Allow" if names else "Deny")
