"""What clients say to a broker, in a line each, for tests that tell a story about one."""

from typing import Any

from kourou.protocol import bodies, headers, properties as _properties
from kourou.protocol.codes import PullSysFlag, RequestCode, Version
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.protocol.record import StoredMessage, decode_records
from kourou.testing.broker import SimulatedBroker, SimulatedClient

TOPIC = "orders"
GROUP = "billing"
BORN_MS = 1_600_000_000_000
VERSION = int(Version.V3_4_9) + 100


def request(code: int, header: headers.Header | None = None, body: bytes = b"", **fields: Any) -> Command:
    return Command(code, version=VERSION, ext=header.encode() if header is not None else None, body=body, **fields)


def send(
    body: bytes = b"hello", topic: str = TOPIC, queue_id: int = 0, properties: dict[str, str] | None = None, **more: Any
) -> Command:
    """SEND_MESSAGE_V2."""
    return request(RequestCode.SEND_MESSAGE_V2, send_header(topic, queue_id, properties, **more), body)


def send_header(
    topic: str = TOPIC, queue_id: int = 0, properties: dict[str, str] | None = None, **more: Any
) -> headers.SendMessageV2:
    fields: dict[str, Any] = {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": BORN_MS,
        "flag": 0,
        "properties": _properties.encode(properties or {}),
    }
    return headers.SendMessageV2(**(fields | more))


def pull(
    topic: str = TOPIC, queue_id: int = 0, offset: int = 0, *, group: str = GROUP, wait_ms: int = 0, **more: Any
) -> Command:
    """PULL_MESSAGE with its own subscription; it waits if `wait_ms` is given."""
    flags = int(PullSysFlag.SUBSCRIPTION) | (int(PullSysFlag.SUSPEND) if wait_ms else 0)
    fields: dict[str, Any] = {
        "consumer_group": group,
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": flags,
        "commit_offset": 0,
        "suspend_timeout_millis": wait_ms,
        "sub_version": 0,
        "subscription": "*",
    }
    return request(RequestCode.PULL_MESSAGE, headers.PullMessage(**(fields | more)))


def heartbeat(
    client_id: str,
    *,
    group: str | None = None,
    producers: str | None = None,
    subscriptions: list[bodies.SubscriptionData] | None = None,
    **more: Any,
) -> Command:
    """HEART_BEAT of a consumer of `TOPIC`, or of a producer."""
    consumers = []
    if group is not None:
        wanted = subscriptions or [bodies.SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1)]
        consumers = [
            bodies.ConsumerData(
                group_name=group,
                consume_type="CONSUME_PASSIVELY",
                message_model=more.pop("message_model", "CLUSTERING"),
                consume_from_where="CONSUME_FROM_LAST_OFFSET",
                subscription_data_set=wanted,
            )
        ]
    speakers = [bodies.ProducerData(group_name=producers)] if producers is not None else []
    beat = bodies.HeartbeatData(client_id=client_id, consumer_data_set=consumers, producer_data_set=speakers, **more)
    return request(RequestCode.HEART_BEAT, body=beat.encode())


def send_back(offset: int, *, group: str = GROUP, level: int = 0, **more: Any) -> Command:
    """CONSUMER_SEND_MSG_BACK."""
    return request(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        headers.ConsumerSendMsgBack(offset=offset, group=group, delay_level=level, **more),
    )


def lock(client_id: str, *queue_ids: int, group: str = GROUP) -> Command:
    queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in queue_ids]
    body = bodies.LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=queues)
    return request(RequestCode.LOCK_BATCH_MQ, body=body.encode())


def messages(world: SimulatedBroker, topic: str = TOPIC, queue_id: int = 0) -> list[StoredMessage]:
    """All messages of a queue that readers see."""
    found: list[StoredMessage] = []
    while True:
        result = world.store.reader.get(topic, queue_id, len(found), 32)
        if not result.records:
            return found
        found += [decode_records(bytes(record))[0] for record in result.records]


def bodies_of(world: SimulatedBroker, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [bytes(message.body) for message in messages(world, topic, queue_id)]


def offset_of(answer: Command) -> int:
    """Where in the log a sent message is, by the id in the answer."""
    assert answer.ext is not None, answer
    return int(answer.ext["msgId"][-16:], 16)


def ok(client: SimulatedClient, command: Command) -> Command:
    """Ask, and expect success."""
    answer = client.ask(command)
    assert answer.code == 0, (answer.code, answer.remark)
    return answer
