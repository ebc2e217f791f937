"""What mqadmin does, by method."""

import time
from dataclasses import replace

import pytest
from tests.waiting import answered, becomes, eventually

from kourou.client import Client, Delivery, NoBrokerError, NoRouteError, connect
from kourou.client.admin.requests import AdminRequests
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.errors import ConsumerNotOnlineError, RefusedError

from .conftest import PATIENT, World
from .steps import make_topic, route_of, until_caught_up, until_stored


async def test_the_life_of_a_topic(mq: Client, world: World, name: str) -> None:
    topics = mq.admin.topics

    async def queues() -> list[tuple[int, int, int]]:
        route = await route_of(mq, name)
        datas = route.queue_datas if route is not None else []
        return [(queue.read_queue_nums, queue.write_queue_nums, queue.perm) for queue in datas]

    async def ends() -> list[int]:
        return [offset.max_offset for offset in (await topics.stats(name)).values()]

    await topics.create(name, queues=3)
    await becomes(queues, [(3, 3, 6)])
    assert name in await topics.list()
    assert len(await topics.clusters(name)) == 1
    config = await topics.config(name, world.broker)
    assert (config.topic_name, config.write_queue_nums) == (name, 3)
    assert name in (await topics.all_configs(world.broker)).topic_config_table
    await mq.send_many(name, [b"x"] * 6)
    await becomes(ends, [2, 2, 2])
    await topics.set_perm(name, 4)
    await becomes(queues, [(3, 3, 4)])
    with pytest.raises((NoRouteError, RefusedError)):
        await mq.send(name, b"x")
    await topics.delete(name)
    await becomes(queues, [])
    with pytest.raises(NoRouteError):
        await topics.route(name)


async def test_clusters_that_are_not_there(mq: Client, name: str) -> None:
    with pytest.raises(NoBrokerError, match="there are"):
        await mq.admin.topics.create(name, cluster="nowhere")


async def test_the_life_of_a_group(mq: Client, world: World, name: str) -> None:
    groups = mq.admin.groups
    await groups.create(name, config=SubscriptionGroupConfig(retry_max_times=3))
    assert name in await groups.list()
    assert (await groups.config(name, world.broker)).retry_max_times == 3
    await groups.delete(name, with_offsets=True)
    assert name not in await groups.list()


async def test_groups_at_work(mq: Client, name: str) -> None:
    groups = mq.admin.groups
    await make_topic(mq, name, queues=2)
    first = await mq.send(name, b"x")
    with pytest.raises(ConsumerNotOnlineError):
        await groups.connections(name)
    seen: list[bytes] = []

    async def listener(message: Delivery) -> None:
        seen.append(message.body)

    async with await mq.listen(name, listener, group=name, start="first") as listening:
        await eventually(lambda: seen == [b"x"])
        await listening.consumer.commit()
        await until_caught_up(mq, name, name)
        connection = await groups.connections(name)
        assert [member.client_id for member in connection.connection_set] == [mq.client_id]
        assert name in connection.subscription_table
        info = await groups.running_info(name, mq.client_id, with_stacks=True)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {queue.topic for queue in info.mq_table} >= {name}
        assert info.jstack
        result = await groups.consume_directly(name, mq.client_id, first.offset_id, topic=name)
        assert result.consume_result == "CR_SUCCESS"
        assert seen == [b"x", b"x"]
        assert name in await mq.admin.topics.groups(name)
    progress = await groups.progress(name, name)
    assert progress.lag == 0
    assert len([queue for queue in progress.queues if queue.topic == name]) == 2


async def test_moving_a_group_that_is_not_running(mq: Client, name: str) -> None:
    groups = mq.admin.groups
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"x"] * 5)
    async with mq.consume(name, group=name, start="first") as consumer:
        for _ in range(5):
            (await anext(consumer)).ack()
    await until_caught_up(mq, name, name)

    async def lag() -> int:
        return (await groups.progress(name, name)).lag

    await groups.reset_to_time(name, name, 0)
    await becomes(lag, 5)
    await groups.skip_accumulated(name, name)
    await becomes(lag, 0)


async def test_offsets_set_by_hand(mq: Client, name: str) -> None:
    await make_topic(mq, name, queues=1)
    await mq.admin.groups.create(name)
    await mq.send_many(name, [b"x"] * 5)
    await until_stored(mq, name, 5)
    (queue,) = await mq.producer().queues(name)
    await mq.admin.groups.set_offset(name, queue, 2)
    assert await mq.pull(group=name).committed(queue) == 2


async def test_finding_messages(mq: Client, world: World, name: str) -> None:
    messages = mq.admin.messages
    begun = time.time() - 1
    await make_topic(mq, name, queues=2)
    sent = [await mq.send(name, b"%d" % number, keys=["all", f"k{number}"]) for number in range(6)]

    last = await answered(lambda: messages.by_key(name, "k5"))  # the index is written a little later
    assert [message.body for message in last] == [b"5"]
    found = await messages.by_key(name, "all")
    assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    for identity in (sent[3].offset_id, sent[3].message_id):
        message = await messages.by_id(identity, name)
        assert message is not None and message.body == b"3"
    message = await messages.by_offset(sent[4].queue, sent[4].queue_offset)
    assert message is not None and message.body == b"4"
    assert await messages.by_offset(sent[4].queue, 999) is None
    assert await messages.by_key(name, "nobody") == []
    by_time = [message.body async for message in messages.by_time(name, begun)]
    assert sorted(by_time) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [message async for message in messages.by_time(name, begun - 3600, begun - 1800)] == []


async def test_brokers_and_name_servers(mq: Client, world: World, name: str) -> None:
    brokers = mq.admin.brokers
    cluster = await brokers.cluster()
    assert [data.broker_addrs[0] for data in cluster.broker_addr_table.values()] == [world.broker]
    runtime = await brokers.runtime(world.broker)
    assert runtime["brokerVersionDesc"]
    assert (await brokers.config(world.broker))["brokerName"] in cluster.broker_addr_table
    settings = await brokers.name_server_config()
    assert list(settings) == [world.namesrv]
    await brokers.put_value("NS", name, "value")
    assert await brokers.value("NS", name) == "value"
    assert (await brokers.values("NS"))[name] == "value"
    await brokers.delete_value("NS", name)
    assert await brokers.value("NS", name) is None
    assert await brokers.values("nowhere") == {}


async def test_producers_are_known(mq: Client, world: World, name: str) -> None:
    producer = mq.producer(name)
    await producer.send(f"{name}-topic", b"x")
    await mq.session.heartbeat()
    found = await mq.admin.brokers.producers(name, world.broker)
    assert [connection.client_id for connection in found.connection_set] == [mq.client_id]


async def test_ordered_topics(mq: Client, name: str) -> None:
    topics = mq.admin.topics
    await topics.set_order(name, "broker-a:2")
    assert await topics.order(name) == "broker-a:2"
    await topics.remove_order(name)
    assert await topics.order(name) is None


@pytest.mark.parametrize(("given", "expected"), [(1.0, 5.0), (20.0, 20.0)])
async def test_requests_of_an_admin_wait_as_long_as_others(kourou_world: World, given: float, expected: float) -> None:
    async with connect(kourou_world.namesrv, settings=replace(PATIENT, request_timeout=given)) as mq:
        assert AdminRequests(mq.session).timeout == expected
