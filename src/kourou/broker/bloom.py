"""The Bloom filter behind the bit maps of messages: which bits represent a group's filter of a topic.

When a message is dispatched, the bits of all filters that it passes are set. A reader skips a message unless all bits
of its own filter are set. Other filters may share these bits: a message that passes is evaluated by its properties.

Java: BloomFilter, BitsArray; Guava's murmur3_128.
"""

import math
from typing import Final

_WORD: Final = 0xFFFF_FFFF_FFFF_FFFF
_FIRST: Final = 0x87C3_7B91_1142_53D5
_SECOND: Final = 0x4CF5_AD43_2745_937F


class Bloom:
    """How many bits there are, and how many of them each filter has."""

    def __init__(self, error_percent: int, expected: int) -> None:
        """`error_percent`: messages that pass though they do not match, when there are `expected` filters."""
        error = error_percent / 100
        self.bits_per_filter = math.ceil(math.log(error) / math.log(0.5))
        bits = math.ceil(expected * (math.log(1 / error) / math.log(2)) * (1 / math.log(2)))
        self.bits = math.ceil(bits / 8) * 8

    def positions(self, group: str, topic: str) -> list[int]:
        """The bits of a group's filter."""
        low = murmur3_low64(f"{group}#{topic}".encode("utf-8", "replace"))
        first, second = low & 0xFFFF_FFFF, low >> 32
        places = []
        for number in range(1, self.bits_per_filter + 1):
            combined = (first + number * second) & 0xFFFF_FFFF
            if combined & 0x8000_0000:
                combined ^= 0xFFFF_FFFF
            places.append(combined % self.bits)
        return places

    def bit_map(self, mask: int) -> bytes:
        """Bits as they are stored: the first is the lowest of the first byte."""
        return mask.to_bytes(self.bits // 8, "little")


def mask_of(positions: list[int]) -> int:
    """Bits as a number."""
    mask = 0
    for position in positions:
        mask |= 1 << position
    return mask


def murmur3_low64(data: bytes) -> int:
    """The lower half of MurmurHash3's 128 bits, for 64-bit machines, with seed 0."""
    one = two = 0
    whole = len(data) - len(data) % 16
    for at in range(0, whole, 16):
        one ^= _scramble(int.from_bytes(data[at : at + 8], "little"), _FIRST, 31, _SECOND)
        one = ((_rotate(one, 27) + two) * 5 + 0x52DC_E729) & _WORD
        two ^= _scramble(int.from_bytes(data[at + 8 : at + 16], "little"), _SECOND, 33, _FIRST)
        two = ((_rotate(two, 31) + one) * 5 + 0x3849_5AB5) & _WORD
    rest = data[whole:]
    two ^= _scramble(int.from_bytes(rest[8:], "little"), _SECOND, 33, _FIRST)
    one ^= _scramble(int.from_bytes(rest[:8], "little"), _FIRST, 31, _SECOND)
    one ^= len(data)
    two ^= len(data)
    one = (one + two) & _WORD
    two = (two + one) & _WORD
    return (_mix(one) + _mix(two)) & _WORD


def _scramble(word: int, factor: int, shift: int, then: int) -> int:
    return _rotate(word * factor & _WORD, shift) * then & _WORD


def _rotate(word: int, by: int) -> int:
    return (word << by | word >> (64 - by)) & _WORD


def _mix(word: int) -> int:
    word = (word ^ word >> 33) * 0xFF51_AFD7_ED55_8CCD & _WORD
    word = (word ^ word >> 33) * 0xC4CE_B9FE_1A85_EC53 & _WORD
    return word ^ word >> 33
