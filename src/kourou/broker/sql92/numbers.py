"""Numbers as Java reads them from the text of a property or of an expression.

    int_of, long_of   Integer.valueOf, Long.valueOf: a sign, then decimal digits of any script, within 32 or 64 bits
    double_of         Double.valueOf: control characters and blanks around it, 1e3, 5d, 0x1p4, NaN, Infinity

All raise ValueError. Long texts are read once: an expression may compare the same property a thousand times.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

LARGEST_INT: Final = 2**31 - 1
LARGEST_LONG: Final = 2**63 - 1

_NEVER_TOO_LARGE: Final = 10
"""A number of fewer digits is an int."""

_SHORT: Final = 32
_LONG_TEXTS_MAX: Final = 16
"""How many long texts are kept for each kind of number."""

_DIGITS_MAX: Final = 19
"""Digits of the largest long, without leading zeros."""

_INTEGER: Final = re.compile("[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEX: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_SPECIAL: Final = {
    sign + name: float(sign + value) for sign in ("", "+", "-") for name, value in (("NaN", "nan"), ("Infinity", "inf"))
}
_TRIMMED: Final = "".join(map(chr, range(33)))


def int_of(text: str) -> int:
    if len(text) < _NEVER_TOO_LARGE and text.isascii() and text.isdecimal():
        return int(text)
    return _integer(text, LARGEST_INT) if len(text) <= _SHORT else _long_integer(text, LARGEST_INT)


def long_of(text: str) -> int:
    return _integer(text, LARGEST_LONG) if len(text) <= _SHORT else _long_integer(text, LARGEST_LONG)


def double_of(text: str) -> float:
    return _double(text) if len(text) <= _SHORT else _long_double(text)


def _integer(text: str, largest: int) -> int:
    if not text.isascii():
        text = _ascii_digits(text)
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(f"{text[:40]!r} is not an integer")
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) <= _DIGITS_MAX else largest + 2
    if text[0] == "-":
        number = -number
    if not -largest - 1 <= number <= largest:
        raise ValueError(f"{text[:40]!r} exceeds {largest}")
    return number


def _ascii_digits(text: str) -> str:
    """Digits of other scripts become ASCII. Java looks at UTF-16 units: digits beyond the 16th bit are none to it."""
    digits = [text[0] if text[0] in "+-" else str(_digit(text[0]))]
    return "".join(digits + [str(_digit(letter)) for letter in text[1:]])


def _digit(letter: str) -> int:
    if letter > "\uffff":
        raise ValueError(f"{letter!r} is not a digit")
    return unicodedata.decimal(letter)


def _double(text: str) -> float:
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text) is not None:
        return float(text.rstrip("fFdD"))
    if text in _SPECIAL:
        return _SPECIAL[text]
    found = _HEX.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    try:
        return float.fromhex(found.group(1))
    except OverflowError:
        return float("-inf" if text[0] == "-" else "inf")


_long_integer = lru_cache(_LONG_TEXTS_MAX)(_integer)
_long_double = lru_cache(_LONG_TEXTS_MAX)(_double)
