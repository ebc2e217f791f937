"""Pulls that wait: until a message comes, or their time is over."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, pull, send

from kourou.broker import long_polls
from kourou.broker.settings import BrokerSettings
from kourou.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import CommandFlag, PullSysFlag, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.hashes import java_hash
from kourou.protocol.record import decode_records
from kourou.store.settings import FlushMode
from kourou.testing.broker import ROOT, SMALL_STORE, SimulatedBroker, SimulatedClient

TAGGED = {"TAGS": "paid"}
OTHER = {"TAGS": "new"}


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def producer(world: SimulatedBroker) -> SimulatedClient:
    """A producer, and the topic is there."""
    client = world.connect()
    ok(client, send(b"first"))
    return client


@pytest.fixture
def consumer(world: SimulatedBroker) -> SimulatedClient:
    return world.connect()


def hold(client: SimulatedClient, command: Command) -> int:
    (number,) = client.send(command)
    assert number not in client.answers
    return number


def bodies(answer: Command) -> list[bytes]:
    return [bytes(message.body) for message in decode_records(answer.body)]


def test_a_message_wakes_the_pull_that_waits_for_it(producer: SimulatedClient, consumer: SimulatedClient) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=15_000))
    ok(producer, send(b"second", queue_id=1))
    assert number not in consumer.answers, "it is in another queue"
    ok(producer, send(b"second"))
    answer = consumer.answers[number]
    assert (answer.code, answer.remark, bodies(answer)) == (ResponseCode.SUCCESS, "FOUND", [b"second"])


def test_all_pulls_of_a_queue_are_woken(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    others = [world.connect() for _ in range(3)]
    numbers = [hold(client, pull(offset=1, wait_ms=15_000)) for client in others]
    ok(producer, send(b"second"))
    assert all(bodies(client.answers[number]) == [b"second"] for client, number in zip(others, numbers, strict=True))
    assert world.machine.pull.polls.waiting == 0
    assert not world.machine.pull.polls.by_queue


def test_when_the_time_is_over(world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=7_777))
    assert world.machine.pull.polls.due_ms(world.now_ms) == world.now_ms + 7_777
    world.pass_time(7_776)
    assert number not in consumer.answers
    world.pass_time(1)
    answer = consumer.answers[number]
    assert (answer.code, answer.remark) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE")
    assert answer.ext is not None and answer.ext["nextBeginOffset"] == "1"
    assert world.machine.pull.polls.due_ms(world.now_ms) is None


def test_short_polling_waits_a_second() -> None:
    world = SimulatedBroker(settings=BrokerSettings(long_polling=False))
    client = world.connect()
    ok(client, send())
    number = hold(client, pull(offset=1, wait_ms=15_000))
    world.pass_time(1_000)
    assert client.answers[number].code == ResponseCode.PULL_NOT_FOUND


def test_no_more_than_so_many_wait() -> None:
    world = SimulatedBroker(settings=BrokerSettings(held_pulls_max=2))
    client = world.connect()
    ok(client, send())
    for _ in range(2):
        hold(client, pull(offset=1, wait_ms=15_000))
    assert client.ask(pull(offset=1, wait_ms=15_000)).code == ResponseCode.PULL_NOT_FOUND


def test_other_tags_wake_no_pull_at_once(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=15_000, subscription="paid"))
    ok(producer, send(b"not wanted", properties=OTHER))
    assert number not in consumer.answers
    ok(producer, send(b"wanted", properties=TAGGED))
    answer = consumer.answers[number]
    assert bodies(answer) == [b"wanted"]
    assert answer.ext is not None and answer.ext["nextBeginOffset"] == "3"


def test_a_pull_that_passed_over_messages_is_answered_after_five_seconds(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=15_000, subscription="paid"))
    world.pass_time(1_000)
    for _ in range(3):
        ok(producer, send(b"not wanted", properties=OTHER))
        world.pass_time(1_000)
    world.pass_time(1_999)
    assert number not in consumer.answers
    world.pass_time(1)
    answer = consumer.answers[number]
    assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
    assert answer.ext is not None and answer.ext["nextBeginOffset"] == "4"


def test_a_lost_connection_takes_its_pulls_along(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=15_000))
    other = world.connect()
    waiting = hold(other, pull(offset=1, wait_ms=15_000))
    consumer.close()
    ok(producer, send(b"second"))
    assert number not in consumer.answers
    assert bodies(other.answers[waiting]) == [b"second"]
    assert world.machine.pull.polls.waiting == 0


def test_under_sync_flush_a_message_wakes_when_it_is_safe() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    producer, consumer = world.connect(), world.connect()
    ok(producer, send(b"first"))
    number = hold(consumer, pull(offset=1, wait_ms=15_000))
    world.lazy = True
    (sent,) = producer.send(send(b"second"))
    assert sent not in producer.answers and number not in consumer.answers
    world.work()
    assert sent in producer.answers and bodies(consumer.answers[number]) == [b"second"]


def test_bytes_of_a_masters_log_wake_as_a_message_does(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    """What is visible counts, not how it came into the log."""
    master = SimulatedBroker()
    client = master.connect()
    ok(client, send(b"first"))
    begin = master.store.log.end
    ok(client, send(b"second"))
    data = master.store.log.read(begin, master.store.log.end - begin)
    number = hold(consumer, pull(offset=1, wait_ms=15_000))
    world.store.log.append_raw(data[:50])
    world.pass_time(100)
    assert number not in consumer.answers, "a part of a record is no message"
    world.store.log.append_raw(data[50:])
    world.pass_time(100)
    assert bodies(consumer.answers[number]) == [b"second"]


def test_a_topic_that_is_removed_while_a_pull_waits(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    number = hold(consumer, pull(offset=1, wait_ms=1_000))
    world.machine.topics.remove(TOPIC, world.now_ms)
    world.pass_time(1_000)
    assert consumer.answers[number].code == ResponseCode.TOPIC_NOT_EXIST


# ── Changes while a pull waits ───────────────────────────────────────────────────────────────────────────────────────


def subscribe(client: SimulatedClient, text: str, version: int) -> None:
    wanted = SubscriptionData(topic=TOPIC, sub_string=text, code_set=[java_hash(text)], sub_version=version)
    ok(client, heartbeat("c1", group=GROUP, subscriptions=[wanted]))


def test_a_consumer_that_changes_its_tags_misses_no_message(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient
) -> None:
    """Java's client keeps its pull when it subscribes to other tags."""
    subscribe(consumer, "paid", 1)
    number = hold(consumer, pull(offset=1, wait_ms=15_000, sys_flag=int(PullSysFlag.SUSPEND), sub_version=1))
    ok(producer, send(b"before the change", properties=OTHER))
    assert number not in consumer.answers
    subscribe(consumer, "new", 2)
    ok(producer, send(b"after it", properties=OTHER))
    assert bodies(consumer.answers[number]) == [b"before the change", b"after it"]


@pytest.mark.parametrize("times_out", [False, True], ids=["wakes", "times out"])
@pytest.mark.parametrize(
    ("change", "code", "kind"),
    [
        (lambda world: setattr(world.settings, "permission", 2), ResponseCode.NO_PERMISSION, "1"),
        (
            lambda world: world.machine.groups.put(
                SubscriptionGroupConfig(group_name=GROUP, consume_enable=False), world.now_ms
            ),
            ResponseCode.NO_PERMISSION,
            "2",
        ),
        (
            lambda world: world.machine.topics.put(TopicConfig(topic_name=TOPIC, perm=2), world.now_ms),
            ResponseCode.NO_PERMISSION,
            "3",
        ),
        (
            lambda world: world.machine.topics.put(TopicConfig(topic_name=TOPIC, read_queue_nums=1), world.now_ms),
            ResponseCode.INVALID_PARAMETER,
            None,
        ),
    ],
    ids=["broker", "group", "topic", "fewer queues"],
)
def test_what_is_forbidden_while_a_pull_waits(
    world: SimulatedBroker,
    producer: SimulatedClient,
    consumer: SimulatedClient,
    change: Callable[[SimulatedBroker], None],
    code: ResponseCode,
    kind: str | None,
    times_out: bool,
) -> None:
    number = hold(consumer, pull(queue_id=1, wait_ms=15_000))
    change(world)
    if times_out:
        world.pass_time(15_000)
    else:
        ok(producer, send(b"second", queue_id=1, topic=TOPIC))
    answer = consumer.answers[number]
    assert (answer.code, (answer.ext or {}).get("forbiddenType"), answer.body) == (code, kind, b"")


def test_a_queue_that_nothing_was_sent_to(world: SimulatedBroker, producer: SimulatedClient) -> None:
    consumer = world.connect()
    number = hold(consumer, pull(queue_id=2, wait_ms=15_000))
    ok(producer, send(b"the first one", queue_id=2))
    assert bodies(consumer.answers[number]) == [b"the first one"]


def test_the_end_answers_all(world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient) -> None:
    numbers = [hold(consumer, pull(offset=1, wait_ms=ms)) for ms in (1_000, 20_000, 5_000)]
    world.stop()
    assert [consumer.answers[number].code for number in numbers] == [ResponseCode.PULL_NOT_FOUND] * 3


def test_one_way_pulls_are_not_answered(producer: SimulatedClient, consumer: SimulatedClient) -> None:
    command = pull(offset=1, wait_ms=15_000)
    (number,) = consumer.send(Command(command.code, flag=int(CommandFlag.ONE_WAY), ext=command.ext))
    ok(producer, send(b"second"))
    assert number not in consumer.answers


def test_answered_pulls_leave_nothing_behind(
    world: SimulatedBroker, producer: SimulatedClient, consumer: SimulatedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "STALE_MAX", 10)
    polls = world.machine.pull.polls
    last = hold(world.connect(), pull(queue_id=3, wait_ms=9_000))
    for number in range(1, 100):
        hold(consumer, pull(offset=number, wait_ms=15_000))
        ok(producer, send(b"one"))
        assert len(polls._deadlines) <= 10 + 2 * 2 + 1
    assert polls.due_ms(world.now_ms) == world.now_ms + 9_000, "who still waits is not forgotten"
    assert last


def test_a_pull_at_a_damaged_entry_is_woken_when_it_is_repaired(
    world: SimulatedBroker, producer: SimulatedClient
) -> None:
    """A page of the queue was lost after a clean stop."""
    for number in range(5):
        ok(producer, send(b"%d" % number))
    world = world.stop()
    path = ROOT / "consumequeue" / TOPIC / "0" / f"{0:020}"
    content = bytearray(world.disk.read(path) or b"")
    content[20:80] = bytes(60)
    world.disk.install(path, bytes(content))
    client = world.connect()
    waiting = hold(client, pull(offset=1, wait_ms=15_000))
    for _ in range(3):
        world.tick(100)
        world.work()
    assert bodies(client.answers[waiting]) == [b"0", b"1", b"2", b"3", b"4"]
