"""Forged peers on the HA port: they acknowledge nothing, cost little, and leave one line in the log for each cause."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import wait_for

from kourou.protocol.codes import ResponseCode
from kourou.replication.frames import HEADER_SIZE, encode_report

from .broker_target import BrokerTarget, pull_command, send_command
from .target import MIB, PATIENCE, Peer

SYNC = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2", "slaveTimeout=300")


class Master(BrokerTarget):
    """A master that waits for a slave which it never gets."""

    def __init__(self, folder: Path, *settings: str) -> None:
        super().__init__(folder, *settings)
        self.ha_host, _, port = self.told["ha"].rpartition(":")
        self.ha_port = int(port)
        self.sent = 0

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ha_port), PATIENCE)

    def acknowledges_nothing(self) -> None:
        """A send times out, and consumers do not see its message."""
        with Peer(self.port) as peer:
            sent = peer.ask(send_command("orders", b"never acknowledged"))
            assert sent.code == ResponseCode.FLUSH_SLAVE_TIMEOUT, sent
            self.sent += 1
            found = peer.ask(pull_command("orders"))
            assert found.code == ResponseCode.PULL_NOT_FOUND, found

    def refused(self, cause: str) -> list[str]:
        return [
            line for line in self.log.splitlines() if "refused a connection to the HA port" in line and cause in line
        ]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Master]:
    master = Master(tmp_path_factory.mktemp("ha"), *SYNC)
    yield master
    assert master.stop() == 0, master.log[-4000:]


@pytest.fixture
def master(process: Master) -> Iterator[Master]:
    yield process
    process.acknowledges_nothing()
    assert "Traceback" not in process.log


def until_closed(peer: socket.socket) -> bytes:
    """All bytes until the master ends the connection."""
    data = b""
    with contextlib.suppress(ConnectionError):
        while more := peer.recv(1 << 16):
            data += more
    return data


def read(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        assert more
        data += more
    return data


def test_it_listens_on_loopback_until_a_host_is_given(master: Master) -> None:
    assert master.ha_host == "127.0.0.1"
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = {
        fields[1] for fields in table if fields[3] == "0A" and int(fields[1].partition(":")[2], 16) == master.ha_port
    }
    assert local == {f"0100007F:{master.ha_port:04X}"}
    with contextlib.suppress(FileNotFoundError):
        everywhere = [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
        assert not [f for f in everywhere if f[3] == "0A" and int(f[1].rpartition(":")[2], 16) == master.ha_port]


def test_random_bytes(master: Master) -> None:
    for seed in range(200):
        random_bytes = random.Random(seed)
        with master.connect() as peer:
            with contextlib.suppress(ConnectionError):
                peer.sendall(random_bytes.randbytes(random_bytes.randrange(8, 5_000)))
            peer.shutdown(socket.SHUT_WR)
            until_closed(peer)
    assert 1 <= len(master.refused("")) <= 5  # a line for each cause, not for each connection


def test_a_slave_that_is_ahead_of_its_master(master: Master) -> None:
    master.acknowledges_nothing()
    for offset in (2**62, 2**63 - 1, 1 << 40):
        with master.connect() as peer:
            peer.sendall(encode_report(offset))
            assert until_closed(peer) == b""
    assert len(master.refused("this master's log ends at")) == 1


def test_a_slave_that_claims_what_it_was_not_sent(master: Master) -> None:
    master.acknowledges_nothing()
    for claim in (1, 1_000_000, -(2**63)):
        with master.connect() as peer:
            peer.sendall(encode_report(0))
            offset, size = struct.unpack(">qi", read(peer, HEADER_SIZE))
            assert offset == 0
            assert size > 0
            peer.sendall(encode_report(claim if claim < 0 else 2**50 + claim))
            until_closed(peer)
    assert len(master.refused("but was sent it only up to")) == 1


def test_offsets_that_were_sent_to_one_connection_count_for_no_other(master: Master) -> None:
    """The first report of a peer may be the earlier end of the log; later records were not sent to any slave."""
    master.acknowledges_nothing()
    with master.connect() as peer:
        peer.sendall(encode_report(0))
        _, size = struct.unpack(">qi", read(peer, HEADER_SIZE))
        read(peer, size)
    # It says nothing more: `acknowledges_nothing` of the fixture appends, and no slave has that.


def test_a_thousand_connections(master: Master) -> None:
    before = master.rss
    peers = [master.connect() for _ in range(1000)]
    try:
        for number, peer in enumerate(peers):
            with contextlib.suppress(ConnectionError):
                peer.sendall(b"\0" * (number % 8))  # never a whole report
        wait_for("the limit", lambda: master.refused("maxHaConnections"))
        master.acknowledges_nothing()
        with master.connect() as slave:  # one that reports is served all the same
            slave.sendall(encode_report(0))
            assert len(read(slave, HEADER_SIZE)) == HEADER_SIZE
        assert master.rss - before < 64 * MIB
        assert len(master.refused("maxHaConnections")) == 1
    finally:
        for peer in peers:
            peer.close()


def test_a_slave_that_never_reads_costs_a_bounded_amount(master: Master) -> None:
    with Peer(master.port) as sender:
        for _ in range(20):
            assert sender.ask(send_command("orders", bytes(MIB))).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    before = master.rss
    peers = [master.connect() for _ in range(30)]
    try:
        for peer in peers:
            peer.sendall(encode_report(0))
        master.acknowledges_nothing()
        assert master.rss - before < 30 * 4 * MIB
    finally:
        for peer in peers:
            peer.close()


def test_addresses_that_are_not_allowed(tmp_path: Path) -> None:
    master = Master(tmp_path, *SYNC, "haAllowedPeers=10.0.0.0/8;::1")
    try:
        for _ in range(20):
            with master.connect() as peer:
                with contextlib.suppress(ConnectionError):
                    peer.sendall(encode_report(0))
                assert until_closed(peer) == b""
        master.acknowledges_nothing()
        assert len(master.refused("its address is not in haAllowedPeers")) == 1
    finally:
        assert master.stop() == 0
