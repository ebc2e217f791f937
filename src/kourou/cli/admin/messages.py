"""Messages: looking them up, printing them, sending one."""

from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import Facts, Output, Rows, TopicName, command, moment, parse_time
from kourou.cli.running import CommandError

if TYPE_CHECKING:
    from kourou.client import Client, Delivery

MessageId = Annotated[str, typer.Option("--msgId", "-i", help="Message id.")]
SHOWN_BYTES = 4096


def _facts(message: "Delivery | None", what: str) -> Facts:
    if message is None:
        raise CommandError(f"no message with {what}: it was never stored here, or it has expired")
    record = message.record
    body = message.body
    return Facts(
        {
            "OffsetID": message.offset_id,
            "Topic": message.topic,
            "Tags": message.tag,
            "Keys": " ".join(message.keys),
            "Queue ID": record.queue_id,
            "Queue Offset": record.queue_offset,
            "CommitLog Offset": record.physical_offset,
            "Reconsume Times": record.reconsume_times,
            "Born Timestamp": moment(record.born_ms),
            "Store Timestamp": moment(record.stored_ms),
            "Born Host": record.born_address,
            "Store Host": record.store_address,
            "System Flag": record.sys_flag,
            "Properties": message.properties,
            "Body": body[:SHOWN_BYTES].decode("utf-8", "backslashreplace") + ("…" if len(body) > SHOWN_BYTES else ""),
        }
    )


def _rows(messages: "list[Delivery]") -> Rows:
    rows = [
        [one.message_id, one.record.queue_id, one.record.queue_offset, one.tag, " ".join(one.keys), _short(one.body)]
        for one in messages
    ]
    return Rows(["#Message ID", "#QID", "#Offset", "#Tag", "#Keys", "#Body"], rows)


def _short(body: bytes) -> str:
    return body[:60].decode("utf-8", "backslashreplace") + ("…" if len(body) > 60 else "")


@command("queryMsgById")
async def by_id(
    mq: "Client", message_id: MessageId, topic: Annotated[str | None, typer.Option("--topic", "-t")] = None
) -> Output:
    """A message by the id of its place or, with its topic, by the id that its producer was given."""
    return _facts(await mq.admin.messages.by_id(message_id, topic), f"id {message_id}")


@command("queryMsgByUniqueKey")
async def by_unique_key(mq: "Client", message_id: MessageId, topic: TopicName) -> Output:
    """A message by the id that its producer was given."""
    found = await mq.admin.messages.by_unique_key(topic, message_id)
    return _facts(found[0] if found else None, f"unique id {message_id} in {topic}")


@command("queryMsgByKey")
async def by_key(
    mq: "Client",
    topic: TopicName,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Key.")],
    count: Annotated[int, typer.Option("--maxNum", "-m", help="So many at most.")] = 64,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
) -> Output:
    """Messages with a key."""
    found = await mq.admin.messages.by_key(
        topic,
        key,
        count=count,
        begin=None if begin is None else parse_time(begin),
        end=None if end is None else parse_time(end),
    )
    return _rows(found)


@command("queryMsgByOffset")
async def by_offset(
    mq: "Client",
    topic: TopicName,
    broker: Annotated[str, typer.Option("--brokerName", "-b", help="Broker name.")],
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue.")],
    offset: Annotated[int, typer.Option("--offset", "-o", help="Offset.")],
) -> Output:
    """The message at an offset of a queue."""
    from kourou.protocol.message import MessageQueue

    queue = MessageQueue(topic, broker, queue_id)
    return _facts(await mq.admin.messages.by_offset(queue, offset), f"offset {offset} in queue {queue_id} of {topic}")


@command("printMsg")
async def print_messages(
    mq: "Client",
    topic: TopicName,
    tags: Annotated[str | None, typer.Option("--subExpression", "-s", help="tagA || tagB")] = None,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-l", min=1, help="So many at most.")] = 1000,
) -> Output:
    """The messages of a topic, queue by queue."""
    found: list[Delivery] = []
    start = 0.0 if begin is None else (parse_time(begin) or 0.0)
    async for message in mq.admin.messages.by_time(topic, start, None if end is None else parse_time(end), tags=tags):
        found.append(message)
        if len(found) >= limit:
            break
    return _rows(found)


@command("sendMessage")
async def send_message(
    mq: "Client",
    topic: TopicName,
    body: Annotated[str, typer.Option("--body", "-p", help="Body.")],
    keys: Annotated[str, typer.Option("--key", "-k", help="Keys, blank separated.")] = "",
    tag: Annotated[str | None, typer.Option("--tags", "-c", help="Tag.")] = None,
) -> Output:
    """Send a message."""
    sent = await mq.send(topic, body.encode(), tag=tag, keys=keys.split())
    row = [sent.queue.broker_name, sent.queue.queue_id, sent.status.name, sent.message_id]
    return Rows(["#Broker Name", "#QID", "#Send Result", "#MsgId"], [row])


@command("queryCq")
async def queue_entries(
    mq: "Client",
    topic: TopicName,
    queue_id: Annotated[int, typer.Option("--queue", "-q", help="Queue.")],
    index: Annotated[int, typer.Option("--index", "-i", help="From this offset on.")],
    broker: Annotated[str, typer.Option("--broker", "-b", help="Broker, host:port.")],
    count: Annotated[int, typer.Option("--count", "-c", help="So many.")] = 10,
) -> Output:
    """Entries of a consume queue, as they are stored."""
    from kourou.protocol.message import MessageQueue

    found = await mq.admin.messages.queue_entries(broker, MessageQueue(topic, "", queue_id), index, count)
    rows = [
        [index + number, one.physic_offset, one.physic_size, one.tags_code]
        for number, one in enumerate(found.queue_data or [])
    ]
    note = f"min {found.min_queue_index}, max {found.max_queue_index}"
    return Rows(["#Offset", "#CommitLog Offset", "#Size", "#Tags Code"], rows, note)
