"""A large table in several answers, since 5.5: the caller says from which entry on, and with which version it began.

When the table has changed meanwhile, the caller begins again: it gets the first page, and sees the other version.
"""

from typing import Final, Generic, TypeVar

from kourou.broker.admin.tables import in_order
from kourou.protocol.bodies import DataVersion
from kourou.protocol.errors import BodyError
from kourou.turns import Slices

T = TypeVar("T")

PAGE_MAX: Final = 2_000
"""How many entries a page has at most (splitMetadataSize)."""


class Pages(Generic[T]):
    """The pages of one table, ordered by name."""

    def __init__(self) -> None:
        self._version: DataVersion | None = None
        self._names: list[str] = []  # in their order, when the table had that version

    def page(
        self, table: dict[str, T], version: DataVersion, version_had: str | None, start: int | None, count: int | None
    ) -> Slices[dict[str, T]]:
        """The part of a table that was asked for; all of it, if no part was."""
        if version_had is None and start is None and count is None:
            return table
        begin = max(start or 0, 0) if _is(version, version_had) else 0
        end = begin + min(PAGE_MAX, PAGE_MAX if count is None else max(count, 0))
        if self._version != version or len(self._names) != len(table):
            self._names = yield from in_order(list(table))
            self._version = version
        return {name: table[name] for name in self._names[begin:end] if name in table}


def _is(version: DataVersion, text: str | None) -> bool:
    try:
        return bool(text) and DataVersion.decode((text or "").encode()) == version
    except BodyError:
        return False
