"""Too many topics, groups, pulls, locks and connections, and peers that do not read: memory has bounds, others none."""

import json
import select
import socket
import struct
import time
from collections.abc import Iterator

import pytest

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

from .broker_target import BrokerTarget, Customer, pull_command, send_command, until
from .target import MIB, PATIENCE, Peer

TOPICS_MAX, GROUPS_MAX = 300, 300


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTarget]:
    """A broker with small limits."""
    limits = f"maxAutoCreatedTopics={TOPICS_MAX}", f"maxAutoCreatedGroups={GROUPS_MAX}"
    target = BrokerTarget(tmp_path_factory.mktemp("crowded"), *limits)
    target.check()
    with Customer(target):
        pass  # its topic and group are there before others take all
    yield target
    target.check()
    assert target.stop() == 0, target.log[-4000:]


def test_topics_without_end(crowded: BrokerTarget) -> None:
    """Each send to another topic: as many are made as may be, and the rest are refused."""
    before, count = crowded.rss, 5000
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        for first in range(0, count, 100):
            peer.send(b"".join(frame.encode(send_command(f"invented-{n}")) for n in range(first, first + 100)))
        codes = [peer.receive().code for _ in range(count)]
        assert TOPICS_MAX - 10 <= codes.count(ResponseCode.SUCCESS) <= TOPICS_MAX
        assert set(codes) == {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST}
        again = peer.ask(send_command("invented-0"))
        assert again.code == ResponseCode.SUCCESS
    assert customer.usual() < 1
    assert crowded.rss - before < 60 * MIB


def heartbeat(consumers: int, producers: int, topics: int = 1, name: str = "g") -> Command:
    """A heartbeat for so many groups."""
    subscriptions = [{"topic": f"t{n}", "subString": "*", "subVersion": 1} for n in range(topics)]
    body = {
        "clientID": f"hostile-{name}",
        "consumerDataSet": [
            {
                "groupName": f"{name}c{n}",
                "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                "subscriptionDataSet": subscriptions,
            }
            for n in range(consumers)
        ],
        "producerDataSet": [{"groupName": f"{name}p{n}"} for n in range(producers)],
    }
    return Command(RequestCode.HEART_BEAT, 1, body=json.dumps(body).encode())


def test_groups_without_end(crowded: BrokerTarget) -> None:
    """A million producer groups and a hundred thousand consumer groups, in heartbeats of some MiB each."""
    before = crowded.rss
    with Customer(crowded) as customer:
        for round_number in range(10):
            with Peer(crowded.port) as peer:
                answer = peer.ask(heartbeat(10_000, 100_000, name=f"r{round_number}"))
                assert answer.opaque == 1
                assert answer.code == ResponseCode.SUCCESS or answer.remark
    assert customer.usual() < 2
    grown = crowded.rss - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"


def test_groups_without_end_on_one_connection_that_stays(crowded: BrokerTarget) -> None:
    before = crowded.rss
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        for round_number in range(10):
            assert peer.ask(heartbeat(0, 100_000, name=f"stay{round_number}")).opaque == 1
        grown = crowded.rss - before
        assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
    assert customer.usual() < 2


def test_a_group_that_subscribes_to_everything(crowded: BrokerTarget) -> None:
    before = crowded.rss
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        for n in range(5):
            answer = peer.ask(heartbeat(1, 0, topics=100_000, name=f"all{n}"))
            assert answer.opaque == 1
    assert customer.usual() < 2
    grown = crowded.rss - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"


def test_locks_without_end(crowded: BrokerTarget) -> None:
    """A million queues are asked for, by invented names; whoever locks a few real ones still can."""
    before = crowded.rss
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        for n in range(10):
            queues = [{"topic": f"t{n}", "brokerName": "b", "queueId": queue} for queue in range(100_000)]
            body = {"consumerGroup": f"locks{n}", "clientId": "hostile", "mqSet": queues}
            answer = peer.ask(Command(RequestCode.LOCK_BATCH_MQ, n, body=json.dumps(body).encode()))
            assert answer.opaque == n
        grown = crowded.rss - before
        assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
        queues = [{"topic": "checked", "brokerName": "broker-a", "queueId": queue} for queue in range(4)]
        body = {"consumerGroup": "honest", "clientId": "honest", "mqSet": queues}
        answer = peer.ask(Command(RequestCode.LOCK_BATCH_MQ, 1, body=json.dumps(body).encode()))
        assert len(json.loads(answer.body)["lockOKMQSet"]) == 4
    assert customer.usual() < 2


def test_pulls_by_the_ten_thousand(crowded: BrokerTarget) -> None:
    """They wait on one connection for the same queue; a message answers those that may wait."""
    before, count = crowded.rss, 20_000
    with Peer(crowded.port) as peer:
        end = int((crowded.ask(send_command("checked", b"the last")).ext or {})["queueOffset"]) + 1
        with Customer(crowded) as customer:
            for _ in range(count // 100):
                one = b"".join(frame.encode(pull_command("checked", end, suspend_ms=60_000)) for _ in range(100))
                peer.send(one)
        assert customer.usual() < 1
        assert crowded.rss - before < 150 * MIB
        assert crowded.ask(send_command("checked", b"for all")).code == ResponseCode.SUCCESS
        codes = [peer.receive().code for _ in range(count)]
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND}
    until(lambda: crowded.rss - before < 150 * MIB, "memory was not given back")


def test_peers_that_never_read(crowded: BrokerTarget) -> None:
    """They ask for large messages as long as requests are taken, and never look at an answer."""
    for _ in range(8):
        assert crowded.ask(send_command("large", bytes(4 * MIB))).code in (0, ResponseCode.TOPIC_NOT_EXIST)
    topic = "large" if crowded.ask(send_command("large", b"x")).code == 0 else "checked"
    before = crowded.rss
    request = frame.encode(pull_command(topic)) * 50
    crowd = [Peer(crowded.port, receive_buffer=4096) for _ in range(6)]
    taken = dict.fromkeys(crowd, 0)
    for peer in crowd:
        peer.sock.setblocking(False)
    with Customer(crowded) as customer:
        quiet_since = time.monotonic()
        while time.monotonic() - quiet_since < 0.5:
            _, ready, _ = select.select([], [peer.sock for peer in crowd], [], 0.05)
            for peer in crowd:
                if peer.sock in ready:
                    taken[peer] += peer.sock.send(request[taken[peer] % len(request) :])
                    quiet_since = time.monotonic()
                    assert taken[peer] < 64 * MIB, "requests are taken without end from a peer that does not read"
    grown = crowded.rss - before
    assert grown < len(crowd) * 70 * MIB, f"{grown / len(crowd) / MIB:.1f} MiB a connection"
    assert customer.usual() < 1
    crowd[0].sock.settimeout(PATIENCE)
    assert crowd[0].receive().code == ResponseCode.SUCCESS
    for peer in crowd:
        peer.reset()
    until(lambda: crowded.rss - before < 100 * MIB, "memory was not given back")


def test_a_flood_of_connections(crowded: BrokerTarget) -> None:
    """Thousands that come and go at once: mute, in the middle of a frame, with garbage, with a pull that waits."""
    files, before = crowded.files, crowded.rss
    starts = [
        b"",
        b"\0\0",
        frame.encode(pull_command("checked", 1 << 40, suspend_ms=60_000)),
        b"\xff" * 100,
        b"\x16\x03\x01",
        frame.encode(heartbeat(1, 1, name="flood")),
    ]
    with Customer(crowded) as customer:
        for n in range(3000):
            with socket.create_connection(("127.0.0.1", crowded.port), PATIENCE) as sock:
                sock.sendall(starts[n % len(starts)])
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert customer.usual() < 1
    until(lambda: crowded.files <= files + 4, "connections were not given back")
    assert crowded.rss - before < 60 * MIB
