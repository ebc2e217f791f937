"""What tests do to brokers: make topics, send, and read everything back. For ours and Apache's."""

from collections.abc import Sequence
from typing import Any

from tests.waiting import wait_equal, wait_for

from kourou.protocol.bodies import ClusterInfo, TopicRouteData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster
from kourou.spark.columns import COLUMNS
from kourou.spark.errors import OptionError
from kourou.spark.planning import Range
from kourou.spark.pulling import Filter, Patience, Puller
from kourou.spark.rows import make_rows
from kourou.spark.wire import Access, Link

ACCESS = Access(timeout=10)


def create_topic(namesrv: str, topic: str, queues: int = 1, perm: int = 6) -> None:
    """On every broker, and known to the name server, as it is now, when this returns."""
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

    def known() -> list[tuple[int, int]]:
        answer = names.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": topic}))
        if answer.code != ResponseCode.SUCCESS:
            return []
        return [(data.write_queue_nums, data.perm) for data in TopicRouteData.decode(bytes(answer.body)).queue_datas]

    wait_equal(known, [(queues, perm)] * len(info.broker_addr_table), 60)
    names.close()


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
    wait_for_messages(cluster, topic, before + len(bodies))


def wait_for_messages(cluster: Cluster, topic: str, count: int) -> None:
    """Until a topic shows so many messages: Apache's broker answers a producer before consumers see the message."""

    def are_there() -> bool:
        try:
            queues = cluster.route(topic, fresh=True).readable
        except OptionError:  # a topic that a broker has made by itself: name servers hear of it later
            return False
        return sum(cluster.ends(queues).values()) >= count

    wait_for(f"{count} messages of {topic}", are_there, 60)


def pull_all(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    """Every message that the topic has, as rows."""
    queues = cluster.route(topic, fresh=True).readable
    starts, ends = cluster.starts(queues), cluster.ends(queues)
    task = tuple(Range(queue, starts[queue], ends[queue]) for queue in queues)
    puller = Puller(cluster, make_rows(tuple(COLUMNS)), Filter(), patience=Patience(10.0))
    return [row for batch in puller.read(task) for row in batch.to_pylist()]


def first_queue(cluster: Cluster, topic: str) -> MessageQueue:
    return cluster.route(topic, fresh=True).readable[0]
