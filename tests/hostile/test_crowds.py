"""Many connections, slow connections, and connections that do not read."""

import json
import resource
import socket
import struct
from collections.abc import Iterator

import pytest

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command

from .target import MIB, PATIENCE, Peer, Probe, Target, flood, until

CROWD = 10_000
TOPICS = 5_000


@pytest.fixture(scope="module")
def many_files() -> Iterator[None]:
    """As many open files as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < CROWD + 2000:
        pytest.skip(f"{CROWD} CONNECTIONS ARE NOT TESTED: the hard limit of open files is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (CROWD + 2000 if hard == resource.RLIM_INFINITY else hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def gone(sock: socket.socket) -> None:
    """End a connection without leaving a port in TIME_WAIT."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def test_ten_thousand_idle_connections(target: Target, many_files: None) -> None:
    files, before = target.files, target.rss
    crowd: list[socket.socket] = []
    try:
        with Probe(target) as probe:
            crowd.extend(socket.create_connection(("127.0.0.1", target.port), PATIENCE) for _ in range(CROWD))
            until(lambda: target.files >= files + CROWD, "not all connections were accepted")
            target.check()
        assert probe.usual() < 0.5
        grown = target.rss - before
        assert grown < CROWD * 12 * 1024, f"{grown / CROWD:.0f} bytes a connection"
        # None of them is forgotten: each is served when it wakes up.
        for sock in crowd[:: CROWD // 50]:
            sock.sendall(frame.encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 1)))
            assert sock.recv(65536)
    finally:
        for sock in crowd:
            gone(sock)
    until(lambda: target.files <= files + 2, "connections were not given back")


def test_a_flood_of_connections(target: Target) -> None:
    """Thousands that come and go at once: mute, in the middle of a frame, with garbage, with a request."""
    files, before = target.files, target.rss
    starts = [
        b"",
        b"\0\0",
        frame.encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 1)),
        b"\xff" * 100,
        b"\x16\x03\x01",
        b"PROXY",
    ]
    with Probe(target) as probe:
        for n in range(4000):
            peer = Peer(target.port)
            peer.send(starts[n % len(starts)])
            peer.reset()
    assert probe.usual() < 0.5
    until(lambda: target.files <= files + 2, "connections were not given back")
    assert target.rss - before < 50 * MIB


def test_peers_that_dribble(target: Target) -> None:
    """Two hundred peers, each a byte at a time: their requests are answered in the end, and no other client waits."""
    data = frame.encode(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 9, ext={"topic": "slow"}))
    peers = [Peer(target.port) for _ in range(200)]
    with Probe(target) as probe:
        for byte in data:
            for peer in peers:
                peer.send(bytes([byte]))
        for peer in peers:
            assert peer.receive().opaque == 9
            peer.reset()
    assert probe.usual() < 0.5


@pytest.fixture(scope="module")
def topics(server: Target) -> Iterator[None]:
    """A broker with so many topics that lists of them are large."""
    table = {
        f"topic-with-a-name-of-some-length-{n}": {
            "topicName": f"t{n}",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
        }
        for n in range(TOPICS)
    }
    wrapper = {"topicConfigTable": table, "dataVersion": {"counter": 1}}
    body = json.dumps({"topicConfigSerializeWrapper": wrapper}, separators=(",", ":"))  # as brokers write it
    ext = {
        "brokerName": "large",
        "brokerAddr": "192.0.2.1:10911",
        "clusterName": "large",
        "haServerAddr": "192.0.2.1:10912",
        "brokerId": "0",
    }
    with Peer(server.port) as peer:
        assert peer.ask(Command(RequestCode.REGISTER_BROKER, 1, ext=ext, body=body.encode())).code == 0
        yield


@pytest.mark.parametrize("what", [RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_ROUTEINFO_BY_TOPIC])
def test_peers_that_never_read(what: RequestCode, target: Target, topics: None) -> None:
    """They pipeline requests for as long as these are taken, and never look at an answer."""
    before = target.rss
    request = frame.encode(Command(what, 1, ext={"topic": "topic-with-a-name-of-some-length-7"})) * 50
    crowd = [Peer(target.port, receive_buffer=4096) for _ in range(6)]
    with Probe(target) as probe:
        flood(crowd, request)
        target.check()
    grown = target.rss - before
    assert grown < len(crowd) * 16 * MIB, f"{grown / len(crowd) / MIB:.1f} MiB a connection"
    assert probe.usual() < 0.5
    assert probe.longest < 10
    # A peer that reads again gets everything, in order.
    crowd[0].sock.settimeout(PATIENCE)
    assert crowd[0].receive().opaque == 1
    for peer in crowd:
        peer.reset()
    until(lambda: target.rss - before < 100 * MIB, "memory was not given back")


@pytest.mark.slow
def test_hoarders_of_half_frames(target: Target) -> None:
    """A hundred peers with 15 of 16 MiB each, which is more than all may hold together: the largest have to go."""
    before = target.rss
    half = (16 * MIB).to_bytes(4) + b"\0\0\0\2{}" + bytes(MIB)
    peers = [Peer(target.port) for _ in range(100)]
    ended = 0
    with Probe(target) as probe:
        for peer in peers:
            try:
                peer.send(half)
                for _ in range(14):
                    peer.send(bytes(MIB))
            except (ConnectionError, TimeoutError):
                ended += 1
        assert target.rss - before < 1200 * MIB
    for peer in peers:
        peer.reset()
    assert ended > 0 or "this one holds most" in target.log
    assert probe.usual() < 0.5
    until(lambda: target.rss - before < 200 * MIB, "memory was not given back")
