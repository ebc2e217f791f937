"""The store of a member: the log, which the machine knows only by its offsets, and two files beside it.

    commitlog/             the log; a member copies whole, valid records only
    epochFileCheckpoint    the epochs of the log (kourou.store.epochs)
    kourou-raft.json       term, vote and members, which must survive a restart

Both files are replaced as a whole: a crash leaves the old or the new content. `StateFile.write` and `EpochFile.write`
may run in a worker thread; everything else runs in the thread of the store.

A log without epochs was written by a broker that did not belong to a group. Two such logs can't be compared, so a
member refuses to start with one, unless the operator declares it to be the only one of its group (`adopt`).
"""

from typing import Final

import msgspec

from kourou.protocol.record import Found
from kourou.raft.events import HardState
from kourou.raft.log import Log
from kourou.raft.members import Count, Member, Members
from kourou.replication.records import Assembler, BadCopyError
from kourou.store.commit_log import NewMessage
from kourou.store.copies import LogCopy
from kourou.store.durability import Token
from kourou.store.epochs import EpochFile, Epochs
from kourou.store.errors import BadStoreError, DiskFullError
from kourou.store.records import scan_segment
from kourou.store.settings import FlushMode
from kourou.store.store import Store

STATE_FILE: Final = "kourou-raft.json"
EPOCH_FILE: Final = "epochFileCheckpoint"

GROUP_TOPIC: Final = "rmq_sys_kourou_group"
"""The topic of the records that a leader writes for its group."""

TERMS_QUEUE: Final = 0
"""The queue of the records that begin terms."""

ADOPTED_EPOCH: Final = 1
"""The epoch of a log that was written outside of any group."""


class _Saved(HardState, frozen=True):
    """The content of the file."""

    foreign_from: Count | None = None


class StateFile:
    """The file of term, vote and members."""

    def __init__(self, store: Store) -> None:
        self._disk = store.disk
        self.path = store.paths.root / STATE_FILE
        self.foreign_from: int | None = None
        """From this offset on, the log has records that another broker has appended. Known after `read`."""

    def read(self) -> HardState | None:
        """The contents; None if the file was never written. Raises BadStoreError, OSError."""
        content = self._disk.read(self.path)
        if content is None:
            return None
        try:
            saved = msgspec.json.decode(content, type=_Saved)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadStoreError(
                f"{self.path} is damaged: {error}. Without its vote, the member could help to elect a second leader. "
                "Move the whole store of this broker away; it then copies the log from its group"
            ) from None
        self.foreign_from = saved.foreign_from
        return HardState(saved.term, saved.vote, saved.members)

    def note_foreign(self, state: HardState, offset: int) -> None:
        """Remember that another broker has appended records from this offset on. Raises OSError."""
        self.foreign_from = offset
        self.write(_Saved(state.term, state.vote, state.members, offset))

    def write(self, state: HardState) -> None:
        """Replace the file, durable on return. Raises OSError."""
        self._disk.replace(self.path, msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")


class RaftStorage:
    """See the module's text."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._copy = LogCopy(store, FlushMode.SYNC)
        self.state_file = StateFile(store)
        self.epoch_file = EpochFile(store.disk, store.paths.root / EPOCH_FILE)

    # ── Opening ───────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, members: tuple[Member, ...], *, adopt: bool = False) -> tuple[HardState, Log]:
        """The state before the last stop. `members` are those of a new group. Raises BadStoreError, OSError."""
        commit_log = self._store.log
        hard = self.state_file.read()
        if hard is not None:
            self._refuse_foreign_records(hard)
        epochs = self.epoch_file.read().cut(commit_log.end)
        is_empty = commit_log.end <= commit_log.start
        if hard is None:
            if not is_empty:
                epochs = self._adopted(epochs, adopt=adopt)
            hard = HardState(epochs.last.number if epochs.last is not None else 0, None, Members(members))
            self.state_file.write(hard)
        epochs = _covering(epochs, commit_log.start)
        last = epochs.last
        if (last is None and not is_empty) or (last is not None and last.number > hard.term):
            raise BadStoreError(
                f"{self.epoch_file.path} has {epochs}, and {self.state_file.path} term {hard.term}: the files "
                "are not of the same member. Move the whole store of this broker away, and it copies the log of its "
                "group again"
            )
        return hard, Log(self, commit_log.start, commit_log.end, epochs)

    def _refuse_foreign_records(self, hard: HardState) -> None:
        """If another broker has appended to this log, the group may have other records there.

        Raises BadStoreError, OSError.
        """
        stopped_at = self._store.report.stopped_at
        if stopped_at is not None and self._store.log.end > stopped_at and self.state_file.foreign_from is None:
            self.state_file.note_foreign(hard, stopped_at)  # the next start does not know where this member stopped
        if self.state_file.foreign_from is not None:
            raise BadStoreError(
                f"another broker has appended to the log in {self._store.paths.root} since this member of a Raft group "
                f"stopped, from {self.state_file.foreign_from} on. The group may have other records there. Remove this "
                "member from the group, move its whole store away, and add a member with a new id"
            )

    def _adopted(self, epochs: Epochs, *, adopt: bool) -> Epochs:
        """The epochs of a log that was written outside of any group. Raises BadStoreError, OSError."""
        if not adopt:
            raise BadStoreError(
                f"{self._store.paths.root} has messages of a broker that did not belong to a group. Start the member "
                "with an empty folder; it then copies the log from its group. To found a group with these messages, "
                "set raftAdoptLog=true on this member alone, and start the others with empty folders"
            )
        covering = _covering(epochs or Epochs([(ADOPTED_EPOCH, 0)]), self._store.log.start)
        if covering != epochs:
            self.epoch_file.write(covering)
        return covering

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def batch_end(self, start: int, limit: int) -> int:
        """The end of the last record that ends within `limit` bytes of `start`, or the end of the first record.

        A filler counts as a record, and a batch ends with its segment.
        """
        commit_log = self._store.log
        size = commit_log.segments.file_size
        base = start - start % size
        end = min(commit_log.end, base + size)
        if end - start <= limit:
            return end
        scanner, at = scan_segment(commit_log.segments, start, end), start
        while scanner.step() == Found.RECORD:
            after = base + scanner.next_at
            if after - start > limit:
                return at if at > start else after
            at = after
        return at if at > start else end

    def read(self, offset: int, size: int) -> memoryview:
        """Bytes of one segment, not copied. Raises KeyError, OSError."""
        return self._store.log.read(offset, size)

    # ── Changes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def append(self, offset: int, data: bytes, now_ms: int) -> None:
        """Append bytes of the leader, which must be whole, valid records.

        Raises BadCopyError, DiskFullError, DiskFailedError; some of the records may then have been appended.
        """
        commit_log = self._store.log
        assert offset == commit_log.end, f"the log ends at {commit_log.end}, not at {offset}"
        if self._store.refusal is not None:
            raise DiskFullError(self._store.refusal)
        commit_log.now_ms = now_ms
        assembler = Assembler(offset, commit_log.segments.file_size, self._copy.append)
        assembler.feed(memoryview(data))
        if assembler.pending:
            raise BadCopyError(f"the last {assembler.pending} bytes are not a whole record")

    def begin_term(self, term: int, leader: str, now_ms: int) -> None:
        """Append the first record of a leader's term. Raises DiskFullError, DiskFailedError."""
        self._store.count_given_out()
        self.write(TERMS_QUEUE, msgspec.json.encode({"term": term, "leader": leader}), now_ms)

    def write(self, queue_id: int, body: bytes, now_ms: int) -> int:
        """Append a record of the group itself; returns its offset. Raises DiskFullError, DiskFailedError."""
        store = self._store
        host = store.log.store_host
        message = NewMessage(GROUP_TOPIC, queue_id, body, b"", store.clock.at(now_ms), host)
        return store.append([message], now_ms)[0].physical_offset

    def cut(self, end: int, now_ms: int) -> list[Token]:
        """Remove the log after this offset, durably; returns the senders to answer. Raises as `Store.truncate`."""
        return self._store.truncate(end, now_ms)

    def restart(self, start: int) -> None:
        """Let the log, which is empty, begin here. Raises StoreError."""
        self._copy.begin_at(start)


def refuse_member(store: Store) -> None:
    """A broker outside of any group must not append to the log of a member. Raises BadStoreError."""
    path = store.paths.root / STATE_FILE
    if store.disk.read(path) is not None:
        raise BadStoreError(
            f"{store.paths.root} belongs to a member of a Raft group, and what this broker appends would differ from "
            "the log of the group. Set enableDLegerCommitLog=true and the other properties of the group. To leave the "
            f"group for good, remove the member from it, and then the file {path}"
        )


def _covering(epochs: Epochs, start: int) -> Epochs:
    """The epochs of a log that begins at `start`, in which the first byte has an epoch, and the one before it.

    The first epoch of a log that was adopted may begin later: its beginning was written outside of any group, or is
    removed. Members that are compared with it were empty when the group was founded.
    """
    if not epochs or (epochs.at(start) and (not start or epochs.before(start))):
        return epochs
    return Epochs([(epochs.entries[0].number, 0), *epochs.entries[1:]])
