"""The progress of topics and groups; entries of queues; connected clients."""

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, offset_of, ok, pull, request, send

from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.testing.broker import BEGIN_MS, SimulatedBroker, SimulatedClient


def consume_stats(group: str = GROUP, topic: str | None = None, topic_list: str | None = None) -> Command:
    header = headers.GetConsumeStats(consumer_group=group, topic=topic, topic_list=topic_list)
    return request(RequestCode.GET_CONSUME_STATS, header)


@pytest.fixture
def world() -> SimulatedBroker:
    """Five messages in queue 1, a second apart; a group has asked for all, and consumed three."""
    world = SimulatedBroker()
    client = world.connect()
    for _ in range(5):
        ok(client, send(queue_id=1, properties={"TAGS": "a"}))
        world.tick(1_000)
    ok(client, pull(queue_id=1))
    world.machine.offsets.commit(GROUP, TOPIC, 1, 3)
    return world


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    return world.connect()


def queue(queue_id: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


# ── Topics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ends_of_queues(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.pass_time(10_000)
    answer = ok(client, request(RequestCode.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfo(topic=TOPIC)))
    shown = bodies.TopicStatsTable.decode(answer.body)
    assert set(shown.offset_table) == {queue(n) for n in range(4)}
    assert shown.offset_table[queue(0)] == bodies.TopicOffset()
    assert shown.offset_table[queue(1)] == bodies.TopicOffset(max_offset=5, last_update_timestamp=BEGIN_MS + 4_000)
    assert 0 < shown.topic_put_tps <= 0.5


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfo(topic="nowhere")),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, headers.QueryConsumeTimeSpan(topic="nowhere", group=GROUP)),
    ],
)
def test_unknown_topic(client: SimulatedClient, code: int, header: headers.Header) -> None:
    answer = client.ask(request(code, header))
    assert (answer.code, answer.remark) == (17, "topic[nowhere] not exist")


# ── Groups ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "command", [consume_stats(), consume_stats(topic=TOPIC), consume_stats(topic_list=f"{TOPIC};")]
)
def test_group_in_a_topic(world: SimulatedBroker, client: SimulatedClient, command: Command) -> None:
    world.pass_time(10_000)
    shown = bodies.ConsumeStats.decode(ok(client, command).body)
    assert shown.offset_table[queue(0)] == bodies.OffsetWrapper()
    assert shown.offset_table[queue(1)] == bodies.OffsetWrapper(
        broker_offset=5, consumer_offset=3, pull_offset=5, last_timestamp=BEGIN_MS + 2_000
    )
    assert len(shown.offset_table) == 4
    assert shown.consume_tps > 0


def test_topics_that_a_group_left_are_not_shown(client: SimulatedClient) -> None:
    wanted = [bodies.SubscriptionData(topic="more", sub_string="*", sub_version=1)]
    ok(client, heartbeat("c1", group=GROUP, subscriptions=wanted))
    assert bodies.ConsumeStats.decode(ok(client, consume_stats()).body).offset_table == {}
    assert bodies.ConsumeStats.decode(ok(client, consume_stats(topic=TOPIC)).body).offset_table == {}
    assert bodies.ConsumeStats.decode(ok(client, consume_stats(topic_list=TOPIC)).body).offset_table != {}


def test_unknown_group_is_nowhere(client: SimulatedClient) -> None:
    assert bodies.ConsumeStats.decode(ok(client, consume_stats("nobody")).body).offset_table == {}
    assert bodies.ConsumeStats.decode(ok(client, consume_stats(topic="nowhere")).body).offset_table == {}


def test_all_groups(world: SimulatedBroker, client: SimulatedClient) -> None:
    def ask(*, is_order: bool) -> bodies.ConsumeStatsList:
        header = headers.GetBrokerConsumeStats(is_order=is_order)
        answer = ok(client, request(RequestCode.GET_BROKER_CONSUME_STATS, header))
        return bodies.ConsumeStatsList.decode(answer.body)

    shown = ask(is_order=False)
    by_group = {group: stats for one in shown.consume_stats_list for group, stats in one.items()}
    assert by_group.keys() == world.machine.groups.table.keys()
    (stats,) = by_group[GROUP]
    assert stats.offset_table[queue(1)].consumer_offset == 3
    assert (shown.total_diff, shown.total_inflight_diff) == (2, 2)
    assert shown.broker_addr == "127.0.0.1:10911"
    assert ask(is_order=True).total_diff == 0


def test_time_spans(world: SimulatedBroker, client: SimulatedClient) -> None:
    header = headers.QueryConsumeTimeSpan(topic=TOPIC, group=GROUP)
    answer = ok(client, request(RequestCode.QUERY_CONSUME_TIME_SPAN, header))
    spans = bodies.QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set
    assert [span.message_queue for span in spans] == [queue(n) for n in range(4)]
    assert (spans[0].min_time_stamp, spans[0].max_time_stamp, spans[0].consume_time_stamp) == (-1, -1, -1)
    busy = spans[1]
    assert (busy.min_time_stamp, busy.max_time_stamp) == (BEGIN_MS, BEGIN_MS + 4_000)
    assert busy.consume_time_stamp == BEGIN_MS + 2_000
    assert busy.delay_time == world.now_ms - (BEGIN_MS + 3_000)


def test_groups_of_a_topic_and_topics_of_a_group(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group="online"))
    answer = ok(client, request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, headers.QueryTopicConsumeByWho(topic=TOPIC)))
    assert bodies.GroupList.decode(answer.body).group_list == [GROUP, "online"]
    answer = ok(client, request(RequestCode.QUERY_TOPICS_BY_CONSUMER, headers.QueryTopicsByConsumer(group=GROUP)))
    shown = bodies.TopicList.decode(answer.body)
    assert (shown.topic_list, shown.broker_addr) == ([TOPIC], "127.0.0.1:10911")


def test_subscription_of_a_group(client: SimulatedClient) -> None:
    def ask(group: str) -> bodies.QuerySubscriptionResponseBody:
        header = headers.QuerySubscriptionByConsumer(group=group, topic=TOPIC)
        answer = ok(client, request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header))
        return bodies.QuerySubscriptionResponseBody.decode(answer.body)

    ok(client, heartbeat("c1", group=GROUP))
    found = ask(GROUP)
    assert (found.group, found.topic) == (GROUP, TOPIC)
    assert found.subscription_data is not None
    assert found.subscription_data.sub_string == "*"
    assert ask("nobody").subscription_data is None


# ── Entries of a queue ──────────────────────────────────────────────────────────────────────────────────────────────


def entries(index: int = 0, count: int = 10, *, queue_id: int = 1, group: str | None = None) -> Command:
    header = headers.QueryConsumeQueue(topic=TOPIC, queue_id=queue_id, index=index, count=count, consumer_group=group)
    return request(RequestCode.QUERY_CONSUME_QUEUE, header)


def test_entries_are_shown(world: SimulatedBroker, client: SimulatedClient) -> None:
    last = offset_of(ok(client, send(queue_id=1)))
    shown = bodies.QueryConsumeQueueResponseBody.decode(ok(client, entries(3, 10)).body)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 6)
    assert shown.queue_data is not None
    assert len(shown.queue_data) == 3
    assert shown.queue_data[0].tags_code == ord("a")  # Java's hash of "a"
    assert (shown.queue_data[2].physic_offset, shown.queue_data[2].tags_code) == (last, 0)
    assert shown.subscription_data is None
    assert shown.filter_data is None
    few = bodies.QueryConsumeQueueResponseBody.decode(ok(client, entries(0, 2)).body).queue_data
    assert few is not None
    assert len(few) == 2


def test_entries_with_what_a_group_wants(client: SimulatedClient) -> None:
    shown = bodies.QueryConsumeQueueResponseBody.decode(ok(client, entries(group=GROUP)).body)
    assert shown.filter_data == f"{GROUP}@{TOPIC} is not online!"
    ok(client, heartbeat("c1", group=GROUP))
    shown = bodies.QueryConsumeQueueResponseBody.decode(ok(client, entries(group=GROUP)).body)
    assert shown.subscription_data is not None


def test_entries_that_are_not_there(client: SimulatedClient) -> None:
    answer = client.ask(entries(queue_id=3))
    assert (answer.code, answer.remark) == (1, f"3@{TOPIC} is not exist!")
    for index in (-1, 5, 2**62):
        answer = ok(client, entries(index))
        assert (answer.remark, answer.body) == (f"Index {index} of 1@{TOPIC} is not exist!", b"")
    assert bodies.QueryConsumeQueueResponseBody.decode(ok(client, entries(0, -5)).body).queue_data == []


# ── Clients ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_members_of_a_group(client: SimulatedClient) -> None:
    ok(client, heartbeat("c1", group=GROUP))
    header = headers.GetConsumerConnectionList(consumer_group=GROUP)
    answer = ok(client, request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
    shown = bodies.ConsumerConnection.decode(answer.body)
    (connection,) = shown.connection_set
    assert (connection.client_id, connection.client_addr) == ("c1", client.peer.address)
    assert shown.subscription_table.keys() == {TOPIC}
    assert (shown.consume_type, shown.message_model) == ("CONSUME_PASSIVELY", "CLUSTERING")
    assert shown.consume_from_where == "CONSUME_FROM_LAST_OFFSET"


def test_group_without_members(client: SimulatedClient) -> None:
    header = headers.GetConsumerConnectionList(consumer_group="nobody")
    answer = client.ask(request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header))
    assert (answer.code, answer.remark) == (206, "the consumer group[nobody] not online")


def test_producers(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, heartbeat("p1", producers="makers"))
    header = headers.GetProducerConnectionList(producer_group="makers")
    answer = ok(client, request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header))
    (connection,) = bodies.ProducerConnection.decode(answer.body).connection_set
    assert connection.client_id == "p1"
    table = bodies.ProducerTableInfo.decode(ok(client, request(RequestCode.GET_ALL_PRODUCER_INFO)).body).data
    ((group, (producer,)),) = table.items()
    assert (group, producer.client_id, producer.last_update_timestamp) == ("makers", "p1", world.now_ms)
    assert producer.remote_ip == f"/{client.peer.address}"


def test_unknown_producers(client: SimulatedClient) -> None:
    header = headers.GetProducerConnectionList(producer_group="nobody")
    answer = client.ask(request(RequestCode.GET_PRODUCER_CONNECTION_LIST, header))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "the producer group[nobody] not exist")
