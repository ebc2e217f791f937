"""Reads plain_acl.yml again when it, or a file in the folder `acl` beside it, has changed.

A thread looks at the files every few seconds and parses them. A changed file is read only after it has not changed
again for a moment, so that a file that is being written is not read too early. Invalid files change nothing: the last
valid accounts stay in force, and the reason is logged once for each change. If the system refuses to read a file (too
many open files, a failing disk), it is tried again every few seconds: a removed account must not stay valid.
"""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from kourou.access.plain_acl import PlainAcl
from kourou.server.access_files import account_files, read_plain_acl
from kourou.server.conf import ConfError
from kourou.server.files import is_refused_by_system

log = logging.getLogger(__name__)

LOOK_INTERVAL: Final = 2.0
"""Seconds between two checks of the files."""

SETTLE_TIME: Final = 0.5
"""Seconds that a file must not change before it is read."""

State: TypeAlias = tuple[tuple[object, ...], ...]


class AccountWatch:
    """Watches the files of one broker. `start` and `stop` are called in the event loop."""

    def __init__(self, path: Path, use: Callable[[PlainAcl], None]) -> None:
        """`use` gets the accounts each time they were read, in the event loop."""
        self._path = path
        self._use = use
        self._task: asyncio.Task[None] | None = None
        self._read: State = state_of(path)
        self._refusal: str | None = None  # why the system refused, as it was logged

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_INTERVAL)
            try:
                await self._look()
            except Exception as error:  # files or threads of the system are exhausted: the next look tries again
                reason = str(error) if isinstance(error, ConfError) else f"{self._path}: {error}"
                if reason != self._refusal:  # once, and not once per try
                    self._refusal = reason
                    log.error("accounts can't be read now, so the last ones stay in force; this is retried: %s", reason)

    async def _look(self) -> None:
        """Raises ConfError, OSError and others if the system refuses."""
        state = await asyncio.to_thread(state_of, self._path)
        while state != self._read:
            await asyncio.sleep(SETTLE_TIME)
            before, state = state, await asyncio.to_thread(state_of, self._path)
            if state == before:
                await self._read_again(state)

    async def _read_again(self, state: State) -> None:
        try:
            with _no_collections():
                acl = await asyncio.to_thread(read_plain_acl, self._path)
        except Exception as error:
            if is_refused_by_system(error):
                raise
            self._read = state  # invalid files are read again when they change
            reason = str(error) if isinstance(error, ConfError) else f"{self._path}: {type(error).__name__}"
            log.error("the new accounts are invalid, so the last valid ones stay in force: %s", reason)
            return
        self._read, self._refusal = state, None
        self._use(acl)
        log.info("accounts reloaded file=%s accounts=%d", self._path, len(acl.accounts))


@contextmanager
def _no_collections() -> Iterator[None]:
    """Suspend Python's garbage collector, which stops all threads.

    A file of 2,000 accounts temporarily needs 50,000 objects, and a collection over them takes 50 ms.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def state_of(path: Path) -> State:
    """A value that changes when a file is written, replaced, added or removed."""
    found: list[tuple[object, ...]] = []
    try:
        for file in account_files(path):
            status = file.stat()
            found.append((str(file), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns))
    except (ConfError, OSError) as error:  # a file was removed meanwhile, or there are too many
        found.append((str(error),))
    return tuple(found)
