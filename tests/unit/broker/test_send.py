"""Sending: what is stored, what is answered, what is refused."""

import errno
import math
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.broker.asking import BORN_MS, TOPIC, bodies_of, messages, offset_of, ok, request, send, send_header

from kourou.broker.events import Run
from kourou.broker.settings import READ, BrokerSettings, Role
from kourou.protocol import headers
from kourou.protocol.batch import encode_batch
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode, Version
from kourou.protocol.command import Command
from kourou.protocol.message import Message
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient

ALWAYS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
RETRY = "%RETRY%billing"
DEAD = "%DLQ%billing"


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


@pytest.fixture
def client(world: SimulatedBroker) -> SimulatedClient:
    return world.connect()


@pytest.mark.parametrize("count", [1, 2_000])
def test_with_sync_flush_the_first_message_of_a_topic_is_acknowledged_when_the_topic_is_on_disk_too(count: int) -> None:
    """2,000 messages are a batch that is stored in slices."""
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC, commit_log_file_size=1024 * 1024, max_body_size=512 * 1024)
    world = SimulatedBroker(store_settings=sync, lazy=True)
    world.work()
    client = world.connect()
    if count == 1:
        (opaque,) = client.send(send(b"first", "new"))
    else:
        body = encode_batch([Message("new", bytes(40)) for _ in range(count)])
        header = send_header("new", 0, batch=True)
        (opaque,) = client.send(request(RequestCode.SEND_BATCH_MESSAGE, header, body))
    while any(isinstance(work, Run) for work in world.undone):
        world.work(choose=lambda _: [isinstance(work, Run) for work in world.undone].index(True), limit=1)
    assert opaque not in client.answers, "only the log is on disk"
    world.work()
    assert client.answers[opaque].code == 0
    assert "new" in world.crash().machine.topics.table


# ── One message ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_stored(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send(b"hello", queue_id=2, properties={"TAGS": "paid", "UNIQ_KEY": "U1", "POP_CK": "x"}, flag=9))
    (stored,) = messages(world, queue_id=2)
    assert (bytes(stored.body), stored.flag, stored.born_ms, stored.stored_ms) == (b"hello", 9, BORN_MS, world.now_ms)
    assert stored.born_address == client.peer.address
    assert stored.properties == {"TAGS": "paid", "UNIQ_KEY": "U1", "CLUSTER": "DefaultCluster", **ALWAYS}


def test_what_is_answered(client: SimulatedClient) -> None:
    ok(client, send())
    answer = ok(client, send(properties={"UNIQ_KEY": "U2"}))
    assert answer.ext == {
        "msgId": f"7F00000100002A9F{offset_of(answer):016X}",
        "queueId": "0",
        "queueOffset": "1",
        "transactionId": "U2",
        **ALWAYS,
    }


def test_a_message_without_a_unique_key_gets_one(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = ok(client, send())
    assert answer.ext is not None
    assert messages(world)[0].properties["UNIQ_KEY"] == answer.ext["transactionId"]


def test_the_long_form_of_the_header(world: SimulatedBroker, client: SimulatedClient) -> None:
    header = headers.SendMessage(
        producer_group="producers",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=1,
        sys_flag=0,
        born_timestamp=BORN_MS,
        flag=0,
        properties="KEYS\x01k\x02",
    )
    ok(client, request(RequestCode.SEND_MESSAGE, header, b"long"))
    assert bodies_of(world, queue_id=1) == [b"long"]


def test_one_way(world: SimulatedBroker, client: SimulatedClient) -> None:
    command = send(b"hello")
    (number,) = client.send(Command(command.code, flag=int(CommandFlag.ONE_WAY), ext=command.ext, body=command.body))
    assert number not in client.answers
    assert bodies_of(world) == [b"hello"]


def test_any_queue_if_none_is_chosen(world: SimulatedBroker, client: SimulatedClient) -> None:
    answers = [ok(client, send(queue_id=-1)) for _ in range(40)]
    assert {(answer.ext or {})["queueId"] for answer in answers} == {"0", "1", "2", "3"}


def test_many_in_one_read_are_answered_in_order(world: SimulatedBroker, client: SimulatedClient) -> None:
    numbers = client.send(*(send(b"%d" % n) for n in range(20)))
    assert [(client.answers[n].ext or {})["queueOffset"] for n in numbers] == [str(n) for n in range(20)]
    assert bodies_of(world) == [b"%d" % n for n in range(20)]


# ── Topics ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_topic_is_made_after_the_default_one(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send())
    topic = world.machine.topics.get(TOPIC)
    assert topic is not None
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 4, 6)
    ok(client, send(topic="wide", default_topic_queue_nums=100))
    wide = world.machine.topics.get("wide")
    assert wide is not None and wide.write_queue_nums == 8


def test_a_new_topic_is_kept_before_the_answer_leaves(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.lazy = True
    (number,) = client.send(send())
    assert number not in client.answers
    world.work()
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert world.crash().machine.topics.get(TOPIC) is not None


def test_a_topic_that_can_not_be_kept(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.disk.fail("replace", errno.ENOSPC, where="*topics.json", times=math.inf)
    (number,) = client.send(send())
    world.pass_time(3_000)
    answer = client.answers[number]
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "topics can't be written" in (answer.remark or "")


@pytest.mark.parametrize(
    ("topic", "code", "remark"),
    [
        ("", ResponseCode.INVALID_PARAMETER, "The specified topic is blank."),
        ("a/../b", ResponseCode.INVALID_PARAMETER, "contains illegal characters"),
        ("t" * 128, ResponseCode.INVALID_PARAMETER, "is longer than topic max length: 127"),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION, "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbid"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION, "is forbidden."),
    ],
)
def test_topics_that_clients_may_not_send_to(
    world: SimulatedBroker, client: SimulatedClient, topic: str, code: int, remark: str
) -> None:
    answer = client.ask(send(topic=topic))
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert answer.ext == ALWAYS
    assert world.store.log.end == 0


def test_without_automatic_topics() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_topics=False))
    answer = world.connect().ask(send())
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert (answer.remark or "").startswith(f"topic[{TOPIC}] not exist, apply first please!")


def test_so_many_automatic_topics_and_not_more() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_topics_max=3))
    client = world.connect()
    codes = [client.ask(send(topic=f"t{n}")).code for n in range(5)]
    assert codes == [0, 0, 0, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST]
    ok(client, send(topic="t0"))


def test_a_queue_that_the_topic_has_not(client: SimulatedClient) -> None:
    ok(client, send())
    answer = client.ask(send(queue_id=4))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (answer.remark or "").startswith("request queueId[4] is illegal, TopicConfig [topicName=orders, readQueue")


def test_a_topic_without_queues_to_write_to(world: SimulatedBroker, client: SimulatedClient) -> None:
    world.machine.topics.put(TopicConfig(topic_name=TOPIC, write_queue_nums=0, read_queue_nums=4), world.now_ms)
    assert client.ask(send(queue_id=-1)).code == ResponseCode.SYSTEM_ERROR


def test_a_broker_that_may_not_be_written_to_refuses_ordered_topics_alone() -> None:
    world = SimulatedBroker(settings=BrokerSettings(permission=READ))
    client = world.connect()
    ok(client, send())
    world.machine.topics.put(TopicConfig(topic_name="ordered", order=True), world.now_ms)
    assert client.ask(send(topic="ordered")).code == ResponseCode.NO_PERMISSION


# ── State ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        (BrokerSettings(role=Role.SLAVE, broker_id=1), ResponseCode.SYSTEM_BUSY),
        (BrokerSettings(accept_sends_from_ms=2**50), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_when_nothing_may_be_sent(settings: BrokerSettings, code: int) -> None:
    answer = SimulatedBroker(settings=settings).connect().ask(send())
    assert (answer.code, answer.ext) == (code, ALWAYS)


def test_too_many_that_wait_for_the_disk() -> None:
    settings = BrokerSettings(waiting_sends_max=3)
    world = SimulatedBroker(settings=settings, store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    client = world.connect()
    ok(client, send())
    world.lazy = True
    numbers = client.send(*(send() for _ in range(5)))
    assert [client.answers[n].code for n in numbers[3:]] == [ResponseCode.SYSTEM_BUSY] * 2
    world.work()
    assert [client.answers[n].code for n in numbers[:3]] == [ResponseCode.SUCCESS] * 3
    world.lazy = False
    ok(client, send())


def test_a_disk_that_takes_too_long() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    client = world.connect()
    ok(client, send())
    world.lazy = True
    (number,) = client.send(send())
    world.pass_time(5_100)
    answer = client.answers[number]
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert answer.ext is not None and answer.ext["queueOffset"] == "1", "it is stored, and says where"


def test_a_message_that_the_disk_lost() -> None:
    """A sync fails, and the system drops pages that it never wrote: the sender is told to send again."""
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    client = world.connect()
    ok(client, send())
    world.disk.fail("sync", errno.EIO, where="*commitlog*")
    world.lazy = True
    (number,) = client.send(send(bytes(5_000)))
    world.work()
    world.disk.evict()
    world.lazy = False
    world.pass_time(3_000)
    answer = client.answers[number]
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "lost" in (answer.remark or "") and "send it again" in (answer.remark or "")
    assert (ok(client, send()).ext or {})["queueOffset"] == "1"


def test_senders_that_do_not_wait_are_answered_at_once() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC))
    client = world.connect()
    ok(client, send())
    world.lazy = True
    ok(client, send(properties={"WAIT": "false"}))


def test_a_failing_disk(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send())
    world.disk.fail("sync", errno.EIO, where="*commitlog*", times=math.inf)
    world.disk.fail("create", errno.EIO, where="*commitlog*", times=math.inf)
    world.pass_time(1_000)
    answer = client.ask(send())
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (answer.remark or "").startswith("service not available now. It may be caused by one of the following")
    world.disk.heal()
    world.pass_time(3_000)
    ok(client, send())


@pytest.mark.parametrize(
    "command",
    [
        send(bytes(SMALL_STORE.max_body_size + 1)),
        send(properties={"much": "x" * 32_700}),
    ],
    ids=["body", "properties"],
)
def test_what_is_too_large(client: SimulatedClient, command: Command) -> None:
    ok(client, send())
    answer = client.ask(command)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (answer.remark or "").startswith("the message is illegal, maybe msg body or properties length not matched.")


def test_an_empty_body(client: SimulatedClient) -> None:
    """A single message has one, for Java's broker takes an empty one for none; those of a batch need not."""
    answer = client.ask(send(b""))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert (answer.remark or "").endswith("its body is empty")


@pytest.mark.parametrize("fields", [{"sys_flag": 0x80}, {"sys_flag": 0xC0}, {"properties": {"INNER_NUM": "3"}}])
def test_no_client_sends_a_batch_in_one_record(
    world: SimulatedBroker, client: SimulatedClient, fields: dict[str, Any]
) -> None:
    """Consumers would take its body apart, whatever it is."""
    ok(client, send())
    end = world.store.log.end
    answer = client.ask(send(**fields))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "a batch in one record" in (answer.remark or "")
    assert (world.store.log.end, world.machine.writer.failed) == (end, 1)


@pytest.mark.parametrize("level", [" 3", "1_0", "three", "9" * 30])
def test_delay_levels_are_numbers(client: SimulatedClient, level: str) -> None:
    answer = client.ask(send(properties={"DELAY": level}))
    assert (answer.code, answer.remark) == (1, f"the delay level is {level!r}, a number is expected")


@pytest.mark.parametrize("code", [310, 320, 10, 324, 325, 36, 11, 34, 15, 14, 41, 12, 33, 29, 30])
@pytest.mark.parametrize("ext", [None, {}, {"a": "x", "queueId": "x", "offset": "-", "e": "1e9"}])
def test_headers_that_make_no_sense(client: SimulatedClient, code: int, ext: dict[str, str] | None) -> None:
    answer = client.ask(Command(code, ext=ext, body=b"\x00{"))
    assert answer.code != ResponseCode.SUCCESS or code in (34, 41)


# ── Batches ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def batch(*bodies: bytes, topic: str = TOPIC, **more: Any) -> Command:
    body = encode_batch([Message(TOPIC, body, properties={"KEYS": f"k{n}"}) for n, body in enumerate(bodies)])
    return request(RequestCode.SEND_BATCH_MESSAGE, send_header(topic, batch=True, **more), body)


def test_a_batch_becomes_as_many_messages(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send(b"before"))
    answer = ok(client, batch(b"one", b"two", b"three"))
    assert answer.ext is not None
    assert (answer.ext["queueOffset"], len(answer.ext["msgId"].split(","))) == ("1", 3)
    assert bodies_of(world) == [b"before", b"one", b"two", b"three"]
    assert [message.properties["KEYS"] for message in messages(world)[1:]] == ["k0", "k1", "k2"]
    offsets = [int(text[-16:], 16) for text in answer.ext["msgId"].split(",")]
    assert offsets == [message.physical_offset for message in messages(world)[1:]]


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (batch(b"one", topic=RETRY), f"batch request does not support retry group {RETRY}"),
        (request(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True)), "the batch is empty"),
        (request(RequestCode.SEND_BATCH_MESSAGE, send_header(batch=True), b"\x00\x00\x00\x63"), "the batch does not"),
        (batch(b"one", properties={"DELAY": "3"}), "a batch can't be delayed"),
        (batch(b"one", properties={"TIMER_DELAY_SEC": "3"}), "a batch can't be delayed"),
        (batch(b"one", sys_flag=4), "a batch can't be of a transaction"),
        (batch(b"one", sys_flag=8), "a batch can't be of a transaction"),
        (batch(b"one", sys_flag=0x80), "a batch in one record"),
        (batch(b"one", properties={"INNER_NUM": "3"}), "a batch in one record"),
    ],
)
def test_batches_that_are_refused(
    world: SimulatedBroker, client: SimulatedClient, command: Command, remark: str
) -> None:
    answer = client.ask(command)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert remark in (answer.remark or "")
    assert world.store.log.end == 0


def test_a_batch_with_one_message_too_large_stores_nothing(world: SimulatedBroker, client: SimulatedClient) -> None:
    answer = client.ask(batch(b"one", bytes(SMALL_STORE.max_body_size + 1)))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert world.store.log.end == 0


# ── Sends to retry topics ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_consumer_sends_to_its_retry_topic_itself(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send(b"again", RETRY, 0, {"DELAY": "1"}, reconsume_times=1, max_reconsume_times=16))
    world.pass_time(1_000)
    (copy,) = messages(world, RETRY)
    assert copy.reconsume_times == 1


def test_too_many_tries_are_dead_letters(world: SimulatedBroker, client: SimulatedClient) -> None:
    ok(client, send(b"again", RETRY, 0, {"DELAY": "3"}, reconsume_times=17))
    ok(client, send(b"and again", RETRY, 0, {"DELAY": "3"}, reconsume_times=3, max_reconsume_times=2))
    assert bodies_of(world, DEAD) == [b"again", b"and again"]
    assert messages(world, DEAD)[0].properties["DELAY"] == "-1"


def test_old_clients_go_by_the_group(world: SimulatedBroker, client: SimulatedClient) -> None:
    command = send(b"again", RETRY, 0, {"DELAY": "3"}, reconsume_times=3, max_reconsume_times=2)
    ok(client, Command(command.code, version=int(Version.V3_4_9) - 1, ext=command.ext, body=command.body))
    assert not messages(world, DEAD)


def test_a_retry_topic_of_a_group_that_is_not_there() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False))
    answer = world.connect().ask(send(b"again", RETRY))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
