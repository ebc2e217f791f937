"""A large table in several answers, since 5.5: the caller says from which entry on, and with which version it began.

When the table has changed meanwhile, the caller begins anew: it gets the first page, and sees the other version.
"""

from typing import Final, TypeVar

from kourou.protocol.bodies import DataVersion
from kourou.protocol.errors import BodyError

T = TypeVar("T")

PAGE_MAX: Final = 2_000
"""How many entries a page has at most (splitMetadataSize)."""


def page(
    table: dict[str, T], version: DataVersion, version_had: str | None, start: int | None, count: int | None
) -> dict[str, T]:
    """The part of a table, ordered by name, that was asked for; all of it, if no part was."""
    if version_had is None and start is None and count is None:
        return table
    begin = max(start or 0, 0) if _is(version, version_had) else 0
    end = begin + min(PAGE_MAX, PAGE_MAX if count is None else max(count, 0))
    return {name: table[name] for name in sorted(table)[begin:end]}


def _is(version: DataVersion, text: str | None) -> bool:
    try:
        return bool(text) and DataVersion.decode((text or "").encode()) == version
    except BodyError:
        return False
