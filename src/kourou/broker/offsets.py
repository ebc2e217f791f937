"""The consumer offsets of groups: `topic@group`, then queue id, then offset.

A lower commit overwrites a higher one, as with Apache: consumers go back on purpose. An offset that an operator resets
is kept apart until the group's next pull of that queue gets it; commits that were in flight are ignored until then.

How many offsets there may be is limited (maxConsumerOffsets). The limit counts those that are there, consumed and
pulled; a table that was loaded may have more, and then no new ones are added.

Java: ConsumerOffsetManager.
"""

import logging
from collections.abc import Callable, Iterable, Mapping

from kourou.protocol.bodies import DataVersion
from kourou.store.metadata import ConsumerOffsets, OffsetTable
from kourou.turns import Slices

log = logging.getLogger(__name__)


NAMES_IN_SLICE = 500
"""Entries of the table that are removed before others have their turn."""

OFFSETS_IN_SLICE = 50_000
"""The same in offsets, if entries have many."""

OFFSETS_OF_NAME = OFFSETS_IN_SLICE // NAMES_IN_SLICE
"""Removing an entry takes as long as removing this number of offsets."""


class Offsets:
    """The offsets of all groups of one broker."""

    def __init__(
        self,
        kept: ConsumerOffsets | None,
        touch: Callable[[], None],
        count_max: Callable[[], int] = lambda: 2**63 - 1,
    ) -> None:
        self._touch = touch
        self._count_max = count_max
        self.table: OffsetTable = {} if kept is None else {name: dict(q) for name, q in kept.offset_table.items()}
        self.pulled: OffsetTable = {} if kept is None else {name: dict(q) for name, q in kept.pull_offset_table.items()}
        self.version = DataVersion() if kept is None else kept.data_version
        self._reset: dict[str, dict[int, int]] = {}  # not yet sent to the group
        self.committed_here: set[tuple[str, int]] | None = None
        """On a slave: offsets that groups have committed to it, and that the master may lack. None: not recorded."""
        self.count = sum(map(len, self.table.values())) + sum(map(len, self.pulled.values()))
        self._consumed_names = _Names(self.table)
        self._pulled_names = _Names(self.pulled)

    def wrapper(self) -> ConsumerOffsets:
        return ConsumerOffsets(offset_table=self.table, pull_offset_table=self.pulled, data_version=self.version)

    # ── Looking up ────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """-1: there is none. A pending reset counts."""
        name = f"{topic}@{group}"
        reset = self._reset.get(name)
        if reset is not None and queue_id in reset:
            return reset[queue_id]
        return self.table.get(name, {}).get(queue_id, -1)

    def of_topic(self, group: str, topic: str) -> dict[int, int]:
        """Offsets by queue."""
        return self.table.get(f"{topic}@{group}", {})

    def topics_of(self, group: str) -> set[str]:
        """Topics of which a group has consumed something."""
        return set(self._consumed_names.topics.get(group, ()))

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have consumed something of a topic."""
        return set(self._consumed_names.groups.get(topic, ()))

    @property
    def room(self) -> int:
        """How many more offsets there may be."""
        return max(self._count_max() - self.count, 0)

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """A group has consumed a queue up to here. False: it is a new offset, and there are too many."""
        name = f"{topic}@{group}"
        queues = self.table.get(name)
        before = None if queues is None else queues.get(queue_id)
        if before == offset:
            return True
        if before is None:
            if self.count >= self._count_max():
                return False
            self.count += 1
            if queues is None:
                queues = self._new(name)
        assert queues is not None
        queues[queue_id] = offset
        if self.committed_here is not None:
            self.committed_here.add((name, queue_id))
        self._touch()
        return True

    def pulled_to(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group has asked for a queue's messages up to here. Beyond the limit, this is not noted for new queues."""
        name = f"{topic}@{group}"
        queues = self.pulled.get(name)
        if queues is None or queue_id not in queues:
            if self.count >= self._count_max():
                return
            self.count += 1
            if queues is None:
                queues = self.pulled[name] = {}
                self._pulled_names.add(name)
        queues[queue_id] = offset

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """An operator sets offsets; the next pull of each queue will be told."""
        name = f"{topic}@{group}"
        self._reset.setdefault(name, {}).update(offsets)
        self._update(name, offsets)

    def copy(self, from_group: str, to_group: str, topic: str) -> None:
        """One group continues at the offsets of another."""
        name = f"{topic}@{to_group}"
        self.count -= len(self.table.get(name, ()))
        self.table.get(name, {}).clear()
        self._update(name, self.table.get(f"{topic}@{from_group}", {}))

    def add(self, name: str, offsets: Mapping[int, int]) -> None:
        """A follower takes over some queues of `topic@group` from its leader."""
        self._update(name, offsets)

    def _update(self, name: str, offsets: Mapping[int, int]) -> None:
        queues = self.table.get(name)
        if queues is None:
            queues = self._new(name)
        self.count -= len(queues)
        queues.update(offsets)
        self.count += len(queues)
        self._touch()

    def _new(self, name: str) -> dict[int, int]:
        queues = self.table[name] = {}
        self._consumed_names.add(name)
        return queues

    @property
    def has_resets(self) -> bool:
        """Are there offsets that an operator has reset, and that were not sent to the group yet?"""
        return bool(self._reset)

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._reset) and queue_id in self._reset.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The pending reset of a group, which is sent to it now."""
        if not self._reset:
            return None
        name = f"{topic}@{group}"
        queues = self._reset.get(name)
        if queues is None:
            return None
        offset = queues.pop(queue_id, None)
        if not queues:
            del self._reset[name]
        return offset

    def adopt(self, table: OffsetTable) -> Slices[None]:
        """A slave takes over its master's offsets, all of them and no others."""
        changed = False
        for number, (name, queues) in enumerate(table.items(), 1):
            there = self.table.get(name)
            if there != queues:
                changed = True
                self.count += len(queues) - (0 if there is None else len(there))
                if there is None:
                    self._new(name)
                self.table[name] = queues
            if number % NAMES_IN_SLICE == 0:
                yield 0
        gone = [name for name in self.table if name not in table]
        for number, name in enumerate(gone, 1):
            self.count -= len(self.table.pop(name, ()))
            self._consumed_names.remove(name)
            if number % NAMES_IN_SLICE == 0:
                yield 0
        if changed or gone:
            self._touch()

    def merge(self, table: OffsetTable, gone: Iterable[str]) -> None:
        """A follower takes over some offsets of its leader, and drops others."""
        for name, queues in table.items():
            there = self.table.get(name)
            self.count += len(queues) - (0 if there is None else len(there))
            if there is None:
                self._new(name)
            self.table[name] = dict(queues)
        for name in gone:
            self.count -= len(self.table.pop(name, ()))
            self._consumed_names.remove(name)
        self._touch()

    def keep_within(self, end_of: Callable[[str, int], int | None]) -> None:
        """A crash took messages that were consumed already: groups continue where the queues end now.

        Otherwise they would pass over the messages that take those places.
        """
        for name, queues in self.table.items():
            topic = name.partition("@")[0]
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and offset > end:
                    log.warning("%s queue %d: committed to %d, but the queue ends at %d", name, queue_id, offset, end)
                    queues[queue_id] = end
                    self._touch()

    def remove_group(self, group: str) -> Slices[None]:
        """All offsets of a group."""
        for topics in [list(index.topics.get(group, ())) for index in self._indexes]:
            yield from self._remove(topics, lambda topic: f"{topic}@{group}")

    def remove_topic(self, topic: str) -> Slices[None]:
        """All offsets in a topic."""
        for groups in [list(index.groups.get(topic, ())) for index in self._indexes]:
            yield from self._remove(groups, lambda group: f"{topic}@{group}")

    @property
    def _indexes(self) -> "tuple[_Names, _Names]":
        return self._consumed_names, self._pulled_names

    def _remove(self, parts: list[str], name_of: Callable[[str], str]) -> Slices[None]:
        left = OFFSETS_IN_SLICE
        for part in parts:
            name = name_of(part)
            gone = len(self.table.pop(name, ())) + len(self.pulled.pop(name, ()))
            self.count -= gone
            self._reset.pop(name, None)
            for index in self._indexes:
                index.remove(name)
            left -= OFFSETS_OF_NAME + gone
            if left <= 0:
                left = OFFSETS_IN_SLICE
                yield 0
        self._touch()


class _Names:
    """The names `topic@group` of a table by their parts, so that no search of the whole table is needed."""

    def __init__(self, names: Iterable[str]) -> None:
        self.topics: dict[str, set[str]] = {}  # by group
        self.groups: dict[str, set[str]] = {}  # by topic
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        topic, _, group = name.partition("@")
        self.topics.setdefault(group, set()).add(topic)
        self.groups.setdefault(topic, set()).add(group)

    def remove(self, name: str) -> None:
        topic, _, group = name.partition("@")
        for index, key, value in ((self.topics, group, topic), (self.groups, topic, group)):
            values = index.get(key)
            if values is not None:
                values.discard(value)
                if not values:
                    del index[key]
