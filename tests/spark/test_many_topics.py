"""A thousand topics are asked for in few round trips; a broker that is away is named, and by option left out."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kourou.embedded import EmbeddedThread
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.spark import cluster as cluster_module, wire
from kourou.spark.cluster import Cluster, Route
from kourou.spark.errors import OptionError, UnreachableError
from kourou.spark.source import StreamReader
from kourou.spark.wire import TOGETHER_MAX, Link

from .brokers import ACCESS, create_topic, send
from .test_sources import read, schema, source

TOPICS = 1000
QUEUES = 4


class Trips:
    """Counts writes and requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sends = 0
        self.requests = 0
        plain = Link.send

        def counted(link: Link, *commands: Command) -> list[int]:
            self.sends += 1
            self.requests += len(commands)
            return plain(link, *commands)

        monkeypatch.setattr(Link, "send", counted)

    def reset(self) -> None:
        self.sends = self.requests = 0


@pytest.fixture(autouse=True)
def _connections() -> Iterator[None]:
    yield
    wire.close_all()


def create_topics(broker: EmbeddedThread, names: list[str], queues: int) -> None:
    """All of them at once; known to the name server when this returns."""
    create_topic(broker.namesrv, names[0], queues)
    cluster = Cluster((broker.namesrv,), ACCESS)
    [address] = cluster.route(names[0]).brokers["broker-a"].values()
    link = Link(address, ACCESS)
    commands = [
        Command(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            ext={
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "",
            },
        )
        for name in names
    ]
    for answer in link.ask_all(commands):
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    link.close()
    until = time.monotonic() + 30
    while set(names) - set(cluster.topics(".*")):
        assert time.monotonic() < until


def test_a_trigger_over_a_thousand_topics(broker: EmbeddedThread, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"many-{number:04d}" for number in range(TOPICS)]
    create_topics(broker, names, QUEUES)
    reader: Any = source(broker, topicPattern="many-.*", startingOffsets="earliest", group="many").streamReader(
        schema("topic string")
    )
    assert isinstance(reader, StreamReader)
    begin = reader.initialOffset()
    send(Cluster((broker.namesrv,), ACCESS), names[7], [b"x"] * 5)
    reader.commit(begin)  # for the first time, which makes the group
    trips = Trips(monkeypatch)
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert sum(map(len, end.values())) == TOPICS
    assert end[names[7]]["broker-a"]["0"] == 5
    # The list of topics, their routes, and the ends of all queues.
    assert trips.sends == 1 + -(-TOPICS // TOGETHER_MAX) + -(-TOPICS * QUEUES // TOGETHER_MAX) == 6
    assert trips.requests == 1 + TOPICS + TOPICS * QUEUES
    trips.reset()
    assert len(reader.partitions(begin, end)) == 1
    assert trips.sends == 0
    later = reader.latestOffset(end, ReadAllAvailable())
    assert later == end
    assert trips.requests == 1 + TOPICS + 1 + TOPICS * QUEUES  # of the group only the queue that has moved
    trips.reset()
    task = reader.partitions(begin, end)
    assert read(reader, task).num_rows == 5


def test_a_task_asks_for_all_its_routes_at_once(broker: EmbeddedThread, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"small-{number}" for number in range(20)]
    create_topics(broker, names, 1)
    for name in names:
        send(Cluster((broker.namesrv,), ACCESS), name, [b"x"])
    reader: Any = source(broker, topics=",".join(names)).reader(schema("topic string"))
    [task] = reader.partitions()
    trips = Trips(monkeypatch)
    assert sorted(batch for one in reader.read(task) for batch in one.to_pydict()["topic"]) == sorted(names)
    assert trips.sends <= 1 + len(names)  # the routes, and a pull for each queue


def test_more_requests_than_travel_together(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "wide", queues=8)
    queues = cluster.route("wide", fresh=True).readable
    link = Link(next(iter(cluster.route("wide").brokers["broker-a"].values())), ACCESS)
    count = 3 * TOGETHER_MAX + 5
    commands = [
        Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "wide", "queueId": str(number % len(queues))})
        for number in range(count)
    ]
    assert [answer.code for answer in link.ask_all(commands)] == [0] * count
    link.close()


# ── A broker that is away ───────────────────────────────────────────────────────────────────────────────────────────


AWAY = "127.0.0.1:1"


def with_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """Name servers tell of a second broker of this topic, which does not answer."""
    plain = cluster_module.route_of

    def told(name: str, data: Any) -> Route:
        route = plain(name, data)
        if name != topic:
            return route
        more = (MessageQueue(name, "broker-z", 0),)
        return Route(route.readable + more, route.writable, {**route.brokers, "broker-z": {0: AWAY}})

    monkeypatch.setattr(cluster_module, "route_of", told)


def test_a_broker_that_is_away_fails_the_queries_that_need_it(
    broker: EmbeddedThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("half", "whole"):
        create_topic(broker.namesrv, topic)
        send(Cluster((broker.namesrv,), ACCESS), topic, [b"x"] * 3)
    with_a_broker_that_is_away(monkeypatch, "half")
    patience = {"retryTimeout": "300ms", "columns": "topic"}
    reader = source(broker, topics="half,whole", **patience).reader(schema("topic string"))
    with pytest.raises(UnreachableError, match=rf"broker broker-z does not answer: {AWAY}: .*refused") as caught:
        reader.partitions()
    assert "broker-a" not in str(caught.value)
    for options in ({"topics": "whole"}, {"assign": '{"half": {"broker-a": [0]}}'}):
        other = source(broker, **options, **patience).reader(schema("topic string"))
        assert read(other, other.partitions()).num_rows == 3
    narrowed: Any = source(broker, topics="half,whole", pushdown="true", **patience).reader(schema("topic string"))
    from pyspark.sql.datasource import EqualTo

    assert list(narrowed.pushFilters([EqualTo(("broker",), "broker-a")])) == []
    assert read(narrowed, narrowed.partitions()).num_rows == 6


def test_a_broker_that_is_away_is_left_out_by_option(
    broker: EmbeddedThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create_topic(broker.namesrv, "lame")
    send(Cluster((broker.namesrv,), ACCESS), "lame", [b"x"] * 3)
    with_a_broker_that_is_away(monkeypatch, "lame")
    options = {"topics": "lame", "failOnUnreachable": "false", "columns": "queue_id,queue_offset"}
    reader = source(broker, **options).reader(schema("queue_id int, queue_offset bigint"))
    assert read(reader, reader.partitions()).num_rows == 3
    assert re.search(r"broker broker-z does not answer.*left out", caplog.text)
    assert "broker-a" not in caplog.text
    for position in ({"endingOffsets": '{"lame": {"broker-a": {"0": 2}}}'}, {"startingTimestamp": "0"}):
        placed = source(broker, **options, **position).reader(schema("queue_id int, queue_offset bigint"))
        assert read(placed, placed.partitions()).num_rows == (2 if "endingOffsets" in position else 3)
    stream: Any = source(broker, **options).streamReader(schema("queue_id int, queue_offset bigint"))
    begin = {"lame": {"broker-a": {"0": 0}, "broker-z": {"0": 17}}}
    began = time.monotonic()
    for _ in range(3):  # a broker that did not answer is left in peace for a while
        assert stream.latestOffset(begin, ReadAllAvailable()) == {"lame": {"broker-a": {"0": 3}, "broker-z": {"0": 17}}}
    assert time.monotonic() - began < cluster_module.AWAY_S


def test_topics_that_are_not_there(broker: EmbeddedThread, cluster: Cluster) -> None:
    create_topic(broker.namesrv, "present")
    with pytest.raises(OptionError, match="topic 'absent' does not exist"):
        cluster.routes(["present", "absent"])
    assert list(cluster.routes(["present", "absent"], gone_ok=True)) == ["present"]
