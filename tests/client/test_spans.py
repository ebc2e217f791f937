"""OpenTelemetry's spans of sends and of processing, joined over the broker by W3C's trace context."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.waiting import eventually

from kourou.client import (
    Client,
    ClosedError,
    Delivery,
    InvalidMessageError,
    Message,
    MessageQueue,
    RefusedError,
    RetryLater,
    connect,
    spans,
)

from .conftest import PATIENT, World
from .steps import make_topic


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """The spans of the test, of a provider that only this client sees."""
    provider, memory = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    monkeypatch.setattr(spans, "_tracer", lambda _trace: provider.get_tracer("kourou"))
    yield memory
    provider.shutdown()


def found(exported: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [one for one in exported.get_finished_spans() if one.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_processing_is_a_child_of_the_send(
    mq: Client, world: World, name: str, exported: InMemorySpanExporter
) -> None:
    await make_topic(mq, name, queues=1)
    sent = await mq.send(name, b"hello", tag="paid", keys=["42"])
    async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
        message = await anext(consumer)
        async with message.process():
            inside = trace.get_current_span().get_span_context().span_id
    (send,), (process,) = found(exported, f"send {name}"), found(exported, f"process {name}")
    assert send.context and process.context and process.parent
    assert process.context.trace_id == send.context.trace_id
    assert process.parent.span_id == send.context.span_id
    assert process.context.span_id == inside
    assert (send.kind, process.kind) == (trace.SpanKind.PRODUCER, trace.SpanKind.CONSUMER)
    assert message.properties["traceparent"] == (
        f"00-{send.context.trace_id:032x}-{send.context.span_id:016x}-{send.context.trace_flags:02x}"
    )
    assert attributes(send) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": name,
        "messaging.destination.partition.id": "broker-a:0",
        "messaging.client.id": mq.client_id,
        "messaging.rocketmq.client_group": "KOUROU_PRODUCER",
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 5,
        "messaging.rocketmq.message.tag": "paid",
        "messaging.rocketmq.message.keys": ("42",),
    }
    assert attributes(process)["messaging.consumer.group.name"] == name
    assert attributes(process)["messaging.message.id"] == sent.message_id


async def test_failures_are_errors_of_their_spans(
    mq: Client, world: World, name: str, exported: InMemorySpanExporter
) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send_many(name, [b"1", b"2"])
    calls: list[str | None] = []

    async def listener(message: Delivery) -> None:
        calls.append(message.properties.get("traceparent"))
        raise RetryLater(18)

    async with await mq.listen(name, listener, group=name, start="first"):
        await eventually(lambda: len(calls) == 2, 60)
    assert len({span.context.trace_id for span in found(exported, f"send {name}") if span.context}) == 2
    failed = found(exported, f"process {name}")
    assert [span.status.status_code for span in failed] == [trace.StatusCode.ERROR] * 2
    assert {attributes(span)["error.type"] for span in failed} == {"RetryLater"}


async def test_a_send_that_fails(kourou_world: World, name: str, exported: InMemorySpanExporter) -> None:
    async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
        await make_topic(mq, name, queues=1)
        with pytest.raises(RefusedError):
            await mq.send(name, b"x", queue=MessageQueue(name, "broker-a", 99))
    (send,) = found(exported, f"send {name}")
    assert send.status.status_code is trace.StatusCode.ERROR
    assert attributes(send)["error.type"] == "InvalidParameterError"


WRONG: list[dict[str, Any]] = [{"body": 5}, {"body": None}, {"keys": 5}, {"properties": ["a"]}, {"properties": 5}]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
async def test_a_message_that_makes_no_sense(
    kourou_world: World, name: str, exported: InMemorySpanExporter, wrong: dict[str, Any]
) -> None:
    """The error is the same as without spans, and the span ends."""
    async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
        with pytest.raises(InvalidMessageError):
            await mq.send(name, Message(**{"body": b"x", **wrong}))
    (send,) = found(exported, f"send {name}")
    assert send.status.status_code is trace.StatusCode.ERROR


async def test_a_one_way_send_that_fails(kourou_world: World, name: str, exported: InMemorySpanExporter) -> None:
    async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
        producer = mq.producer()
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send_one_way(name, b"x")
    (send,) = found(exported, f"send {name}")
    assert send.status.status_code is trace.StatusCode.ERROR


async def test_a_context_that_makes_no_sense_is_none(
    kourou_world: World, name: str, exported: InMemorySpanExporter
) -> None:
    """And one that the sender chose is kept."""
    chosen = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
        await make_topic(mq, name, queues=1)
        for context in ("\x1b[31m00-nonsense-01", chosen):
            await mq.send(name, Message(body=b"x", properties={"traceparent": context, "tracestate": "a=1"}))
        async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
            for _ in range(2):
                async with (await anext(consumer)).process():
                    pass
    first, second = found(exported, f"process {name}")
    assert first.parent is None
    assert second.parent and second.context
    assert f"{second.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert second.parent.trace_state.get("a") == "1"


async def test_without_the_package_nothing_is_done(
    kourou_world: World, name: str, exported: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_api", lambda: None)
    async with connect(kourou_world.namesrv, settings=PATIENT) as mq:
        await mq.send(name, b"x")
        async with mq.consume(name, group=name, start="first") as consumer, asyncio.timeout(60):
            message = await anext(consumer)
            async with message.process():
                pass
    assert "traceparent" not in message.properties
    assert not exported.get_finished_spans()
