"""Addresses to which a rule applies: of policies (an address or a CIDR block) and of plain_acl.yml (patterns)."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from kourou.access.errors import AccessError, AccessFileError

Network: TypeAlias = IPv4Network | IPv6Network
Address: TypeAlias = IPv4Address | IPv6Address


def parse_address(text: str) -> Address:
    """The address of a peer. An IPv4 address in IPv6 form counts as IPv4. Raises ValueError."""
    address = ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The networks that a policy names. Raises AccessError."""
    found = []
    for text in texts:
        if not text.strip():
            raise AccessError("The source ip is empty.")
        try:
            found.append(_network(text))
        except ValueError:
            raise AccessError("The source ip is invalid.") from None
    return tuple(found)


@lru_cache(maxsize=2_048)
def _network(text: str) -> Network:
    """Raises ValueError. The entries of a policy often have the same addresses."""
    return ip_network(text, strict=False)


class AddressPattern:
    """Addresses as plain_acl.yml writes them: `*`, `1.2.3.4`, `1.2.3.{4,5}`, `1.2.3.4,1.2.3.5`, `1.2.3.*`, `1.2.3-7.*`.

    Each part of an address is a set of ranges. IPv6 has the same forms with `:` between parts.
    """

    def __init__(self, text: str) -> None:
        """Raises AccessFileError."""
        self._alternatives = [_parse_parts(one, text) for one in _split_alternatives(text)]

    @property
    def includes_all(self) -> bool:
        """Does the pattern include every address?"""
        return any(
            parts is None or all((0, 255 if len(parts) == 4 else 0xFFFF) in ranges for ranges in parts)
            for parts in self._alternatives
        )

    def matches(self, address: Address) -> bool:
        """Does the pattern include this address?"""
        if isinstance(address, IPv4Address):
            parts = list(address.packed)
        else:
            packed = address.packed
            parts = [packed[at] << 8 | packed[at + 1] for at in range(0, 16, 2)]
        return any(_matches(alternative, parts) for alternative in self._alternatives)


_Ranges: TypeAlias = list[tuple[int, int]]


def _matches(alternative: list[_Ranges] | None, parts: list[int]) -> bool:
    if alternative is None:
        return True
    return len(alternative) == len(parts) and all(
        any(low <= part <= high for low, high in ranges) for ranges, part in zip(alternative, parts, strict=True)
    )


def _split_alternatives(text: str) -> list[str]:
    """`a,b` are two alternatives; a comma within braces separates values of one part."""
    found, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "{") - (char == "}")
        if char == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()]


def _parse_parts(text: str, whole: str) -> list[_Ranges] | None:
    """The ranges of each part; None for any address."""
    if text in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return None
    is_ipv4 = "." in text
    base, largest, count = (10, 255, 4) if is_ipv4 else (16, 0xFFFF, 8)
    parts = text.split("." if is_ipv4 else ":")
    try:
        if not is_ipv4 and "*" not in text and "-" not in text and "{" not in text:
            parts = IPv6Address(text).exploded.split(":")
        if len(parts) < count and parts[-1] == "*":
            parts += ["*"] * (count - len(parts))
        if len(parts) != count:
            raise ValueError
        return [_parse_part(part, base, largest) for part in parts]
    except ValueError:
        raise AccessFileError(
            f"the address {whole!r} is not valid; write an address, a list of addresses, or a pattern such as "
            "192.168.1.* or 192.168.1.{4,5} or 192.168.1-7.*"
        ) from None


def _parse_part(text: str, base: int, largest: int) -> _Ranges:
    if text == "*":
        return [(0, largest)]
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    ranges = []
    for one in text.split(","):
        low, is_range, high = one.partition("-")
        ends = int(low, base), int(high if is_range else low, base)
        if not 0 <= ends[0] <= ends[1] <= largest:
            raise ValueError
        ranges.append(ends)
    return ranges
