"""How a member that does not lead reads the tables of its Raft group from the log.

    a change has become visible ─▶ its entries are applied to the tables

    after the start, the loss of the leadership or a cut of the log ─▶ the last snapshot and all changes since it began
    are read into new tables ─▶ the new tables replace the current ones

This is done in slices (`kourou.turns`): requests are served between them, and the length of a slice does not depend on
the size of the tables.

When the first segment of the log is removed, the log may begin in the middle of a snapshot, which then lacks entries:
the remaining changes are applied one by one, and the next snapshot replaces everything. A read that fails is retried.
"""

import logging
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from kourou.broker.delays import DelayOffsets, Delays
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.request_modes import RequestModes
from kourou.broker.topics import Topics
from kourou.protocol import bodies
from kourou.protocol.errors import BodyError
from kourou.protocol.record import decode_record
from kourou.raft.storage import GROUP_TOPIC
from kourou.store.backoff import Backoff
from kourou.store.errors import StoreError
from kourou.store.metadata import ConsumerOffsets, OffsetTable
from kourou.store.store import Store
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

CHANGES: Final = 1
SNAPSHOTS: Final = 2
"""The queues of `GROUP_TOPIC`: see raft_tables.py."""

TOPICS, GROUPS, OFFSETS, DELAYS, MODES = "topics", "groups", "offsets", "delays", "request modes"
"""The names of the tables, the same as in `Persistence`."""

ENTRIES_MAX: Final = 500
"""The most entries in one record, and the most entries applied in one slice."""


class Head(msgspec.Struct, omit_defaults=True):
    """The first line of a change."""

    table: str
    gone: list[str] = []
    adds: bool = False  # the content is merged into existing entries, instead of replacing them


class _Tables:
    """The tables that result from the records since the beginning of a snapshot."""

    def __init__(self) -> None:
        self.topics: dict[str, bodies.TopicConfig] = {}
        self.topics_version = bodies.DataVersion()
        self.groups: dict[str, bodies.SubscriptionGroupConfig] = {}
        self.forbidden: dict[str, dict[str, int]] = {}
        self.groups_version = bodies.DataVersion()
        self.offsets: OffsetTable = {}
        self.delays: DelayOffsets | None = None
        self.modes: bodies.MessageRequestModeSerializeWrapper | None = None

    def apply(self, head: Head, content: bytes) -> None:
        """Raises BodyError."""
        if head.table == TOPICS:
            topics = bodies.TopicConfigSerializeWrapper.decode(content, trusted=True)
            self.topics |= topics.topic_config_table
            self.topics_version = topics.data_version
            _drop(self.topics, head.gone)
        elif head.table == GROUPS:
            groups = bodies.SubscriptionGroupWrapper.decode(content, trusted=True)
            _drop(self.forbidden, groups.subscription_group_table)
            self.groups |= groups.subscription_group_table
            self.forbidden |= groups.forbidden_table
            self.groups_version = groups.data_version
            _drop(self.groups, head.gone)
            _drop(self.forbidden, head.gone)
        elif head.table == OFFSETS:
            offsets = ConsumerOffsets.decode(content, trusted=True).offset_table
            if head.adds:
                for name, queues in offsets.items():
                    self.offsets.setdefault(name, {}).update(queues)
            else:
                self.offsets |= offsets
            _drop(self.offsets, head.gone)
        elif head.table == DELAYS:
            self.delays = DelayOffsets.decode(content, trusted=True)
        elif head.table == MODES:
            modes = bodies.MessageRequestModeSerializeWrapper.decode(content, trusted=True)
            if not head.adds or self.modes is None:
                self.modes = modes
            else:
                for topic, of_groups in modes.message_request_mode_map.items():
                    self.modes.message_request_mode_map.setdefault(topic, {}).update(of_groups)


def _drop(table: dict[str, Any], names: Iterable[str]) -> None:
    for name in names:
        table.pop(name, None)


class TableReader:
    """See the module's text."""

    def __init__(
        self,
        store: Store,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        delays: Delays,
        modes: RequestModes,
        turns: Turns,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._modes = modes
        self._turns = turns
        self._next: int | None = None  # the next record of CHANGES; None: read the last snapshot first
        self._fresh: _Tables | None = None  # being read
        self._snapshots = 0  # where the queue of snapshots ended when reading began
        self._is_whole = False  # the tables are based on a complete snapshot
        self._is_reading = False  # slices are running
        self._trouble = Backoff(log, "the tables can't be read from the log of the group")
        self._now_ms = 0

    def forget(self) -> None:
        """The tables may differ from those of the group: start over with the last snapshot."""
        self._turns.drop(self)
        self._is_reading = False  # a dropped generator that never ran does not reset it
        self._next = self._fresh = None

    @property
    def is_current(self) -> bool:
        """Do the tables reflect all visible records?"""
        return self._next is not None and self._fresh is None and not self._is_reading and not self._is_behind()

    @property
    def is_whole(self) -> bool:
        """Have all tables been read since the start? They may lack the latest changes."""
        return self._next is not None and self._fresh is None

    def due_ms(self) -> int | None:
        """When a failed `read` is retried."""
        return self._trouble.retry_ms if self._trouble.failures and not self._is_reading else None

    def read(self, now_ms: int) -> None:
        """Start to apply the records that have become visible, in slices; `is_current` becomes true at the end."""
        self._now_ms = now_ms
        if not self._is_reading and self._trouble.is_ready(now_ms) and not self.is_current:
            self._is_reading = True
            self._turns.start(self, self._guarded())

    def _guarded(self) -> Slices[None]:
        try:
            yield from self._read()
            self._trouble.succeeded()
        except Exception as error:
            self._trouble.failed(error, self._now_ms)
            if not isinstance(error, StoreError | OSError):
                raise
        finally:
            self._is_reading = False

    def _ends(self, queue_id: int) -> tuple[int, int]:
        return self._store.reader.offsets(GROUP_TOPIC, queue_id)

    def _is_behind(self) -> bool:
        return self._next != self._ends(CHANGES)[1] or self._has_to_begin()

    def _has_to_begin(self) -> bool:
        """Is the next record missing from the log, or is there a new snapshot that may complete the tables?"""
        start, end = self._ends(CHANGES)
        if self._next is None or not start <= self._next <= end:
            return True
        return not self._is_whole and self._ends(SNAPSHOTS)[1] > self._snapshots

    def _read(self) -> Slices[None]:
        """Raises StoreError, OSError."""
        while True:
            if self._has_to_begin():
                self._begin()
            assert self._next is not None
            if self._next < self._ends(CHANGES)[1]:
                self._next, body = self._record(CHANGES, self._next)
                yield from self._apply(body)
            elif self._fresh is not None:
                yield from self._become(self._fresh)
                self._fresh = None
            else:
                return
            yield 0

    def _begin(self) -> None:
        start, end = self._ends(CHANGES)
        first, last = self._ends(SNAPSHOTS)
        self._next, self._fresh, self._snapshots = start, None, last
        if last > first:
            begun = int(self._record(SNAPSHOTS, last - 1)[1])
            if start <= begun <= end:
                self._next, self._fresh = begun, _Tables()
        self._is_whole = self._fresh is not None

    def _record(self, queue_id: int, number: int) -> tuple[int, bytes]:
        """The first record from this number on: the number of the next one, and its body. Raises StoreError."""
        result = self._store.reader.get(GROUP_TOPIC, queue_id, number, 1)
        if not result.records:
            raise StoreError(f"record {number} of {GROUP_TOPIC} can't be read: {result.status.name}")
        message = decode_record(result.records[0])
        return message.queue_offset + 1, bytes(message.body)

    def _apply(self, body: bytes) -> Slices[None]:
        head_text, _, content = body.partition(b"\n")
        try:
            head = msgspec.json.decode(head_text, type=Head)
            if self._fresh is not None:
                self._fresh.apply(head, content)
            else:
                changed = _Tables()
                if head.adds and head.table == MODES:
                    table = {topic: dict(modes) for topic, modes in self._modes.table.items()}
                    changed.modes = bodies.MessageRequestModeSerializeWrapper(message_request_mode_map=table)
                changed.apply(Head(head.table, adds=head.adds), content)
                yield 0
                self._merge(head, changed)
        except (msgspec.DecodeError, BodyError) as error:  # a newer version wrote it
            log.error("skipped a change of tables in the log of the group that can't be decoded: %s", error)

    def _merge(self, head: Head, changed: _Tables) -> None:
        """Apply the entries of one record."""
        if head.table == TOPICS:
            self._topics.merge(changed.topics, head.gone, changed.topics_version)
        elif head.table == GROUPS:
            self._groups.merge(changed.groups, changed.forbidden, head.gone, changed.groups_version)
        elif head.table == OFFSETS and head.adds:
            for name, queues in changed.offsets.items():
                self._offsets.add(name, queues)
        elif head.table == OFFSETS:
            self._offsets.merge(changed.offsets, head.gone)
        self._take_small(changed)

    def _take_small(self, tables: _Tables) -> None:
        if tables.delays is not None:
            self._delays.adopt(tables.delays)
        if tables.modes is not None:
            self._modes.adopt(tables.modes)

    def _become(self, tables: _Tables) -> Slices[None]:
        """Replace the tables with these."""
        yield from self._topics.adopt(tables.topics, tables.topics_version)
        yield from self._groups.adopt(tables.groups, tables.forbidden, tables.groups_version)
        yield from self._offsets.adopt(tables.offsets)
        self._take_small(tables)
        log.info(
            "read the tables from the log of the group topics=%d groups=%d offsets=%d",
            len(tables.topics),
            len(tables.groups),
            len(tables.offsets),
        )
