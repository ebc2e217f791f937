"""Values of properties with a special form. Each function raises ValueError for a text in another form."""

from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from string import ascii_letters
from typing import Any, Final

from kourou.broker.settings import BrokerSettings, Role
from kourou.store.retention import parse_hours
from kourou.store.settings import delay_table

TIMER_PRECISIONS_MS: Final = (100, 200, 500, 1_000)
RAFT_TEXTS: Final = {
    "dLegerGroup": "raft_group",
    "dLegerSelfId": "raft_self",
    "preferredLeaderId": "raft_preferred",
    "preferredLeaderIds": "raft_preferred",
}
ROLL_SLOTS: Final = 7 * 86_400 - 60


def precision(text: str) -> int:
    """A slot has one of four lengths: the longest one that is not longer than the given one, as in Java."""
    asked = int(text)
    return max((length for length in TIMER_PRECISIONS_MS if length <= asked), default=TIMER_PRECISIONS_MS[0])


def roll_slots(text: str) -> int:
    """The wheel has two weeks, and is used for one: more than that, or nothing, stands for all of it, as in Java."""
    asked = int(text)
    return asked if 2 <= asked <= ROLL_SLOTS else ROLL_SLOTS


def address_or_none(text: str) -> str:
    host, _, port = text.rpartition(":")
    if text and not (host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
        raise ValueError("host:port is expected, the address of the master's HA port")
    return text


def count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 2**31 - 1:
        raise ValueError("a number from 1 to 2147483647 is expected")
    return number


def tls_mode(text: str) -> str:
    if text.lower() not in ("disabled", "permissive", "enforcing"):
        raise ValueError("disabled, permissive or enforcing is expected")
    return text.lower()


def labels(text: str) -> str:
    if any(word.count(":") != 1 or word.startswith(":") for word in text.split(",") if word):
        raise ValueError("labels such as name:value,name:value are expected")
    return text


def one_folder(text: str) -> str:
    if "," in text:
        raise ValueError("one folder is expected")
    return text


def networks(text: str) -> str:
    try:
        for word in text.replace(";", " ").replace(",", " ").split():
            ip_network(word)
    except ValueError as error:
        raise ValueError(f"addresses such as 10.0.0.5;192.0.2.0/24 are expected: {error}") from None
    return text


def percent_text(ratio: float) -> str:
    return str(round(ratio * 100))


def request_mode(text: str) -> str:
    if text.upper() not in ("PULL", "POP"):
        raise ValueError("PULL or POP is expected")
    return text.upper()


PROTECTION: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    "plainAclFile": ("plain_acl_file", str),
    "usersKeyFile": ("users_key_file", str),
    "proxyProtocolTrusted": ("trusted_proxies", networks),
    "haTlsMode": ("ha_tls_mode", tls_mode),
    "haAllowedNames": ("ha_allowed_names", str),
    "haSecretFile": ("ha_secret_file", str),
    "maxConnections": ("connections_max", count),
    "maxConnectionsPerAddress": ("connections_of_address", count),
    "maxRequestsInFlight": ("in_flight_max", count),
}
"""Properties that protect a broker and that Apache does not have: their fields, and how they are read."""


def peers(text: str) -> str:
    """The members of a Raft group; empty for a broker without a group."""
    try:
        if text:
            members_of(text)
    except ValueError as error:
        raise ValueError(f"members such as n0-10.0.0.5:40911;n1-10.0.0.6:40911 are expected: {error}") from None
    return text


def members_of(text: str) -> dict[str, str]:
    """Addresses of members by their ids. Raises ValueError."""
    members: dict[str, str] = {}
    for word in text.split(";"):
        member, _, address = word.strip().partition("-")
        host, _, port = address.rpartition(":")
        number_of(member)
        if not host or not port.isdigit() or not 0 < int(port) < 65_536:
            raise ValueError(f"{word.strip()!r} has no address")
        if member in members or address in members.values():
            raise ValueError(f"{word.strip()!r} occurs twice")
        members[member] = address
    return members


def number_of(member: str) -> int:
    """The number in the id of a member, such as n0. Raises ValueError."""
    digits = member.lstrip(ascii_letters)
    if digits == member or not digits.isdigit() or not digits.isascii() or len(digits) > 6:
        raise ValueError(f"{member!r} is not a letter and a number")
    return int(digits)


def in_group(broker: BrokerSettings) -> BrokerSettings:
    """The settings of a member of a Raft group. It begins as a slave. Raises ValueError."""
    if not broker.raft_group or not broker.raft_peers or not broker.raft_self:
        raise ValueError("dLegerGroup, dLegerPeers and dLegerSelfId are expected as well")
    members = members_of(broker.raft_peers)
    if broker.raft_self not in members:
        raise ValueError(f"dLegerSelfId={broker.raft_self} is expected to be in dLegerPeers: {broker.raft_peers}")
    for member in broker.raft_preferred.replace(",", ";").split(";"):
        if member and member not in members:
            raise ValueError(f"preferredLeaderIds={broker.raft_preferred}: {member} is expected to be in dLegerPeers")
    if 2 * broker.raft_heartbeat_ms > broker.raft_election_ms:
        raise ValueError("raftElectionTimeout is expected to be at least twice raftHeartbeatInterval")
    return replace(broker, role=Role.SLAVE, broker_id=number_of(broker.raft_self) + 1)


def levels(text: str) -> str:
    try:
        delay_table(text)
    except (ValueError, KeyError):
        raise ValueError("times such as 1s 5s 1m 2h 1d, separated by spaces, are expected") from None
    return text


def hours(text: str) -> str:
    parse_hours(text)
    return text


def addresses(text: str) -> str:
    for word in text.split(";"):
        host, _, port = word.strip().rpartition(":")
        if word.strip() and not (host and port.isdecimal() and 0 < int(port) < 65_536):
            raise ValueError("addresses such as host:port;host:port are expected")
    return text
