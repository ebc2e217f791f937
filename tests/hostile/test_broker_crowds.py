"""Too many topics, groups, pulls, locks and connections, and peers that do not read: memory has bounds, others none."""

import json
import socket
import struct
from collections.abc import Iterator

import pytest

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

from .broker_target import BrokerTarget, Customer, pull_command, send_command
from .target import MIB, PATIENCE, Peer, flood, until

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
        # A topic that is not safe on the disk in time is no success either.
        refused = codes.count(ResponseCode.TOPIC_NOT_EXIST)
        assert count - TOPICS_MAX <= refused <= count - TOPICS_MAX + 10
        assert set(codes) <= {ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SYSTEM_ERROR}
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
    before, body = crowded.rss, heartbeat(10_000, 100_000, name="round0").body
    with Customer(crowded) as customer:
        for number in range(10):
            with Peer(crowded.port) as peer:
                other = body.replace(b"round0", b"round%d" % number)
                answer = peer.ask(Command(RequestCode.HEART_BEAT, 1, body=other))
                assert (answer.opaque, answer.code) == (1, ResponseCode.INVALID_PARAMETER)
                assert "(maxJsonBodySize)" in (answer.remark or "")
    assert customer.usual() < 2
    grown = crowded.rss - before
    assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"


def test_groups_without_end_on_one_connection_that_stays(crowded: BrokerTarget) -> None:
    before = crowded.rss
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        for number in range(1000):
            answer = peer.ask(heartbeat(0, 900, name=f"stay{number}"))
            assert answer.code == (ResponseCode.SYSTEM_ERROR if number else ResponseCode.SUCCESS)
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
    """A million queues are asked for, by invented names; a client can still lock a few real ones."""
    before = crowded.rss
    with Customer(crowded) as customer, Peer(crowded.port) as peer:
        queues = [{"topic": "topic0", "brokerName": "b", "queueId": queue} for queue in range(100_000)]
        request = json.dumps({"consumerGroup": "topic0", "clientId": "hostile", "mqSet": queues}).encode()
        for n in range(10):
            body = request.replace(b"topic0", b"topic%d" % n)
            answer = peer.ask(Command(RequestCode.LOCK_BATCH_MQ, n, body=body))
            assert answer.opaque == n
        grown = crowded.rss - before
        assert grown < 200 * MIB, f"{grown / MIB:.0f} MiB"
        queues = [{"topic": "checked", "brokerName": "broker-a", "queueId": queue} for queue in range(4)]
        request = json.dumps({"consumerGroup": "honest", "clientId": "honest", "mqSet": queues}).encode()
        answer = peer.ask(Command(RequestCode.LOCK_BATCH_MQ, 1, body=request))
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
    with Customer(crowded) as customer:
        flood(crowd, request)
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
