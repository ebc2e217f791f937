"""What tests do to brokers: make topics, send, and read everything back. For ours and Apache's."""

import time
from collections.abc import Sequence
from typing import Any

from kourou.protocol.bodies import ClusterInfo
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster
from kourou.spark.columns import COLUMNS
from kourou.spark.planning import Range
from kourou.spark.pulling import Filter, Patience, Puller
from kourou.spark.rows import make_rows
from kourou.spark.wire import Access, Link

ACCESS = Access(timeout=10)


def create_topic(namesrv: str, topic: str, queues: int = 1, perm: int = 6) -> None:
    """On every broker, and known to the name server when this returns."""
    names = Link(namesrv, ACCESS)
    info = ClusterInfo.decode(bytes(names.ask(Command(RequestCode.GET_BROKER_CLUSTER_INFO)).body))
    for data in info.broker_addr_table.values():
        ext = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
            "attributes": "",
        }
        link = Link(data.broker_addrs[0], ACCESS)
        answer = link.ask(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=ext))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        link.close()
    until = time.monotonic() + 30
    while True:
        route = names.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": topic}))
        if route.code == ResponseCode.SUCCESS or time.monotonic() > until:
            break
        time.sleep(0.02)
    names.close()
    assert route.code == ResponseCode.SUCCESS, route.remark


def send(cluster: Cluster, topic: str, bodies: Sequence[bytes], *, queue: int = 0, tags: Sequence[str] = ("",)) -> None:
    """One by one, each acknowledged; many under way."""
    route = cluster.route(topic, fresh=True)
    [broker] = {name for name, members in route.brokers.items() if 0 in members}
    link = Link(route.brokers[broker][0], ACCESS)
    commands = []
    for number, body in enumerate(bodies):
        tag = tags[number % len(tags)]
        properties = f"KEYS\x01k{number}\x02UNIQ_KEY\x01{topic}{queue}{number}\x02"
        if tag:
            properties = f"TAGS\x01{tag}\x02" + properties
        ext = {
            "a": "tests",
            "b": topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue),
            "f": "0",
            "g": "1700000000000",
            "h": str(number),
            "i": properties,
            "j": "0",
            "k": "false",
            "m": "false",
        }
        commands.append(Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=body))
    before = sum(cluster.ends(route.readable).values())
    for at in range(0, len(commands), 100):
        for answer in link.ask_all(commands[at : at + 100]):
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    link.close()
    wait_for(cluster, topic, before + len(bodies))


def wait_for(cluster: Cluster, topic: str, count: int) -> None:
    """Until a topic shows so many messages: Apache's broker answers a producer before consumers see the message."""
    queues = cluster.route(topic, fresh=True).readable
    deadline = time.monotonic() + 60
    while (seen := sum(cluster.ends(queues).values())) < count:
        assert time.monotonic() < deadline, f"{seen} of {count} messages are to be seen"


def pull_all(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    """Every message that the topic has, as rows."""
    queues = cluster.route(topic, fresh=True).readable
    starts, ends = cluster.starts(queues), cluster.ends(queues)
    task = tuple(Range(queue, starts[queue], ends[queue]) for queue in queues)
    puller = Puller(cluster, make_rows(tuple(COLUMNS)), Filter(), patience=Patience(10.0))
    return [row for batch in puller.read(task) for row in batch.to_pylist()]


def first_queue(cluster: Cluster, topic: str) -> MessageQueue:
    return cluster.route(topic, fresh=True).readable[0]
