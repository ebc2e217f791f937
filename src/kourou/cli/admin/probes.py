"""Test messages, which show whether brokers accept messages, and how fast."""

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.admin.commands import Output, Repeated, Rows, TopicName, command, in_cluster, moment, truth

if TYPE_CHECKING:
    from kourou.client import Client
    from kourou.protocol.message import MessageQueue

PRODUCER = "KOUROU_ADMIN"

Amount = Annotated[int, typer.Option("--amount", "-a", min=1, help="The number of messages.")]
Size = Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes of a message.")]


async def _send(mq: "Client", topic: str, size: int, queue: "MessageQueue | None" = None) -> tuple[object, float]:
    """Send a message. Returns its queue, or the error; and the time of the send in ms."""
    from kourou.protocol.errors import KourouError

    begin = time.perf_counter()
    try:
        found: object = (await mq.producer(PRODUCER).send(topic, b"a" * size, queue=queue)).queue
    except KourouError as error:
        found = error
    return found, (time.perf_counter() - begin) * 1000


@command("checkMsgSendRT")
async def send_times(mq: "Client", topic: TopicName, amount: Amount = 100, size: Size = 128) -> Output:
    """Send messages to the queues of a topic in turn, and show the time of each."""
    from kourou.protocol.message import MessageQueue

    route = await mq.admin.topics.route(topic)
    queues = [
        MessageQueue(topic, data.broker_name or "", number)
        for data in sorted(route.queue_datas, key=lambda one: one.broker_name or "")
        for number in range(data.write_queue_nums)
    ]
    rows: list[list[object]] = []
    times: list[float] = []
    for turn in range(amount):
        queue = queues[turn % len(queues)] if queues else None
        found, spent_ms = await _send(mq, topic, size, queue)
        times.append(spent_ms)
        name, number = (queue.broker_name, queue.queue_id) if queue is not None else ("", None)
        rows.append([name, number, isinstance(found, MessageQueue), spent_ms])
    later = times[1:] or times  # the first one connects
    return Rows(["#Broker Name", "#QID", "#Send Result", "#RT"], rows, {"Avg RT": sum(later) / len(later)})


@command("sendMsgStatus")
async def send_states(
    mq: "Client",
    broker: Annotated[str, typer.Option("--brokerName", "-b", help="Broker name: the topic of the same name is used.")],
    size: Annotated[int, typer.Option("--messageSize", "-s", min=1, help="Bytes of a message.")] = 128,
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="The number of messages.")] = 50,
) -> Output:
    """Send messages to a broker, and show the result of each."""
    producer = mq.producer(PRODUCER)
    rows: list[list[object]] = []
    for _ in range(count):
        begin = time.perf_counter()
        sent = await producer.send(broker, b"a" * size)
        spent_ms = (time.perf_counter() - begin) * 1000
        place = [sent.queue.broker_name, sent.queue.queue_id]
        rows.append([spent_ms, sent.status.name, sent.message_id, *place, sent.queue_offset])
    return Rows(["#RT", "#Status", "#MsgId", "#Broker Name", "#QID", "#Offset"], rows)


@command("clusterRT")
async def cluster_times(
    mq: "Client",
    amount: Amount = 100,
    size: Size = 128,
    cluster: Annotated[str | None, typer.Option("--cluster", "-c", help="Only this cluster.")] = None,
    as_log: Annotated[str, typer.Option("--print log", "-p", help="true: with the time and the room.")] = "false",
    room: Annotated[str, typer.Option("--machine room", "-m", help="Name of the machine room, with -p.")] = "noname",
    interval: Annotated[
        int, typer.Option("--interval", "-i", min=1, metavar="SECONDS", help="Repeat at this interval.")
    ] = 10,
) -> Output:
    """Send messages to all brokers repeatedly, and show the average time."""
    await in_cluster(mq, cluster)  # raises for one that does not exist
    with_room = bool(truth(as_log, "-p"))

    async def ask() -> Output:
        from kourou.protocol.message import MessageQueue

        rows: list[list[object]] = []
        table = (await mq.admin.brokers.cluster()).cluster_addr_table
        for name in [cluster] if cluster is not None else sorted(table):
            for broker in sorted(table.get(name, ())):
                sent = [await _send(mq, broker, size) for _ in range(amount)]
                good = sum(isinstance(found, MessageQueue) for found, _ in sent)
                times = [spent for _, spent in sent][1:] or [sent[0][1]]
                before = [moment(round(time.time() * 1000)), room] if with_room else []
                rows.append([*before, name, broker, sum(times) / len(times), good, amount - good])
        columns = ["#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount"]
        return Rows([*(["#Time", "#Room"] if with_room else []), *columns], rows)

    return Repeated(interval, ask)
