"""What must survive a restart, changed so that nobody sees a change that a crash may take back.

A change is staged, the whole document is written by the driver (`Save`), and only when that is safe (`saved`) the
change becomes visible and its author is answered. Changes that come while a write is under way wait for the next one
and share it. A write that fails takes back all that was staged, and every author is told why.
"""

from typing import Generic, TypeVar

T = TypeVar("T")
Author = TypeVar("Author")


class Document(Generic[T, Author]):
    """One value with its visible and its staged state. Values are never changed in place: `stage` gets a new one."""

    __slots__ = ("_authors", "_staged", "_version", "_writing", "value")

    def __init__(self, value: T) -> None:
        self.value = value  # what everyone sees: safe on disk
        self._staged = value  # what will be seen once it is safe
        self._version = 0
        self._writing: tuple[int, T, list[Author]] | None = None  # the write under way and who waits for it
        self._authors: list[Author] = []  # who waits for the write after that

    @property
    def staged(self) -> T:
        """What the next change builds on."""
        return self._staged

    @property
    def is_settled(self) -> bool:
        """What was staged is safe. Until then even who finds nothing to change must wait: it may be taken back."""
        return self._writing is None

    def stage(self, value: T, author: Author) -> int | None:
        """A change. The version to write now, or None: a write is under way, and the change goes with the next."""
        self._staged = value
        self._authors.append(author)
        return None if self._writing else self._start()

    def saved(self, version: int) -> tuple[list[Author], int | None]:
        """A version is safe: who is to be answered, and the version to write next if there is one."""
        assert self._writing is not None and self._writing[0] == version, (self._writing, version)
        _, self.value, authors = self._writing
        self._writing = None
        return authors, self._start() if self._authors else None

    def failed(self, version: int) -> list[Author]:
        """A version could not be written: everything staged is void. Who is to be told."""
        assert self._writing is not None and self._writing[0] == version, (self._writing, version)
        authors = self._writing[2] + self._authors
        self._writing, self._authors, self._staged = None, [], self.value
        return authors

    def _start(self) -> int:
        self._version += 1
        self._writing = (self._version, self._staged, self._authors)
        self._authors = []
        return self._version
