"""Reads certificates, keys and trusted certificates again when their files have changed.

A certificate and its key are two files: they are read when neither has changed for a moment. Invalid files change
nothing: the last valid ones stay in use, and the reason is logged once for each change. If the system refuses to read a
file (too many open files, a failing disk), it is tried again every few seconds. Open connections are not affected.
"""

import asyncio
import logging
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from kourou.net.tls import TlsSettings
from kourou.server.files import is_refused_by_system

log = logging.getLogger(__name__)

LOOK_INTERVAL: Final = 2.0
"""Seconds between two checks of the files."""

SETTLE_TIME: Final = 0.5
"""Seconds that files must not change before they are read."""

State: TypeAlias = tuple[tuple[object, ...], ...]


class CertificateWatch:
    """Watches the files of one process. `start` and `stop` are called in the event loop."""

    def __init__(self, settings: Iterable[TlsSettings | None]) -> None:
        self._settings = [one for one in settings if one is not None and one.files]
        self._task: asyncio.Task[None] | None = None
        self._read = self._state()
        self._refusal: str | None = None  # why the system refused, as it was logged

    def start(self) -> None:
        if self._settings:
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
                if str(error) != self._refusal:  # once, and not once per try
                    self._refusal = str(error)
                    log.error("certificates can't be read now; the last ones stay in use; this is retried: %s", error)

    async def _look(self) -> None:
        """Raises OSError and others if the system refuses."""
        state = await asyncio.to_thread(self._state)
        while state != self._read:
            await asyncio.sleep(SETTLE_TIME)
            before, state = state, await asyncio.to_thread(self._state)
            if state == before:
                await self._read_again(state)

    async def _read_again(self, state: State) -> None:
        for settings in self._settings:
            names = " ".join(str(path) for path in settings.files)
            try:
                await asyncio.to_thread(settings.read_again)
            except (OSError, ssl.SSLError, ValueError) as error:
                if is_refused_by_system(error):
                    raise
                log.error("invalid certificates; the last valid ones stay in use files=%s: %s", names, error)
            else:
                log.info("certificates reloaded files=%s", names)
        self._read, self._refusal = state, None

    def _state(self) -> State:
        """A value that changes when a file is written, replaced or removed."""
        return tuple(_state_of(path) for settings in self._settings for path in settings.files)


def _state_of(path: Path) -> tuple[object, ...]:
    try:
        status = path.stat()
    except OSError as error:
        return str(path), error.errno
    return str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
