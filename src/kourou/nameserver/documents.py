"""State that must survive a restart: a change becomes visible only when a crash can't undo it.

A change is staged, and the driver writes the whole document (`Save`). When it is durable (`saved`), the change becomes
visible and the request is answered. Changes that arrive during a write share the next one. A failed write discards
everything that was staged, and all its requests get the reason.
"""

from typing import Generic, TypeVar

T = TypeVar("T")
Author = TypeVar("Author")


class Document(Generic[T, Author]):
    """One value in two states, visible and staged. Values are never changed in place: `stage` takes a new one."""

    __slots__ = ("_authors", "_staged", "_version", "_writing", "value")

    def __init__(self, value: T) -> None:
        self.value = value  # visible: durable on disk
        self._staged = value  # becomes visible once it is durable
        self._version = 0
        self._writing: tuple[int, T, list[Author]] | None = None  # the running write and its requests
        self._authors: list[Author] = []  # the requests of the next write

    @property
    def staged(self) -> T:
        """The value that the next change starts from."""
        return self._staged

    @property
    def is_settled(self) -> bool:
        """True if all staged changes are durable. Until then even a request without effect waits, as they may fail."""
        return self._writing is None

    def stage(self, value: T, author: Author) -> int | None:
        """Stage a change. Returns the version to write now; None: a write is running, and the change joins the next."""
        self._staged = value
        self._authors.append(author)
        return None if self._writing else self._start()

    def saved(self, version: int) -> tuple[list[Author], int | None]:
        """A version is durable. Returns the requests to answer, and the version to write next, if any."""
        assert self._writing is not None and self._writing[0] == version, (self._writing, version)
        _, self.value, authors = self._writing
        self._writing = None
        return authors, self._start() if self._authors else None

    def failed(self, version: int) -> list[Author]:
        """A version could not be written: all staged changes are discarded. Returns their requests."""
        assert self._writing is not None and self._writing[0] == version, (self._writing, version)
        authors = self._writing[2] + self._authors
        self._writing, self._authors, self._staged = None, [], self.value
        return authors

    def _start(self) -> int:
        self._version += 1
        self._writing = (self._version, self._staged, self._authors)
        self._authors = []
        return self._version
