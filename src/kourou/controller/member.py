"""A controller in its group: the log of changes, and the file with the complete state.

    propose ─▶ the log ─▶ Raft.step ─▶ messages ─▶ other controllers ─▶ … ─▶ committed records

A controller has little state, which rarely changes. So one file has term, vote, epochs and log, and each change
replaces it: after a crash, the file always has a consistent state. `Cut` and the other jobs are performed in memory at
once, and become durable with the next version of the file, as do appends. A file that is appended to was rejected: it
would need its own recovery, to save some hundred bytes per election.

The log begins with a snapshot, or at 0. When it has grown by `GROWTH_MAX`, the leader writes another snapshot; once
that is committed, the log before it is dropped. A controller without peers uses the same file.
"""

import logging
import struct
import zlib
from collections.abc import Iterator
from random import Random
from typing import Final, assert_never

import msgspec

from kourou.controller.groups import Groups, Record
from kourou.controller.settings import ControllerSettings
from kourou.raft.events import (
    Answered,
    Append,
    Appended,
    BeginTerm,
    Committed,
    Cut,
    Done,
    Effect,
    Event,
    Flushed,
    HardState,
    Health,
    Read,
    ReadReady,
    Received,
    Restart,
    RoleChanged,
    Save,
    SaveEpochs,
    Send,
    Ship,
    Token,
    Trimmed,
)
from kourou.raft.leader import Leader
from kourou.raft.log import Log
from kourou.raft.machine import Raft
from kourou.raft.members import Member as RaftMember, Members
from kourou.raft.settings import RaftSettings
from kourou.raft.transport import Transport
from kourou.replication.links import LinkEffect, LinkEvent
from kourou.store.epochs import Epochs

log = logging.getLogger(__name__)

GROWTH_MAX: Final = 256 * 1024
"""By how many bytes the log grows before the leader writes a snapshot."""

RETRY_MS: Final = 500
"""The pause before a failed write of the file is retried."""

RAFT_PORT: Final = 1
"""Added to the port for requests: the port on which a controller listens for the other controllers."""

_HEAD = struct.Struct(">II")  # the size of the rest, its CRC-32
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Record)


class BadFileError(Exception):
    """The file is damaged, or belongs to another group."""


class Image(msgspec.Struct, frozen=True):
    """The content of the file."""

    hard: HardState = HardState()
    epochs: tuple[tuple[int, int], ...] = ()
    start: int = 0
    log: bytes = b""

    def encode(self) -> bytes:
        content = _encoder.encode(self)
        return _HEAD.pack(len(content), zlib.crc32(content)) + content

    @classmethod
    def decode(cls, data: bytes) -> "Image":
        """Raises BadFileError."""
        try:
            size, crc = _HEAD.unpack_from(data)
            content = data[_HEAD.size :]
            if len(content) != size or zlib.crc32(content) != crc:
                raise BadFileError("its checksum is wrong")
            return msgspec.msgpack.decode(content, type=cls)
        except (struct.error, msgspec.DecodeError) as error:
            raise BadFileError(str(error)) from None


def record_bytes(record: Record) -> bytes:
    """The encoding of a record in the log."""
    content = _encoder.encode(record)
    return _HEAD.pack(len(content), zlib.crc32(content)) + content


class Member:
    """See the module's text."""

    def __init__(self, settings: ControllerSettings, image: Image | None, chance: Random, now_ms: int) -> None:
        """`image` is the content of the file, if there is one. Raises BadFileError."""
        addresses = settings.members()
        self.id = settings.self_id
        self.addresses = addresses
        voters = tuple(RaftMember(name, True, address) for name, address in sorted(addresses.items()))
        image = image or Image(hard=HardState(0, None, Members(voters)))
        if image.hard.members.ids != addresses.keys():
            raise BadFileError(
                f"it belongs to a group with the controllers {', '.join(sorted(image.hard.members.ids))}, but "
                f"controllerDLegerPeers has {', '.join(sorted(addresses))}: correct controllerDLegerPeers, or remove "
                "the files of all controllers; the brokers then register again"
            )
        self._hard = image.hard
        self._epochs = Epochs(image.epochs)
        self._start = image.start
        self._data = bytearray(image.log)
        raft_settings = RaftSettings(election_ms=settings.election_ms, heartbeat_ms=settings.heartbeat_ms)
        raft_log = Log(self, self._start, self.end, self._epochs)
        self.raft = Raft(self.id, image.hard, raft_log, raft_settings, chance, now_ms)
        self.transport = Transport(settings.group, self.id)
        self.transport.use({name: raft_address(one) for name, one in addresses.items() if name != self.id})
        self._events: list[Event] = []
        self._jobs: list[int] = []  # performed in memory, not yet on disk
        self._writing: tuple[list[int], int] | None = None  # jobs and log end that the current write makes durable
        self._is_dirty = False
        self._retry_ms: int | None = None
        self._applied = self._start
        self._snapshot_at = self._start  # where the last snapshot of the log is
        self.table: Groups = {}
        """The committed state."""
        self.ready: list[Token] = []
        """Reads that may be answered."""
        self.failed: list[tuple[Token, str]] = []
        """Reads that have failed."""

    # ── For the machine ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def leader(self) -> str | None:
        return self.raft.node.leader

    @property
    def term(self) -> int:
        return self.raft.node.term

    @property
    def is_leading(self) -> bool:
        """May this controller decide? `table` then has everything that was committed before its term."""
        role = self.raft.role
        return isinstance(role, Leader) and role.is_open and role.has_committed

    @property
    def end(self) -> int:
        return self._start + len(self._data)

    @property
    def commit(self) -> int:
        return self.raft.node.commit

    def propose(self, record: Record) -> int:
        """Append a record. Returns an offset: the record is committed once `commit` has reached it."""
        assert self.is_leading
        self._append(record_bytes(record))
        return self.end

    def read(self, token: Token) -> None:
        """Add the token to `ready` once it is confirmed that this controller still leads."""
        self._events.append(Read(token))

    def happen(self, event: LinkEvent, now_ms: int) -> None:
        self._events += [Received(message) for message in self.transport.happen(event, now_ms)]

    def saved(self, error: str | None, now_ms: int) -> None:
        """The file was written, or writing it failed."""
        assert self._writing is not None
        jobs, end = self._writing
        self._writing = None
        if error is not None:
            log.error("the file of this controller can't be written; this will be retried: %s", error)
            self._jobs = jobs + self._jobs
            self._is_dirty, self._retry_ms = True, now_ms + RETRY_MS
            self._events.append(Health(False))
            return
        if not self.raft.node.is_writable:
            self._events.append(Health(True))
        self._events.append(Flushed(end))
        self._events += map(Done, jobs)

    def due_ms(self) -> int:
        times = (self.raft.due_ms, self.transport.due_ms(), self._retry_ms)
        return min(time for time in times if time is not None)

    def step(self, now_ms: int) -> list[LinkEffect]:
        """Pass the events to the Raft machine, and perform its effects."""
        self.transport.step(now_ms)
        while self._events or now_ms >= self.raft.due_ms:
            events, self._events = self._events, []
            for effect in self.raft.step(events, now_ms):
                self._perform(effect)
        self._apply()
        grown = self.end - self._snapshot_at
        if self.is_leading and self.commit == self.end and grown > GROWTH_MAX + self._snapshot_size:
            self._snapshot_at = self.end  # everything is committed, so the table reflects the whole log
            self._append(record_bytes(Record(is_snapshot=True, groups=dict(self.table))))
            return [*self.transport.take_effects(), *self.step(now_ms)]
        return self.transport.take_effects()

    def image_to_save(self, now_ms: int) -> bytes | None:
        """The next file, if one is due."""
        if self._writing is not None or not self._is_dirty or (self._retry_ms is not None and now_ms < self._retry_ms):
            return None
        self._is_dirty, self._retry_ms = False, None
        self._writing, self._jobs = (self._jobs, self.end), []
        return Image(self._hard, tuple(self._epochs.entries), self._start, bytes(self._data)).encode()

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(to, message):
                self.transport.send(to, message)
            case Ship(to, message, size):
                at = message.previous - self._start
                self.transport.send(to, message, memoryview(bytes(self._data[at : at + size])) if size else None)
            case Append(offset, data):
                assert offset == self.end, f"the log ends at {self.end}, not at {offset}"
                if _are_whole(data):
                    self._append(data)
                else:
                    log.error("the leader sent invalid records at %d, which are ignored", offset)
                    self._events.append(Appended(self.end))
            case BeginTerm(term):
                self._append(record_bytes(Record(term=term)))
            case Save() | SaveEpochs() | Cut() | Restart():
                self._do(effect)
            case RoleChanged(role, term, leader):
                log.info("controller %s is %s in term %d, leader %s", self.id, role, term, leader)
            case ReadReady(token):
                self.ready.append(token)
            case Answered(token, fault):
                self.failed.append((token, fault or ""))
            case Committed():
                pass  # `_apply` reads the commit offset
            case _:
                assert_never(effect)

    def _append(self, data: bytes) -> None:
        self._data += data
        self._is_dirty = True
        self._events.append(Appended(self.end))

    def _do(self, job: Save | SaveEpochs | Cut | Restart) -> None:
        match job:
            case Save():
                self._hard = job.state
            case SaveEpochs():
                self._epochs = job.epochs
            case Cut(_, end):
                del self._data[end - self._start :]
            case Restart(_, start):
                self._start, self._data = start, bytearray()
                self._applied = self._snapshot_at = start
        self._jobs.append(job.job)
        self._is_dirty = True

    # ── Records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def batch_end(self, start: int, limit: int) -> int:
        """See `kourou.raft.log.Records`."""
        end = start
        for _, _, after in self._records(start, self.end):
            if after - start > limit and end > start:
                return end
            end = after
        return end

    def _records(self, start: int, end: int) -> Iterator[tuple[int, bytes, int]]:
        """The records in this range: start, content and end of each."""
        at = start - self._start
        while self._start + at + _HEAD.size <= end:
            size, _ = _HEAD.unpack_from(self._data, at)
            after = at + _HEAD.size + size
            if self._start + after > end:
                return
            yield self._start + at, bytes(self._data[at + _HEAD.size : after]), self._start + after
            at = after

    def _apply(self) -> None:
        """Apply committed records to the table; drop the log before a committed snapshot."""
        drop_to = self._start
        for start, content, end in self._records(max(self._applied, self._start), self.commit):
            record = _decoder.decode(content)
            self.table = record.apply(self.table)
            self._applied = end
            if record.is_snapshot:
                drop_to = start
        if drop_to > self._start:
            self._trim(drop_to)

    def _trim(self, start: int) -> None:
        del self._data[: start - self._start]
        self._start = self._snapshot_at = start
        self._epochs = self._epochs.trimmed(start)
        self._is_dirty = True
        self._events.append(Trimmed(start))

    @property
    def _snapshot_size(self) -> int:
        """The approximate size of the last snapshot in the log."""
        return 300 * sum(len(group.replicas) for group in self.table.values())


def _are_whole(data: bytes) -> bool:
    """Are these whole records with valid checksums?"""
    at = 0
    while at + _HEAD.size <= len(data):
        size, crc = _HEAD.unpack_from(data, at)
        content = data[at + _HEAD.size : at + _HEAD.size + size]
        if len(content) != size or zlib.crc32(content) != crc:
            return False
        at += _HEAD.size + size
    return at == len(data)


def raft_address(address: str) -> str:
    """The address at which a controller listens for the other controllers."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + RAFT_PORT}"
