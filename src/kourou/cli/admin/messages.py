"""Messages: querying, printing and sending them."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.admin.commands import (
    Charset,
    Cluster,
    Done,
    Facts,
    Many,
    Output,
    Rows,
    TopicName,
    command,
    in_cluster,
    moment,
    parse_time,
    truth,
)
from kourou.cli.message_form import BodyForm, body_of, message_object
from kourou.cli.running import CommandError
from kourou.protocol.system_names import TRACE_TOPIC

if TYPE_CHECKING:
    from kourou.client import Client, Delivery

MessageId = Annotated[str, typer.Option("--msgId", "-i", help="Message id.")]
OptionalGroup = Annotated[
    str | None,
    typer.Option("--consumerGroup", "-g", help="With -d: have a member of this group consume the message now."),
]
ClientId = Annotated[str | None, typer.Option("--clientId", "-d", help="Client id of that member.")]
SHOWN_BYTES = 4096
SHORT_BYTES = 60


def _facts(message: "Delivery | None", what: str, charset: str = "utf-8") -> Facts:
    if message is None:
        raise CommandError(f"no message with {what}: it was never stored, or it has expired")
    record = message.record
    body = _text(message, charset)
    facts = {
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
        "Body": body if len(body) <= SHOWN_BYTES else f"{body[:SHOWN_BYTES]}…",
    }
    return Facts(facts, {**message_object(message, BodyForm.NONE), "body": body})


def _text(message: "Delivery", charset: str) -> str:
    if charset.lower().replace("-", "") == "utf8":
        return str(body_of(message, BodyForm.TEXT))
    try:
        return bytes.fromhex(str(body_of(message, BodyForm.HEX))).decode(charset, "replace")
    except LookupError:
        raise typer.BadParameter(f"{charset}: the name of a character set is expected, such as UTF-8 or GBK") from None


def _list(messages: "list[Delivery]", charset: str = "utf-8", *, with_body: bool = True) -> Output:
    """Rows for text output; complete objects for JSON."""

    def short(message: "Delivery") -> str:
        text = _text(message, charset)
        return text if len(text) <= SHORT_BYTES else f"{text[:SHORT_BYTES]}…"

    columns = ["#Message ID", "#QID", "#Offset", "#Tag", "#Keys", *(["#Body"] if with_body else [])]
    rows = [
        [one.message_id, one.queue_id, one.queue_offset, one.tag, one.keys, *([short(one)] if with_body else [])]
        for one in messages
    ]
    objects: list[dict[str, Any]] = [
        {**message_object(one, BodyForm.NONE), **({"body": _text(one, charset)} if with_body else {})}
        for one in messages
    ]
    return Rows(columns, rows, objects=objects)


async def _consumed(mq: "Client", message: "Delivery", group: str | None, client_id: str | None) -> Output | None:
    """The result of having a member consume the message, if -g and -d are given."""
    if group is None and client_id is None:
        return None
    if group is None or client_id is None:
        raise typer.BadParameter("give -g and -d together: a group, and the client id of one of its members")
    result = await mq.admin.groups.consume_directly(group, client_id, message.offset_id, topic=message.topic)
    return Facts(
        {
            "Consume Result": result.consume_result,
            "Remark": result.remark,
            "Spent (ms)": result.spent_time_mills,
        }
    )


@command("queryMsgById")
async def by_id(
    mq: "Client",
    message_id: MessageId,
    topic: Annotated[str | None, typer.Option("--topic", "-t", help="Topic.")] = None,
    group: OptionalGroup = None,
    client_id: ClientId = None,
    resend: Annotated[str, typer.Option("--sendMessage", "-s", help="true: send it to its topic again.")] = "false",
    unit: Annotated[str | None, typer.Option("--unitName", "-u", help="Unit of the sender, with -s.")] = None,
    charset: Charset = "UTF-8",
    cluster: Cluster = None,
) -> Output:
    """Find messages by offset id or, with the topic, by unique id. Several ids are separated by commas."""
    await in_cluster(mq, cluster)  # raises for one that does not exist
    outputs: list[Output] = []
    for one in filter(None, (word.strip() for word in message_id.split(","))):
        message = await mq.admin.messages.by_id(one, topic)
        outputs.append(_facts(message, f"id {one}", charset))
        assert message is not None
        if truth(resend, "-s"):
            outputs.append(await _sent_again(mq, message, unit))
        elif (consumed := await _consumed(mq, message, group, client_id)) is not None:
            outputs.append(consumed)
    return outputs[0] if len(outputs) == 1 else Many(outputs)


async def _sent_again(mq: "Client", message: "Delivery", unit: str | None) -> Output:
    properties = {name: value for name, value in message.properties.items() if not _is_reserved(name)}
    if unit is not None:
        properties["UNIT_NAME"] = unit
    sent = await mq.send(message.topic, message.body, tag=message.tag, keys=message.keys, properties=properties)
    return Done(f"sent again as {sent.message_id}: {sent.status.name}")


def _is_reserved(name: str) -> bool:
    from kourou.protocol.properties import RESERVED

    return name in RESERVED


@command("queryMsgByUniqueKey")
async def by_unique_key(
    mq: "Client",
    message_id: MessageId,
    topic: TopicName,
    group: OptionalGroup = None,
    client_id: ClientId = None,
    show_all: Annotated[
        bool, typer.Option("--showAll", "-a", help="Show all messages with this id, at most 32.")
    ] = False,
    cluster: Cluster = None,
    begin_ms: Annotated[int, typer.Option("--startTime", "-s", help="Stored at this time or later, in ms.")] = 0,
    end_ms: Annotated[int, typer.Option("--endTime", "-e", help="Stored at this time or earlier, in ms.")] = 2**63 - 1,
) -> Output:
    """Find a message by its unique id, which its producer received."""
    is_wanted = await in_cluster(mq, cluster)
    messages = [
        message
        for message in await mq.admin.messages.by_unique_key(topic, message_id)
        if is_wanted(message.queue.broker_name) and begin_ms <= message.stored_ms <= end_ms
    ]
    if not messages:
        return _facts(None, f"unique id {message_id} in {topic}")
    outputs: list[Output] = [_facts(message, "") for message in (messages if show_all else messages[:1])]
    if (consumed := await _consumed(mq, messages[0], group, client_id)) is not None:
        outputs.append(consumed)
    return outputs[0] if len(outputs) == 1 else Many(outputs)


@command("queryMsgByKey")
async def by_key(
    mq: "Client",
    topic: TopicName,
    key: Annotated[str, typer.Option("--msgKey", "-k", help="Key.")],
    count: Annotated[int, typer.Option("--maxNum", "-m", min=1, help="Maximum number of messages.")] = 64,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    cluster: Cluster = None,
    kind: Annotated[str, typer.Option("--keyType", "-p", help="K: a key. T: a tag.")] = "K",
    last_key: Annotated[
        str | None, typer.Option("--lastKey", "-l", help="Not supported: continues after a page of RocksDB's index.")
    ] = None,
) -> Output:
    """Find messages by key."""
    if last_key is not None:
        raise CommandError("an index in files has no pages: for -l use mqadmin with a broker that has RocksDB")
    if kind not in ("K", "T"):
        raise typer.BadParameter(f"-p {kind}: K (a key) or T (a tag) is expected")
    is_wanted = await in_cluster(mq, cluster)
    query = mq.admin.messages.by_key if kind == "K" else mq.admin.messages.by_tag
    found = await query(
        topic,
        key,
        count=count,
        begin=None if begin is None else parse_time(begin),
        end=None if end is None else parse_time(end),
    )
    found = [message for message in found if is_wanted(message.queue.broker_name)]
    if not found:
        what = "key" if kind == "K" else "tag"
        raise CommandError(f"no message with {what} {key} in {topic}: it was never stored, or it has expired")
    return _list(found)


@command("queryMsgTraceById")
async def trace_by_id(
    mq: "Client",
    message_id: MessageId,
    topic: Annotated[
        str, typer.Option("--traceTopic", "-t", help="The topic that clients send their traces to.")
    ] = TRACE_TOPIC,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    count: Annotated[int, typer.Option("--maxNum", "-c", min=1, help="Maximum number per broker.")] = 64,
) -> Output:
    """Show what producers and consumers recorded about a message."""
    from kourou.protocol.traces import PUB, SUB_AFTER, decode_traces

    found = await mq.admin.messages.by_key(
        topic,
        message_id,
        count=count,
        begin=None if begin is None else parse_time(begin),
        end=None if end is None else parse_time(end),
    )
    traces = [
        (trace, message.record.born_address.rpartition(":")[0])
        for message in found
        for trace in decode_traces(message.body)
        if trace.message_id == message_id
    ]
    if not traces:
        raise CommandError(f"no trace of {message_id} in {topic}: its clients do not record traces, or it has expired")
    names = {PUB: "Pub", SUB_AFTER: "Sub"}
    rows = [
        [
            names[trace.kind],
            trace.group,
            host,
            moment(trace.time_ms) if trace.time_ms is not None else None,
            f"{trace.cost_ms}ms",
            "success" if trace.is_success else "failed",
        ]
        for trace, host in sorted(traces, key=lambda one: (one[0].kind != PUB, one[0].group or ""))
        if trace.kind in names
    ]
    return Rows(["#Type", "#Group", "#ClientHost", "#Time", "#CostTimes", "#Status"], rows)


@command("queryMsgByOffset")
async def by_offset(
    mq: "Client",
    topic: TopicName,
    broker: Annotated[str, typer.Option("--brokerName", "-b", help="Broker name.")],
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue.")],
    offset: Annotated[int, typer.Option("--offset", "-o", help="Offset.")],
    charset: Charset = "UTF-8",
    route_topic: Annotated[
        str | None, typer.Option("--routeTopic", "-r", help="Topic whose route is used, for a light queue.")
    ] = None,
) -> Output:
    """Show the message at an offset of a queue."""
    if route_topic not in (None, topic):
        raise CommandError("-r: queues of light topics can't be read here: use mqadmin")
    from kourou.protocol.message import MessageQueue

    queue = MessageQueue(topic, broker, queue_id)
    found = await mq.admin.messages.by_offset(queue, offset)
    return _facts(found, f"offset {offset} in queue {queue_id} of {topic}", charset)


@command("printMsg")
async def print_messages(
    mq: "Client",
    topic: TopicName,
    charset: Annotated[str, typer.Option("--charsetName", "-c", help="Character set of the bodies.")] = "UTF-8",
    tags: Annotated[str | None, typer.Option("--subExpression", "-s", help="tagA || tagB")] = None,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    with_body: Annotated[str, typer.Option("--printBody", "-d", help="false: leave out the bodies.")] = "true",
    parent: Annotated[
        str | None, typer.Option("--lmqParentTopic", "-l", help="Parent topic, for a light queue: its route is used.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of messages.")] = 1000,
) -> Output:
    """Print the messages of a topic, queue by queue."""
    found: list[Delivery] = []
    start = 0.0 if begin is None else (parse_time(begin) or 0.0)
    stop = None if end is None else parse_time(end)
    async for message in mq.admin.messages.by_time(parent or topic, start, stop, tags=tags):
        found.append(message)
        if len(found) >= limit:
            break
    return _list(found, charset, with_body=truth(with_body, "-d") is not False)


@command("printMsgByQueue")
async def print_queue(
    mq: "Client",
    topic: TopicName,
    broker: Annotated[str, typer.Option("--brokerName", "-a", help="Broker name.")],
    queue_id: Annotated[int, typer.Option("--queueId", "-i", help="Queue.")],
    charset: Annotated[str, typer.Option("--charsetName", "-c", help="Character set of the bodies.")] = "UTF-8",
    tags: Annotated[str | None, typer.Option("--subExpression", "-s", help="tagA || tagB")] = None,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-b", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    with_messages: Annotated[str, typer.Option("--print msg", "-p", help="true: show the messages.")] = "false",
    with_body: Annotated[str, typer.Option("--printBody", "-d", help="true: show the bodies.")] = "false",
    by_tag: Annotated[str, typer.Option("--calculate", "-f", help="true: count the messages of each tag.")] = "false",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Maximum number of messages.")] = 1000,
) -> Output:
    """Print or count the messages of one queue."""
    from kourou.protocol.message import MessageQueue

    first = 0.0 if begin is None else (parse_time(begin) or 0.0)
    last = None if end is None else parse_time(end)
    found: list[Delivery] = []
    async for message in mq.admin.messages.scan(MessageQueue(topic, broker, queue_id), tags=tags):
        if message.stored_ms < first * 1000 or (last is not None and message.stored_ms > last * 1000):
            continue
        found.append(message)
        if len(found) >= limit:
            break
    outputs: list[Output] = []
    if truth(with_messages, "-p"):
        outputs.append(_list(found, charset, with_body=bool(truth(with_body, "-d"))))
    if truth(by_tag, "-f"):
        counts = Counter(message.tag or "" for message in found)
        outputs.append(Rows(["#Tag", "#Count"], [list(row) for row in counts.most_common()]))
    return Many(outputs or [Done(f"{len(found)} messages: -p true shows them, -f true counts them by tag")])


@command("consumeMessage")
async def consume_messages(
    mq: "Client",
    topic: TopicName,
    broker: Annotated[str | None, typer.Option("--brokerName", "-b", help="With -i: broker name.")] = None,
    queue_id: Annotated[int | None, typer.Option("--queueId", "-i", help="With -b: one queue.")] = None,
    offset: Annotated[int | None, typer.Option("--offset", "-o", help="With -i: from this offset on.")] = None,
    group: Annotated[  # noqa: ARG001
        str | None, typer.Option("--consumerGroup", "-g", help="Accepted as in mqadmin; offsets are not changed.")
    ] = None,
    begin: Annotated[str | None, typer.Option("--beginTimestamp", "-s", help="Stored at this time or later.")] = None,
    end: Annotated[str | None, typer.Option("--endTimestamp", "-e", help="Stored at this time or earlier.")] = None,
    count: Annotated[int, typer.Option("--MessageNumber", "-c", min=1, help="Maximum number of messages.")] = 128,
) -> Output:
    """Print messages of a topic or a queue. Offsets of groups do not change."""
    from kourou.protocol.message import MessageQueue

    if (broker is None) != (queue_id is None) or (offset is not None and queue_id is None):
        raise typer.BadParameter("give -b and -i together, and -o only with them")
    first = 0.0 if begin is None else (parse_time(begin) or 0.0)
    last = None if end is None else parse_time(end)
    if broker is None or queue_id is None:
        messages = mq.admin.messages.by_time(topic, first, last)
    else:
        messages = mq.admin.messages.scan(MessageQueue(topic, broker, queue_id), offset)
    found: list[Delivery] = []
    async for message in messages:
        if message.stored_ms >= first * 1000 and (last is None or message.stored_ms <= last * 1000):
            found.append(message)
        if len(found) >= count:
            break
    return _list(found)


@command("sendMessage")
async def send_message(
    mq: "Client",
    topic: TopicName,
    body: Annotated[str, typer.Option("--body", "-p", help="Body.")],
    keys: Annotated[str, typer.Option("--key", "-k", help="Keys, separated by spaces.")] = "",
    tag: Annotated[str | None, typer.Option("--tags", "-c", help="Tag.")] = None,
    broker: Annotated[str | None, typer.Option("--broker", "-b", help="Name of the broker to send to.")] = None,
    queue_id: Annotated[int | None, typer.Option("--qid", "-i", help="With -b: the queue to send to.")] = None,
    trace: Annotated[str, typer.Option("--msgTraceEnable", "-m", help="true: send a trace of the message.")] = "false",
) -> Output:
    """Send a message."""
    from kourou.client import ProducerSettings
    from kourou.protocol.message import MessageQueue

    if queue_id is not None and broker is None:
        raise typer.BadParameter("-i needs -b: the broker that has the queue")
    producer = mq.producer("KOUROU_ADMIN", ProducerSettings(trace=bool(truth(trace, "-m"))))
    queue = None
    if broker is not None:
        counts = {one.broker_name: one.write_queue_nums for one in (await mq.admin.topics.route(topic)).queue_datas}
        if broker not in counts:
            raise CommandError(f"no broker {broker!r} serves topic {topic!r}")
        if queue_id is not None and not 0 <= queue_id < counts[broker]:
            raise CommandError(f"-i {queue_id}: {topic} has queues 0 to {counts[broker] - 1} on {broker}")
        queue = MessageQueue(topic, broker, queue_id or 0)
    sent = await producer.send(topic, body.encode(), tag=tag, keys=keys.split(), queue=queue)
    row = [sent.queue.broker_name, sent.queue.queue_id, sent.status.name, sent.message_id]
    return Rows(["#Broker Name", "#QID", "#Send Result", "#MsgId"], [row])


@command("queryCq")
async def queue_entries(
    mq: "Client",
    topic: TopicName,
    queue_id: Annotated[int, typer.Option("--queue", "-q", help="Queue.")],
    index: Annotated[int, typer.Option("--index", "-i", help="The first entry to show.")],
    broker: Annotated[
        str | None, typer.Option("--broker", "-b", help="Broker, host:port (default: the first).")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-c", help="The number of entries.")] = 10,
    group: Annotated[
        str | None, typer.Option("--consumer", "-g", help="Show whether the filter of this group accepts each entry.")
    ] = None,
) -> Output:
    """Show entries of a consume queue as they are stored."""
    from kourou.client.admin.requests import AdminRequests
    from kourou.protocol.bodies import QueryConsumeQueueResponseBody
    from kourou.protocol.codes import RequestCode
    from kourou.protocol.headers import QueryConsumeQueue

    requests = AdminRequests(mq.session)
    address = broker or (await requests.masters_of(topic))[0]
    header = QueryConsumeQueue(
        topic=mq.session.wrap(topic), queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    answer = await requests.broker(address, RequestCode.QUERY_CONSUME_QUEUE, header)
    if not answer.body:  # Apache's broker answers like this if the entry does not exist
        raise CommandError(answer.remark or f"queue {queue_id} of {topic} has no entry {index}")
    found = QueryConsumeQueueResponseBody.decode(answer.body)
    rows = [
        [index + number, one.physic_offset, one.physic_size, one.tags_code]
        for number, one in enumerate(found.queue_data or [])
    ]
    summary: dict[str, object] = {"Min Offset": found.min_queue_index, "Max Offset": found.max_queue_index}
    if group is not None:
        summary["Filter Data"] = found.filter_data
    return Rows(["#Offset", "#CommitLog Offset", "#Size", "#Tags Code"], rows, summary)
