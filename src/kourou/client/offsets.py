"""The committed offsets of a group: kept by the brokers, or in a local file if every client gets all messages.

    committed in memory ── every few seconds ─▶ broker (one request a queue), or a file

Offsets only increase, except by a reset. Java: RemoteBrokerOffsetStore, LocalFileOffsetStore.
"""

import asyncio
import logging
import os
import threading
from pathlib import Path
from typing import Final, Protocol

from kourou.client.session import Session
from kourou.protocol.bodies import ResetOffsetBody
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, KourouError, QueryNotFoundError
from kourou.protocol.headers import OffsetAnswer, QueryConsumerOffset, UpdateConsumerOffset
from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

STORED_AT_ONCE: Final = 64
"""Queues whose offsets are sent to brokers at the same time."""


class OffsetStore(Protocol):
    """Where offsets are kept."""

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset that this consumer committed, stored or not."""

    def commit(self, queue: MessageQueue, offset: int) -> None:
        """Everything before `offset` is settled."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The group's stored offset; None if it has none. Raises KourouError if it can't be read."""

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        """Continue at this offset, earlier or later. Raises KourouError."""

    async def persist(self, queues: "set[MessageQueue] | None" = None, *, confirmed: bool = False) -> None:
        """Store the committed offsets of these queues, or of all. Offsets that fail are stored next time.

        `confirmed` waits until they are stored: the next owner of a queue continues from there.
        """

    def forget(self, queue: MessageQueue) -> None:
        """The queue is no longer assigned to us."""


class BrokerOffsets:
    """Offsets kept by the brokers, each for its own queues."""

    def __init__(self, session: Session, group: str) -> None:
        self._session = session
        self._group = group
        self._offsets: dict[MessageQueue, int] = {}
        self._stored: dict[MessageQueue, int] = {}

    def committed(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset

    async def read(self, queue: MessageQueue) -> int | None:
        header = QueryConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, set_zero_if_not_found=False
        )
        address, _ = self._session.routes.member_of(queue)
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext={**header.encode(), "bname": queue.broker_name})
        try:
            answer = await self._session.pool.ask(address, command, self._session.settings.request_timeout)
        except QueryNotFoundError:
            return None
        offset = OffsetAnswer.decode(answer.ext).offset
        self._offsets[queue] = self._stored[queue] = offset
        return offset

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset
        address, _ = self._session.routes.member_of(queue)
        await self._session.pool.ask(address, self._command(queue, offset), self._session.settings.request_timeout)
        self._stored[queue] = offset

    async def persist(self, queues: "set[MessageQueue] | None" = None, *, confirmed: bool = False) -> None:
        changed = [
            (queue, offset)
            for queue, offset in self._offsets.items()
            if (queues is None or queue in queues) and self._stored.get(queue) != offset
        ]
        for at in range(0, len(changed), STORED_AT_ONCE):
            some = changed[at : at + STORED_AT_ONCE]
            await asyncio.gather(*(self._store(queue, offset, confirmed) for queue, offset in some))

    async def _store(self, queue: MessageQueue, offset: int, confirmed: bool) -> None:
        try:
            address, _ = self._session.routes.member_of(queue)
            command = self._command(queue, offset)
            if confirmed:
                await self._session.pool.ask(address, command, self._session.settings.request_timeout)
            else:
                await self._session.pool.tell(address, command)
            self._stored[queue] = offset
        except KourouError as error:
            log.info("offset not stored queue=%s offset=%d: %s", queue, offset, error)

    def _command(self, queue: MessageQueue, offset: int) -> Command:
        header = UpdateConsumerOffset(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext={**header.encode(), "bname": queue.broker_name})

    def forget(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._stored.pop(queue, None)


class FileOffsets:
    """Offsets kept in a local file, in the format and at the path of the Java client.

    The new file is written aside and renamed, so that a crash leaves the old one or the new one; the one before stays
    beside it as .bak.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offsets = _load(path)
        self._changes = 0
        self._stored = 0  # of these changes; changed by writing threads, under the lock
        self._lock = threading.Lock()

    def committed(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        if offset > self._offsets.get(queue, -1):
            self._offsets[queue] = offset
            self._changes += 1

    async def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        self._offsets[queue] = offset
        self._changes += 1
        await self.persist()

    async def persist(self, queues: "set[MessageQueue] | None" = None, *, confirmed: bool = False) -> None:  # noqa: ARG002
        if self._stored == self._changes:
            return
        data = ResetOffsetBody(offset_table=dict(self._offsets)).encode()
        try:
            await asyncio.to_thread(self._store, data, self._changes)
        except OSError as error:
            log.warning("offsets not stored path=%s: %s", self._path, error)

    def _store(self, data: bytes, changes: int) -> None:
        """Runs in a thread, even if the caller is cancelled: a later write waits, and an older one is skipped."""
        with self._lock:
            if changes > self._stored:
                _store(self._path, data)
                self._stored = changes

    def forget(self, queue: MessageQueue) -> None:
        """Does nothing: the file is the only place that has the offset."""


class HeldOffsets:
    """Offsets that go to another store when the program says so: `auto_commit=False`."""

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._held: dict[MessageQueue, int] = {}

    def committed(self, queue: MessageQueue) -> int | None:
        return self._store.committed(queue)

    def commit(self, queue: MessageQueue, offset: int) -> None:
        self._held[queue] = offset

    async def release(self) -> None:
        """Everything that is settled by now is committed. Raises KourouError."""
        for queue, offset in list(self._held.items()):
            if offset < (self._store.committed(queue) or 0):  # after a seek
                await self._store.reset(queue, offset)
            else:
                self._store.commit(queue, offset)
            if self._held.get(queue) == offset:
                del self._held[queue]

    async def read(self, queue: MessageQueue) -> int | None:
        return await self._store.read(queue)

    async def reset(self, queue: MessageQueue, offset: int) -> None:
        self._held[queue] = offset

    async def persist(self, queues: "set[MessageQueue] | None" = None, *, confirmed: bool = False) -> None:
        await self._store.persist(queues, confirmed=confirmed)

    def forget(self, queue: MessageQueue) -> None:
        self._held.pop(queue, None)
        self._store.forget(queue)


def offset_path(folder: Path | None, client_id: str, group: str) -> Path:
    """The file in which the Java client keeps the offsets of a broadcast consumer."""
    return (folder or Path.home() / ".rocketmq_offsets") / client_id / group / "offsets.json"


def _load(path: Path) -> dict[MessageQueue, int]:
    """Reads the file, or its backup if the file is damaged. If both are, starts without offsets and logs a warning."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            return dict(ResetOffsetBody.decode(candidate.read_bytes()).offset_table)
        except FileNotFoundError:
            continue
        except (OSError, BodyError) as error:
            log.warning("offsets not read path=%s: %s", candidate, error)
    return {}


def _store(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".tmp")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, path.with_name(path.name + ".bak"))
    os.replace(fresh, path)
