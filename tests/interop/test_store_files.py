"""One directory of store files, Apache's broker and our store in turns: each finds all that the other wrote.

In its turn a side opens the directory, reads every message in every way, checks it against the ledger, writes more,
and ends: it stops, or it is killed while it writes. Each key leads to its message exactly once.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.waiting import wait_for

from . import our_store
from .apache_store import StoreClient, complaints, index_ends, keys_lost
from .ledger import Ledger, QueueSeen
from .letters import ALL_TOPICS, parcels
from .mqadmin import MqAdmin
from .processes import Talker
from .servers import ApacheBroker, ApacheNameServer, NameServer
from .worlds import needed

pytestmark = pytest.mark.interop

FIRST_COUNT, COUNT = 2_500, 400
DYING_COUNT = 60

STOP, KILL = "stop", "kill"

REPOSITORY = Path(__file__).parents[2]


class Directory:
    """Store files that change hands."""

    def __init__(self, home: Path, name_server: NameServer, admin: MqAdmin, at_end: ExitStack) -> None:
        self.home = home
        self.root = home / "broker" / "store"
        self.ledger = Ledger()
        self._name_server = name_server
        self._admin = admin
        self._at_end = at_end
        self._turn = 0
        self._killed_itself = False  # the last to write was Apache's broker, and it was killed
        self._keys_lost: list[range] = []  # stretches of the log
        self._offset = 0  # of the group, as the last side that ended well has left it
        with needed():
            self._broker = ApacheBroker(
                home / "broker", "broker-s", name_server.address, our_store.APACHE_SETTINGS, start=False
            )
        self._client: StoreClient | None = None

    def _next_count(self) -> int:
        self._turn += 1
        return FIRST_COUNT if self._turn == 1 else COUNT

    # ── Apache's turn ─────────────────────────────────────────────────────────────────────────────────────────────

    def apache(self, end: str) -> None:
        count, broker = self._next_count(), self._broker
        index = index_ends(self.root)
        broker.restart()
        self._at_end.callback(broker.process.kill)
        broker.wait_registered(self._name_server.address)
        client = self._reach(broker)
        if self._turn == 1:
            for topic, queues in ALL_TOPICS.items():
                client.ask("topic", topic, queues)
            client.ask("group", our_store.GROUP)
        else:
            queues_seen = self._wait_delivered(client)
            self.ledger.check(queues_seen)
            self._keys_lost.append(keys_lost(broker, index))
            client.check_all_ways(queues_seen, self._keys_lost)
            assert client.ask("committed", our_store.GROUP, our_store.GROUP_TOPIC, 0) == self._offset
        for parcel in parcels(self._turn, count, long_topic=False):
            client.send(self.ledger, parcel)
        if end == STOP:
            self._wait_delivered(client)
            self._offset += 1
            client.ask("commit", our_store.GROUP, our_store.GROUP_TOPIC, 0, self._offset)
            broker.terminate()
            broker.process.wait_end(90)
        else:
            client.send_while_dying(self.ledger, parcels(self._turn + 1000, DYING_COUNT, long_topic=False), broker)
        assert complaints(broker, empty=self._turn == 1, killed=self._killed_itself) == []
        self._killed_itself = end == KILL

    def _reach(self, broker: ApacheBroker) -> StoreClient:
        if self._client is None:
            self._client = StoreClient(self._name_server.address, broker, self.home / "client")
            self._at_end.callback(self._client.stop)
        return self._client

    def _wait_delivered(self, client: StoreClient) -> dict[tuple[str, int], QueueSeen]:
        """Until delayed messages whose time has come are in their queues: everything as it is then."""

        def look() -> dict[tuple[str, int], QueueSeen] | None:
            seen = client.read_all()
            return None if self.ledger.undelivered(seen) else seen

        return wait_for("delayed messages", look, 60)

    # ── Our turn ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ours(self, end: str) -> None:
        count = self._next_count()
        self.root.mkdir(parents=True, exist_ok=True)
        our_store.add_topics(self.root)
        our_store.add_group(self.root)
        if self._turn > 1:
            our_store.check_config(self.root)
        address = self._broker.address
        with our_store.opened(self.root, address) as store:
            assert store.report.damage == []
            queues = our_store.read_all(store)
            self.ledger.check(queues)
            our_store.check_all_ways(store, queues, self._keys_lost)
            if end == STOP:
                our_store.write(store, self.ledger, self._turn, count)
        assert our_store.doubled_entries(self.root) == []
        if end == KILL:
            self._write_and_die(count)
        self._killed_itself = False  # and what we leave when we are killed is never half a record
        self._offset += 1
        our_store.commit_offset(self.root, self._offset)

    def rebuild_apart(self) -> None:
        """From the log alone, we make the queues that the broker has made, to the byte; and the same index entries."""
        apart = self.home / "rebuilt"
        shutil.copytree(self.root, apart, ignore=shutil.ignore_patterns("consumequeue", "index"))
        with our_store.opened(apart, self._broker.address, our_store.SETTINGS) as store:
            assert store.report.rebuilt
        theirs, ours = (
            {
                file.relative_to(root): file.read_bytes()
                for file in (root / "consumequeue").rglob("0*")
                if file.is_file()
            }
            for root in (self.root, apart)
        )
        assert ours == theirs
        # The broker begins index files at other moments, but enters the same.
        assert our_store.index_entries(apart) == our_store.index_entries(self.root)

    def _write_and_die(self, count: int) -> None:
        """In a process of its own, of which only the output is known."""
        arguments = [str(self.root), self._broker.address, str(self._turn), str(count)]
        command = [sys.executable, "-m", "tests.interop.our_store", *arguments]
        child = Talker(command, self.home / "ours", {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])})
        planned = parcels(self._turn, count, long_topic=True)
        try:
            for number, parcel in enumerate(planned):
                self.ledger.begun(parcel)
                if number < len(planned) * 3 // 4:
                    self.ledger.acknowledged(parcel, *json.loads(child.line()))
        finally:
            child.stop()


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    with needed():
        server = ApacheNameServer(tmp_path_factory.mktemp("namesrv"))
    yield server
    server.kill()


@pytest.fixture
def directory(tmp_path: Path, name_server: NameServer, mqadmin: MqAdmin) -> Iterator[Directory]:
    with ExitStack() as at_end:
        yield Directory(tmp_path, name_server, mqadmin, at_end)


@pytest.mark.parametrize("end", [STOP, KILL])
def test_apache_begins(directory: Directory, end: str) -> None:
    directory.apache(end)
    if end == STOP:  # or the last messages have no entries yet
        directory.rebuild_apart()
    directory.ours(end)
    directory.apache(KILL)


@pytest.mark.parametrize("end", [STOP, KILL])
def test_we_begin(directory: Directory, end: str) -> None:
    directory.ours(end)
    directory.apache(KILL)
    directory.ours(KILL)
    directory.apache(end)
    directory.ours(STOP)
