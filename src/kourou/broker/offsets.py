"""How far groups have consumed: `topic@group`, then queue id, then offset.

A lower commit overwrites a higher one, as with Apache: consumers go back on purpose. An offset that an operator resets
is kept apart until the group's next pull of that queue has learned of it; commits that were on their way are ignored
until then.

Java: ConsumerOffsetManager.
"""

import logging
from collections.abc import Callable

from kourou.protocol.bodies import DataVersion
from kourou.store.metadata import ConsumerOffsets, OffsetTable

log = logging.getLogger(__name__)


class Offsets:
    """The offsets of all groups of one broker."""

    def __init__(self, kept: ConsumerOffsets | None, touch: Callable[[], None]) -> None:
        self._touch = touch
        self.table: OffsetTable = {} if kept is None else {name: dict(q) for name, q in kept.offset_table.items()}
        self.pulled: OffsetTable = {} if kept is None else {name: dict(q) for name, q in kept.pull_offset_table.items()}
        self.version = DataVersion() if kept is None else kept.data_version
        self._reset: dict[str, dict[int, int]] = {}  # not yet told to the group

    def wrapper(self) -> ConsumerOffsets:
        return ConsumerOffsets(offset_table=self.table, pull_offset_table=self.pulled, data_version=self.version)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group has consumed a queue up to here."""
        queues = self.table.setdefault(f"{topic}@{group}", {})
        if queues.get(queue_id) != offset:
            queues[queue_id] = offset
            self._touch()

    def pulled_to(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """A group has asked for a queue's messages up to here."""
        queues = self.pulled.get(f"{topic}@{group}")
        if queues is None:
            queues = self.pulled[f"{topic}@{group}"] = {}
        queues[queue_id] = offset

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """-1: nothing is known. A pending reset counts."""
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
        suffix = f"@{group}"
        return {name[: -len(suffix)] for name in self.table if name.endswith(suffix) and name.count("@") == 1}

    def groups_of(self, topic: str) -> set[str]:
        """Groups that have consumed something of a topic."""
        prefix = f"{topic}@"
        return {name[len(prefix) :] for name in self.table if name.startswith(prefix)}

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator sets an offset; the next pull of the queue will be told."""
        name = f"{topic}@{group}"
        self._reset.setdefault(name, {})[queue_id] = offset
        self.table.setdefault(name, {})[queue_id] = offset
        self._touch()

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        return bool(self._reset) and queue_id in self._reset.get(f"{topic}@{group}", ())

    def take_reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """A reset that the group does not know of yet: it does now."""
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

    def keep_within(self, end_of: Callable[[str, int], int | None]) -> None:
        """A crash took messages that were consumed already: groups go on where the queues end now.

        Otherwise they would pass over the messages that take those places.
        """
        for name, queues in self.table.items():
            topic = name.partition("@")[0]
            for queue_id, offset in queues.items():
                end = end_of(topic, queue_id)
                if end is not None and offset > end:
                    log.warning("%s queue %d: committed to %d, and the queue ends at %d", name, queue_id, offset, end)
                    queues[queue_id] = end
                    self._touch()

    def copy(self, from_group: str, to_group: str, topic: str) -> None:
        """One group goes on where another one is."""
        self.table[f"{topic}@{to_group}"] = dict(self.table.get(f"{topic}@{from_group}", {}))
        self._touch()

    def remove_group(self, group: str) -> None:
        self._remove(lambda name: name.endswith(f"@{group}"))

    def remove_topic(self, topic: str) -> None:
        self._remove(lambda name: name.startswith(f"{topic}@"))

    def _remove(self, unwanted: Callable[[str], bool]) -> None:
        for table in (self.table, self.pulled, self._reset):
            for name in [name for name in table if unwanted(name)]:
                del table[name]
        self._touch()
