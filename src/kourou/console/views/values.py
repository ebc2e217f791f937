"""Values in the form of the API: 64-bit numbers as text, times in the range of JavaScript, strings escaped."""

import re
from typing import Final

from kourou.protocol.codes import Perm

MS_MAX: Final = 2**53
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_SIZE: Final = re.compile(r"([0-9.]{1,20}) ?([KMGTP]?)i?B")


def long(value: int) -> str:
    """A 64-bit number."""
    return str(value)


def ms(value: int | None) -> int | None:
    """A time; None if it is not known or not valid."""
    return value if value is not None and 0 < value < MS_MAX else None


def perm_text(perm: int) -> str:
    """rw, r, w or -."""
    return ("r" if perm & Perm.READ else "") + ("w" if perm & Perm.WRITE else "") or "-"


def perm_of(text: str) -> int:
    """Raises ValueError."""
    known = {"rw": Perm.READ | Perm.WRITE, "r": Perm.READ, "w": Perm.WRITE, "-": Perm(0)}
    if text not in known:
        raise ValueError(f"{text!r} is not a permission: rw, r, w or -")
    return int(known[text])


def size_in(text: str) -> int | None:
    """The bytes in `4.9 KiB`, as brokers show sizes."""
    found = _SIZE.match(text.strip())
    try:
        return None if found is None else round(float(found[1]) * _UNITS[found[2]])
    except ValueError:
        return None


def number_in(text: str | None) -> float | None:
    """A number of a broker's table; None if the text is not a number."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if abs(value) < MS_MAX else None  # also for NaN


def long_in(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) <= 19 else None
