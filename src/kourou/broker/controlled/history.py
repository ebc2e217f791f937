"""The log of a broker under a controller, with its epochs: the interfaces for a master and for a slave.

Epochs are written before the first byte of an epoch is appended, and after a cut (`store.history`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from kourou.store.copies import LogCopy, LogSource
from kourou.store.epochs import Epochs
from kourou.store.errors import StoreError
from kourou.store.history import History
from kourou.store.settings import FlushMode
from kourou.store.store import Store
from kourou.turns import at_once

log = logging.getLogger(__name__)

CONFIRMED: Final = "confirmed"
"""The watermark of a slave: the confirm offset of its master, up to which consumers may see the log."""


class HistorySource(LogSource):
    """The log of a master under a controller."""

    def __init__(self, store: Store, flush_mode: FlushMode, history: History) -> None:
        super().__init__(store, flush_mode)
        self._durability = store.durability
        self._history = history

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        return self._history.all.entries

    @property
    def confirm_offset(self) -> int:
        return self._durability.visible_to

    def epoch_at(self, offset: int) -> tuple[int, int, int]:
        epochs = self._history.all
        number = epochs.at(offset)
        return number, epochs.start_of(number) or 0, epochs.end_of(number, 2**63 - 1)


class HistoryCopy(LogCopy):
    """The log of a slave under a controller."""

    def __init__(self, store: Store, flush_mode: FlushMode, history: History, cut: Callable[[int], None]) -> None:
        """`cut` truncates the log durably; raises StoreError, OSError."""
        super().__init__(store, flush_mode)
        self._log, self._durability = store.log, store.durability
        self._history = history
        self._cut = cut
        self.is_agreeing = False  # `agree` returns only when the disk is done
        self.disagreement: str | None = None
        self.has_agreed = False  # at least once, with any master

    @property
    def last_epoch(self) -> int:
        return self._history.newest if self._history.is_kept else 0

    def agree(self, end: int, epochs: tuple[tuple[int, int], ...]) -> None:
        """Cut the log where it differs from the master's, and adopt the master's epochs."""
        try:
            self._agree(end, Epochs(epochs))
        except (StoreError, OSError, ValueError, KeyError) as error:
            self.disagreement = f"this log can't be made to agree with the master's: {error}"
        else:
            self.disagreement = None
            self.has_agreed = True

    def _agree(self, end: int, master: Epochs) -> None:
        if not self.is_empty:
            mine = self._history.epochs if self._history.is_kept else Epochs()
            common = mine.diverges_at(self._log.end, master, end)
            if common is None and _begins(mine) and _begins(master):
                common = 0  # this broker led the first epoch, and no other broker has a byte of it
            if common is None or common < self._log.start:
                raise StoreError(
                    f"they have no epoch in common: {mine} and {master}. Move this broker's store away, and it copies "
                    "the master's"
                )
            if common < self._log.end:
                folder = at_once(self._history.set_aside(common))
                log.error(
                    "this log differs from the master's from %d on: %d bytes are cut off, and kept in %s",
                    common,
                    self._log.end - common,
                    folder,
                )
                self._cut(common)
        self._history.adopt(master)

    def confirm(self, offset: int) -> None:
        self._durability.reached(CONFIRMED, min(offset, self._log.end))


def _begins(epochs: Epochs) -> bool:
    """Do these epochs go back to the first byte of the log?"""
    return bool(epochs.entries) and epochs.entries[0].start == 0
