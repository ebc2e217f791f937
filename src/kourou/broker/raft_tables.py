"""Tables in the log of a Raft group: topics, groups, offsets, delay levels and request modes.

    leader      a table has changed ─▶ a record with the changed entries ─▶ committed ─▶ the request is answered
    follower    the record is committed, and so visible ─▶ its entries are applied

The records are those of `GROUP_TOPIC`, in two queues:

    CHANGES      a line of JSON, which names the table and its deleted entries; then the entries, as in their file.
                 An entry with many offsets is split into several records (`adds`)
    SNAPSHOTS    a number: the offset in the queue CHANGES at which a complete snapshot of all tables begins

A leader (`TableWriter`) writes all its tables when its term begins, after many further records, and in each new segment
of the log, so that the log always has all entries even after old segments are removed. Records are applied in the order
of the log, and applying an entry twice does no harm, so entries need no version.

A leader changes its tables before the change is committed. When a broker loses the leadership, and when it starts, it
discards its tables and reads them again from the last committed snapshot.

Consumer offsets and delay levels are written once a second if they have changed: after a failover, consumers may
receive the messages of the last second again.
"""

from kourou.broker.delays import Delays
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.persistence import Persistence
from kourou.broker.raft_reading import TableReader
from kourou.broker.raft_table_writer import TableWriter
from kourou.broker.request_modes import RequestModes
from kourou.broker.topics import Topics
from kourou.raft.storage import RaftStorage
from kourou.store.store import Store
from kourou.turns import Turns


class RaftTables:
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
        self.writer = TableWriter(store, storage, topics, groups, offsets, delays, modes, persistence, turns)
        self._reader = TableReader(store, topics, groups, offsets, delays, modes, turns)

    def lead(self, now_ms: int) -> None:
        """This broker leads from now on, and its tables are current: write them to the log."""
        self.writer.lead(now_ms)

    def follow(self) -> None:
        """This broker no longer leads. Its last changes may not be committed, so the log decides."""
        self._reader.forget()
        self.writer.follow()

    def due_ms(self) -> int | None:
        """When something is to be written or read."""
        return self.writer.due_ms() if self.writer.leads else self._reader.due_ms()

    @property
    def is_current(self) -> bool:
        """Do the tables reflect all visible records?"""
        return self.writer.leads or self._reader.is_current

    @property
    def is_whole(self) -> bool:
        """Are the tables those of the group, except for the latest changes? Not after a start, until they are read."""
        return self.writer.leads or self._reader.is_whole

    def read(self, now_ms: int) -> None:
        """Unless this broker leads, apply the records that have become visible, in slices."""
        if not self.writer.leads:
            self._reader.read(now_ms)

    def log_was_cut(self) -> None:
        """Records were cut from the log, or its beginning has changed."""
        self._reader.forget()
