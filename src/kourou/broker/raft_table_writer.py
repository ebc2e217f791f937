"""How the leader of a Raft group writes its tables to the log: changed entries, and from time to time all entries.

    topics, groups, request modes   at the end of the step; requests wait until they are committed
    offsets, delay levels           once a second
    a snapshot                      all tables; `RaftTables` describes when, and the format of the records

Everything runs in slices, and a record has at most `BYTES_MAX` bytes. The writer knows which entries the log has: after
a full or failed disk it continues where it stopped.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from kourou.broker.delays import Delays
from kourou.broker.events import Refused
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.persistence import Persistence
from kourou.broker.raft_reading import (
    CHANGES,
    DELAYS,
    ENTRIES_MAX,
    GROUPS,
    MODES,
    OFFSETS,
    SNAPSHOTS,
    TOPICS,
    Head,
)
from kourou.broker.request_modes import RequestModes
from kourou.broker.topics import Topics
from kourou.protocol import bodies
from kourou.protocol.codes import ResponseCode
from kourou.raft.storage import GROUP_TOPIC, RaftStorage
from kourou.store.backoff import Backoff
from kourou.store.errors import IllegalMessageError, StoreError
from kourou.store.metadata import ConsumerOffsets
from kourou.store.store import Store
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

E = TypeVar("E")

INTERVAL_MS: Final = 1_000
"""How often offsets and delay levels are written."""

AT_ONCE: Final = (TOPICS, GROUPS, MODES)
"""Tables whose changes are written at the end of the step; requests wait until they are committed."""

BYTES_MAX: Final = 256 * 1024
"""The most bytes of one record; less if the settings limit messages or segments to small sizes."""

WIDE: Final = 1_000
"""If an entry has more offsets than this, only the changed ones are written."""

WORK_IN_SLICE: Final = 2_000
"""The most entries and offsets that are examined in one slice."""

OFFSET_BYTES: Final = 28
"""The longest JSON text of a queue id and its offset."""

RECORDS_MAX: Final = 10_000
"""Records after which all tables are written again."""

PATIENCE_MS: Final = 3_000
"""How long a request waits until its change is committed."""

_NOT_COMMITTED = "the change is not committed yet, because a majority of the group does not have it: check it later"
_NOT_LEADER = "this broker no longer leads its group, so the change may be lost: check it, and repeat it if necessary"


class _PausedError(StoreError):
    """The leadership is being transferred to another member."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A request that waits until its change is committed."""

    due_ms: int
    done: Callable[[str | None], None]
    offset: int | None = None  # the end of the log after the change was written; None: not written yet

    def is_in(self, end: int) -> bool:
        return self.offset is not None and self.offset <= end


class _Job:
    """The slices that write one kind of tables."""

    def __init__(self, tables: tuple[str, ...], what: str) -> None:
        self.tables = tables
        self.is_running = False
        self.backoff = Backoff(log, what)


class TableWriter:
    """See the module's text."""

    def __init__(
        self,
        store: Store,
        storage: RaftStorage,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        delays: Delays,
        modes: RequestModes,
        persistence: Persistence,
        turns: Turns,
    ) -> None:
        self._store = store
        self._storage = storage
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._modes = modes
        self._persistence = persistence
        self._turns = turns
        self.leads = False
        self.is_paused = False  # the leadership is being transferred: nothing is written
        self._now_ms = 0
        self._seen: dict[str, int] = {}  # count of changes per table that are in the log or being written
        self._written: dict[str, dict[str, Any]] = {}  # the entries in the log since the last snapshot began
        self._before: dict[str, dict[str, Any]] = {}  # the same for the snapshot before the unfinished one
        self._first: int | None = None  # the first record of CHANGES of an unfinished snapshot
        self._at_once = _Job(AT_ONCE, "topics and consumer groups can't be written to the log of the Raft group")
        self._in_time = _Job((OFFSETS, DELAYS), "offsets or a snapshot can't be written to the log of the Raft group")
        self._next_ms = 0  # when offsets are written next
        self._since = 0  # records since the last snapshot
        self._segment = -1  # where the last snapshot was written
        self._waiting: list[_Waiter] = []
        topics.on_created = self.write_new_topic

    def write_new_topic(self, name: str, now_ms: int) -> None:
        """Write a topic before its first message is stored, so that each member with the message has the topic.

        Raises Refused.
        """
        if not self.leads or self.is_paused:
            return
        self._now_ms = now_ms
        self._written.setdefault(TOPICS, {})
        try:
            self._put_entries(TOPICS, [name])
        except (StoreError, IllegalMessageError, OSError) as error:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"topic {name} can't be written to the log of the Raft group: {error}"
            ) from None

    def lead(self, now_ms: int) -> None:
        """This broker leads from now on, and its tables are current: write them to the log."""
        self.leads = True
        self._now_ms = now_ms
        self._next_ms = now_ms + INTERVAL_MS
        self._written, self._before = {}, {}
        self._begin_snapshot()

    def follow(self) -> None:
        """This broker no longer leads. Its last changes may not be committed, so the log decides."""
        self.leads = False
        for job in (self._at_once, self._in_time):
            self._turns.drop(job)
            job.is_running = False
        self._first = None
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.done(_NOT_LEADER)

    def wait(self, now_ms: int, done: Callable[[str | None], None]) -> None:
        """Call `done(None)` when all changes so far are committed, or `done(reason)` if they are not."""
        if self.leads:
            self._waiting.append(_Waiter(now_ms + PATIENCE_MS, done))
        else:
            done(None)

    def committed(self, offset: int) -> bool:
        """The log is committed up to here. True: a request has waited for that."""
        if not self._waiting or not self._waiting[0].is_in(offset):
            return False
        ready = [waiter for waiter in self._waiting if waiter.is_in(offset)]
        self._waiting = [waiter for waiter in self._waiting if not waiter.is_in(offset)]
        for waiter in ready:
            waiter.done(None)
        return True

    def _changed(self, table: str) -> bool:
        return self._persistence.changes(table) != self._seen.get(table)

    def _note(self, table: str) -> None:
        self._seen[table] = self._persistence.changes(table)

    def write(self, now_ms: int) -> None:
        """Write the changes at the end of a leader's step. A failed write is retried later."""
        if not self.leads or self.is_paused:
            return
        self._now_ms = now_ms
        if not self._at_once.is_running:
            if not any(map(self._changed, AT_ONCE)):
                self._are_written(self._waiting)
            elif self._at_once.backoff.is_ready(now_ms):
                self._start(self._at_once, self._write_at_once())
        while self._waiting and self._waiting[0].due_ms <= now_ms:
            self._waiting.pop(0).done(_NOT_COMMITTED)
        if self._in_time.is_running or not self._in_time.backoff.is_ready(now_ms):
            return
        if self._since >= RECORDS_MAX or self._segment != self._segment_now:
            self._begin_snapshot()
        elif self._first is not None:
            self._start(self._in_time, self._write_all(self._first))
        elif now_ms >= self._next_ms and (self._changed(OFFSETS) or self._changed(DELAYS)):
            self._next_ms = now_ms + INTERVAL_MS
            self._start(self._in_time, self._write_progress())

    @property
    def _segment_now(self) -> int:
        return self._store.log.end // self._store.log.segments.file_size

    def _are_written(self, waiters: list["_Waiter"]) -> None:
        for waiter in waiters:
            if waiter.offset is None:
                waiter.offset = self._store.log.end

    def due_ms(self) -> int | None:
        """When `write` is due."""
        if not self.leads:
            return None
        times = [waiter.due_ms for waiter in self._waiting[:1]]
        if self.is_paused:
            return min(times, default=None)
        if not self._at_once.is_running and any(map(self._changed, AT_ONCE)):
            times.append(self._at_once.backoff.retry_ms)
        if not self._in_time.is_running:
            if self._first is not None:
                times.append(self._in_time.backoff.retry_ms)
            elif self._changed(OFFSETS) or self._changed(DELAYS):
                times.append(max(self._next_ms, self._in_time.backoff.retry_ms))
        return min(times, default=None)

    def _start(self, job: "_Job", work: Slices[None]) -> None:
        job.is_running = True
        self._turns.start(job, self._guarded(job, work))

    def _guarded(self, job: "_Job", work: Slices[None]) -> Slices[None]:
        try:
            yield from work
        except _PausedError:
            self._forget(job)
        except (StoreError, IllegalMessageError, OSError) as error:
            self._forget(job)
            job.backoff.failed(error, self._now_ms)
        else:
            job.backoff.succeeded()
        finally:
            job.is_running = False

    def _forget(self, job: "_Job") -> None:
        """The job did not finish: compare all its entries with `_written` next time."""
        for table in job.tables:
            self._seen.pop(table, None)

    def _put(self, table: str, content: bytes, gone: Iterable[str] = (), *, adds: bool = False) -> None:
        """Append a record. Raises StoreError, IllegalMessageError, OSError."""
        if self.is_paused:
            raise _PausedError("the leadership is being transferred to another member")
        head = msgspec.json.encode(Head(table, list(gone), adds))
        self._storage.write(CHANGES, head + b"\n" + content, self._now_ms)
        self._since += 1

    @property
    def _bytes_max(self) -> int:
        commit_log = self._store.log
        return max(min(BYTES_MAX, commit_log.max_body_size // 2, commit_log.segments.file_size // 4), 1)

    def _write_at_once(self) -> Slices[None]:
        """Write the entries of topics, groups and request modes that differ from those in the log."""
        covered = list(self._waiting)
        if self._changed(TOPICS):
            self._note(TOPICS)
            yield from self._write_table(TOPICS)
        if self._changed(GROUPS):
            self._note(GROUPS)
            yield from self._write_table(GROUPS)
        if self._changed(MODES):
            self._note(MODES)
            yield from self._write_modes()
        self._are_written(covered)

    def _write_modes(self) -> Slices[None]:
        """Write all request modes: the first record replaces them, the others are added to it."""
        modes = [(topic, group, mode) for topic, groups in self._modes.table.items() for group, mode in groups.items()]
        parts = list(_parts(modes, lambda one: 2 * len(one[0]) + 4 * len(one[1]) + 300, self._bytes_max)) or [[]]
        for number, part in enumerate(parts):
            table: dict[str, dict[str, bodies.SetMessageRequestModeRequestBody]] = {}
            for topic, group, mode in part:
                table.setdefault(topic, {})[group] = mode
            wrapper = bodies.MessageRequestModeSerializeWrapper(message_request_mode_map=table)
            self._put(MODES, wrapper.encode(), adds=number > 0)
            yield 0

    def _write_progress(self) -> Slices[None]:
        """Write the offsets and delay levels that differ from those in the log."""
        if self._changed(DELAYS):
            self._note(DELAYS)
            self._put(DELAYS, self._delays.wrapper().encode())
        if self._changed(OFFSETS):
            self._note(OFFSETS)
            yield from self._write_table(OFFSETS)

    # ── Tables of many entries ────────────────────────────────────────────────────────────────────────────────────

    def _names(self, table: str) -> Iterable[str]:
        if table == TOPICS:
            return self._topics.table
        return {**self._groups.table, **self._groups.forbidden} if table == GROUPS else self._offsets.table

    def _entry(self, table: str, name: str) -> Any:
        """The current content of an entry; None if it was deleted."""
        if table == TOPICS:
            return self._topics.table.get(name)
        if table == OFFSETS:
            return self._offsets.table.get(name)
        group, forbidden = self._groups.table.get(name), self._groups.forbidden.get(name)
        return None if group is None and forbidden is None else (group, forbidden)

    @staticmethod
    def _differs(table: str, entry: Any, written: Any) -> bool:
        if table == TOPICS or written is None:
            return entry is not written
        if table == OFFSETS:
            return bool(entry != written)
        return entry[0] is not written[0] or entry[1] != written[1]

    def _write_table(self, table: str) -> Slices[None]:
        """Write the entries that differ from those in the log, and the names of deleted ones."""
        written = self._written.setdefault(table, {})
        before = self._before.get(table, {})
        limit, some, size, work = self._bytes_max, list[str](), 0, 0
        for name in list(self._names(table)):
            entry = self._entry(table, name)
            work += 1 + (len(entry) if table == OFFSETS and entry is not None else 0)
            if entry is not None and self._differs(table, entry, written.get(name)):
                if table == OFFSETS and (len(entry) > WIDE or len(entry) * OFFSET_BYTES > limit):
                    yield from self._put_wide(name, limit)
                else:
                    bytes_ = _text_size(name, entry)
                    if some and (size + bytes_ > limit or len(some) >= ENTRIES_MAX):
                        self._put_entries(table, some)
                        some, size = [], 0
                    some.append(name)
                    size += bytes_
            if work >= WORK_IN_SLICE:
                work = 0
                yield 0
        if some:
            self._put_entries(table, some)
        gone: list[str] = []
        for number, name in enumerate([*written, *before], 1):
            if self._entry(table, name) is None:
                gone.append(name)
            if number % WORK_IN_SLICE == 0:
                yield 0
        for part in _parts(gone, lambda name: len(name) + 3, limit):
            part = [name for name in part if self._entry(table, name) is None]  # one may have been created again
            self._put(table, self._encode(table, ()), part)
            _drop(written, part)
            _drop(before, part)
            yield 0
        if table in AT_ONCE and not some and not gone:  # only the version may have changed
            self._put(table, self._encode(table, ()))

    def _put_entries(self, table: str, names: list[str]) -> None:
        """Write the current content of these entries."""
        content = self._encode(table, names)
        if len(content) > self._store.log.max_body_size - ENTRIES_MAX and len(names) > 1:  # an estimate was wrong
            self._put_entries(table, names[: len(names) // 2])
            self._put_entries(table, names[len(names) // 2 :])
            return
        self._put(table, content)
        for name in names:
            entry = self._entry(table, name)
            if entry is None:
                continue
            if table == OFFSETS:
                entry = dict(entry)
            elif table == GROUPS:
                entry = entry[0], None if entry[1] is None else dict(entry[1])
            self._written[table][name] = entry

    def _put_wide(self, name: str, limit: int) -> Slices[None]:
        """Write the changed offsets of an entry that has many, in several records."""
        now = dict(self._offsets.table[name])
        yield 0
        written = self._written[OFFSETS].get(name)
        others = self._before.get(OFFSETS, {}).get(name) if written is None else written
        has_lost = others is not None and not others.keys() <= now.keys()
        yield 0
        known = {} if written is None or has_lost else written
        changed = [item for item in now.items() if known.get(item[0]) != item[1]]
        yield 0
        count = max(min(WORK_IN_SLICE, limit // OFFSET_BYTES), 1)
        for at in range(0, len(changed), count):
            table = {name: dict(changed[at : at + count])}
            # If offsets were removed, the first record replaces the entry. Otherwise all records add to it, so that
            # the entry is never incomplete.
            self._put(OFFSETS, ConsumerOffsets(offset_table=table).encode(), adds=at > 0 or not has_lost)
            yield 0
        self._written[OFFSETS][name] = now

    def _encode(self, table: str, names: Iterable[str]) -> bytes:
        if table == TOPICS:
            topics = self._topics
            return bodies.TopicConfigSerializeWrapper(
                topic_config_table={name: topics.table[name] for name in names if name in topics.table},
                data_version=topics.version,
            ).encode()
        if table == OFFSETS:
            offsets = self._offsets.table
            return ConsumerOffsets(offset_table={name: offsets[name] for name in names if name in offsets}).encode()
        groups, names = self._groups, list(names)
        return bodies.SubscriptionGroupWrapper(
            subscription_group_table={name: groups.table[name] for name in names if name in groups.table},
            forbidden_table={name: groups.forbidden[name] for name in names if name in groups.forbidden},
            data_version=groups.version,
        ).encode()

    # ── Snapshots ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_snapshot(self) -> None:
        """Begin to write all tables; `write` continues a snapshot that was interrupted."""
        for table in (TOPICS, GROUPS, OFFSETS):
            self._before[table] = self._before.get(table, {}) | self._written.get(table, {})
            self._written[table] = {}
        self._segment = self._segment_now
        self._since = 0
        self._first = self._next_change()
        self._start(self._in_time, self._write_all(self._first))

    def _write_all(self, first: int) -> Slices[None]:
        """Write all tables; `write` takes care of entries that change meanwhile."""
        for table in (OFFSETS, DELAYS):
            self._note(table)
        for table in (TOPICS, GROUPS, OFFSETS):
            yield from self._write_table(table)
        self._put(DELAYS, self._delays.wrapper().encode())
        yield from self._write_modes()
        self._storage.write(SNAPSHOTS, b"%d" % first, self._now_ms)
        self._first = None
        self._before = {}

    def _next_change(self) -> int:
        """The queue offset of the next record of CHANGES."""
        return self._store.queues.ensure(GROUP_TOPIC, CHANGES).next_offset


def _parts(items: Iterable[E], size_of: Callable[[E], int], limit: int) -> Iterator[list[E]]:
    """The items in order, in lists of at most `limit` bytes, or of a single larger item."""
    part, size = list[E](), 0
    for item in items:
        one = size_of(item)
        if part and (size + one > limit or len(part) >= ENTRIES_MAX):
            yield part
            part, size = [], 0
        part.append(item)
        size += one
    if part:
        yield part


def _drop(table: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        table.pop(name, None)


def _text_size(name: str, entry: Any) -> int:
    """An upper estimate of the bytes of JSON of an entry."""
    size = 300 + 2 * len(name)
    if isinstance(entry, bodies.TopicConfig):
        return size + sum(len(key) + len(value) + 6 for key, value in entry.attributes.items())
    if isinstance(entry, dict):  # offsets
        return size + OFFSET_BYTES * len(entry)
    group, forbidden = entry
    if group is not None:
        size += 300 + sum(len(key) + len(str(value)) + 6 for key, value in (group.attributes or {}).items())
    return size + sum(2 * len(topic) + 15 for topic in forbidden or ())
