"""Routes: which queues they give, and what becomes of them when name servers fail."""

import asyncio

import msgspec
import pytest

from kourou.client.errors import NoBrokerError, NoRouteError
from kourou.client.routes import Routes, route_of
from kourou.protocol.bodies import BrokerData, QueueData, TopicQueueMappingInfo, TopicRouteData
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, refused
from kourou.protocol.message import MessageQueue


def broker(name: str, **addresses: str) -> BrokerData:
    return BrokerData(
        cluster="c", broker_name=name, broker_addrs={int(key[1:]): value for key, value in addresses.items()}
    )


def queues(name: str, count: int, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=count, write_queue_nums=count, perm=perm)


DATA = TopicRouteData(
    queue_datas=[queues("b", 2), queues("a", 1), queues("read-only", 1, 4), queues("orphan", 1)],
    broker_datas=[
        broker("a", m0="a:1", s1="a:2"),
        broker("b", m0="b:1"),
        broker("read-only", m0="r:1"),
        broker("orphan", s1="o:2"),
    ],
)


def test_which_queues_a_route_gives() -> None:
    route = route_of("T", DATA)
    assert [(queue.broker_name, queue.queue_id) for queue in route.publish] == [("a", 0), ("b", 0), ("b", 1)]
    assert [(queue.broker_name, queue.queue_id) for queue in route.subscribe] == [
        ("a", 0),
        ("b", 0),
        ("b", 1),
        ("orphan", 0),
        ("read-only", 0),
    ]


def test_ordered_topics_have_fixed_queues() -> None:
    data = TopicRouteData(order_topic_conf="a:2;b:1", queue_datas=[queues("a", 8)], broker_datas=DATA.broker_datas)
    publish = route_of("T", data).publish
    assert [(queue.broker_name, queue.queue_id) for queue in publish] == [("a", 0), ("a", 1), ("b", 0)]


def test_topics_that_brokers_would_create_get_four_queues_at_most() -> None:
    data = TopicRouteData(queue_datas=[queues("a", 8), queues("b", 2)], broker_datas=DATA.broker_datas)
    route = route_of("T", data, is_default=True)
    assert len([queue for queue in route.publish if queue.broker_name == "a"]) == 4
    assert len([queue for queue in route.publish if queue.broker_name == "b"]) == 2


def test_a_broker_that_is_named_twice_counts_once() -> None:
    data = TopicRouteData(queue_datas=[queues("a", 2), queues("a", 2)], broker_datas=DATA.broker_datas)
    assert [queue.queue_id for queue in route_of("T", data).publish] == [0, 1]
    assert [queue.queue_id for queue in route_of("T", data).subscribe] == [0, 1]


class NameServer:
    """Answers from a table; counts what it is asked."""

    def __init__(self) -> None:
        self.known: dict[str, TopicRouteData] = {}
        self.asked = 0

    def __str__(self) -> str:
        return "ns:9876"

    async def ask(self, command: Command) -> Command:
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and command.ext is not None
        self.asked += 1
        await asyncio.sleep(0)
        data = self.known.get(command.ext["topic"])
        if data is None:
            raise refused(17, "No topic route info")
        return Command(0, body=data.encode())


@pytest.fixture
def server() -> NameServer:
    return NameServer()


@pytest.fixture
def routes(server: NameServer) -> Routes:
    return Routes(server)  # type: ignore[arg-type]


async def test_callers_share_one_request(server: NameServer, routes: Routes) -> None:
    server.known["T"] = DATA
    found = await asyncio.gather(*(routes.get("T") for _ in range(10)))
    assert server.asked == 1
    assert len({id(route) for route in found}) == 1
    await routes.get("T")
    assert server.asked == 1


async def test_a_cancelled_caller_does_not_cancel_the_others(server: NameServer, routes: Routes) -> None:
    server.known["T"] = DATA
    first, second = (asyncio.create_task(routes.get("T")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).topic == "T"


async def test_an_unknown_topic_goes_where_it_would_be_created(server: NameServer, routes: Routes) -> None:
    with pytest.raises(NoRouteError, match="ns:9876"):
        await routes.get("T", or_default=True)
    server.known["TBW102"] = DATA
    assert (await routes.get("T", or_default=True)).is_default
    with pytest.raises(NoRouteError):
        await routes.get("T")
    server.known["T"] = DATA
    assert not (await routes.get("T")).is_default


async def test_a_topic_that_is_gone_keeps_its_route(server: NameServer, routes: Routes) -> None:
    server.known["T"] = DATA
    await routes.get("T")
    del server.known["T"]
    await routes.refresh_all({"T"})
    assert routes.cached("T") is not None


async def test_changes_are_told(server: NameServer, routes: Routes) -> None:
    told = []
    routes.on_change = lambda route: told.append(len(route.publish))
    server.known["T"] = DATA
    await routes.get("T")
    await routes.refresh("T")
    server.known["T"] = TopicRouteData(queue_datas=[queues("a", 4)], broker_datas=DATA.broker_datas)
    await routes.refresh("T")
    assert told == [4]


async def test_members_of_broker_groups(server: NameServer, routes: Routes) -> None:
    server.known["T"] = DATA
    await routes.get("T")
    assert routes.master("a") == "a:1"
    assert routes.member("a", 1) == ("a:2", 1)
    assert routes.member("b", 1) == ("b:1", 0)
    assert routes.member("orphan") == ("o:2", 1)
    for broken in (lambda: routes.master("orphan"), lambda: routes.member("unknown")):
        with pytest.raises(NoBrokerError):
            broken()


async def test_brokers_that_no_route_names_are_forgotten(server: NameServer, routes: Routes) -> None:
    server.known["T"] = DATA
    server.known["U"] = TopicRouteData(queue_datas=[queues("u", 1)], broker_datas=[broker("u", m0="u:1")])
    await routes.get("T")
    await routes.get("U")
    assert routes.forget_unused({"T"}) == ["u:1"]
    with pytest.raises(NoBrokerError):
        routes.master("u")
    assert MessageQueue("T", "a", 0) in (await routes.get("T")).publish


def mapping(broker: str, epoch: int, total: int, *numbers: int, scope: str = "__global__") -> TopicQueueMappingInfo:
    own = {number: at for at, number in enumerate(numbers)}
    return TopicQueueMappingInfo(bname=broker, epoch=epoch, total_queues=total, curr_id_map=own, scope=scope)


def test_the_queues_of_a_static_topic() -> None:
    """Numbered across brokers; the newest mapping counts, and a queue that no broker has is shared all the same."""
    mappings = {"a": mapping("a", 2, 4, 0, 1), "b": mapping("b", 1, 3, 1, 2), "c": mapping("c", 1, 1, 0, scope="s")}
    data = msgspec.structs.replace(DATA, topic_queue_mapping_by_broker=mappings)
    route = route_of("T", data)
    everywhere = [MessageQueue("T", "__syslo__global__", number) for number in range(4)]
    assert list(route.subscribe) == [*everywhere, MessageQueue("T", "__syslo__s", 0)]
    assert list(route.publish) == [*everywhere[:3], MessageQueue("T", "__syslo__s", 0)]
    assert [route.homes[queue] for queue in route.subscribe] == ["a", "a", "b", "", "c"]


def test_a_static_topic_with_too_many_queues() -> None:
    data = msgspec.structs.replace(DATA, topic_queue_mapping_by_broker={"a": mapping("a", 1, 2**31 - 1, 0)})
    with pytest.raises(BodyError, match="2147483647 static queues"):
        route_of("T", data)
