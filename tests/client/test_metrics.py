"""What Prometheus finds at our broker and at Apache's after the same traffic; and the dashboard for both."""

import asyncio
import json
import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.waiting import answered

from kourou.client import Client, DeadLetter, connect

from .conftest import PATIENT, World
from .steps import make_topic, route_of

DASHBOARD = Path(__file__).parents[2] / "grafana" / "kourou.json"

OF_THE_EXPORTER = frozenset(("otel_scope_name", "otel_scope_version"))
"""Labels that OpenTelemetry's exporter adds to each figure of Apache's broker."""

ONLY_APACHE = re.compile(r"rocketmq_(pop|rocksdb)_\w+|target_info|otel_scope_info")
"""Figures of pop consumption and of the RocksDB store, which our broker does not have, and of the exporter itself."""

VISIBLE = 12
"""Messages of the traffic that a consumer gets."""

Signature = dict[str, set[tuple[str, ...]]]


async def traffic(mq: Client, topic: str) -> None:
    """All ways to send and to find, a new group, transactions of each outcome, a consumer that makes a dead letter."""
    await make_topic(mq, topic, queues=2)
    await mq.admin.groups.create(f"{topic}-made")
    for _ in range(3):
        await mq.send(topic, b"usual", keys=["found"])
    found = await answered(lambda: mq.admin.messages.by_key(topic, "found"))
    assert await mq.admin.messages.by_offset_id(found[0].offset_id)
    await mq.send(topic, b"ordered" * 300, ordering_key="k")
    await mq.send(topic, b"delayed", delay_level=1)
    await mq.send(topic, b"timed", delay=timedelta(seconds=1))
    await mq.send_many(topic, [b"one of many"] * 5)
    async with mq.transaction(topic, group=f"{topic}-tx") as tx:
        await tx.send(b"committed")
    async with mq.transaction(topic, group=f"{topic}-tx") as tx:
        await tx.send(b"rolled back")
        await tx.rollback()
    async with mq.consume(topic, group=topic, start="first") as consumer, asyncio.timeout(60):
        for number in range(VISIBLE):
            async with (await anext(consumer)).process():
                if number == 0:
                    raise DeadLetter


async def page(world: World) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.metrics_port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(20):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    if b"chunked" in head.lower():
        parts = []
        while body:
            size, _, body = body.partition(b"\r\n")
            parts.append(body[: int(size, 16)])
            body = body[int(size, 16) + 2 :]
        body = b"".join(parts)
    return body.decode()


def samples(text: str) -> list[Sample]:
    """What both brokers have."""
    families = text_string_to_metric_families(text)
    found = [sample for family in families for sample in family.samples if not sample.name.endswith("_created")]
    return [one for one in found if one.name.startswith("rocketmq_") and not ONLY_APACHE.fullmatch(one.name)]


def signature(found: Iterable[Sample]) -> Signature:
    """The labels of each figure, by its name."""
    names: Signature = {}
    for sample in found:
        names.setdefault(sample.name, set()).add(tuple(sorted(sample.labels.keys() - OF_THE_EXPORTER)))
    return names


def of_topic(found: Iterable[Sample], name: str, topic: str, label: str) -> dict[str, float]:
    """A figure of a topic, by another label."""
    return {one.labels[label]: one.value for one in found if one.name == name and one.labels.get("topic") == topic}


async def is_complete(world: World, topic: str) -> bool:
    """Ends of transactions are one-way; timers and dead letters come later."""
    names = {one.name for one in samples(await page(world)) if one.labels.get("topic") == topic}
    return names >= {
        "rocketmq_commit_messages_total",
        "rocketmq_rollback_messages_total",
        "rocketmq_send_to_dlq_messages_total",
        "rocketmq_timer_dequeue_total",
        "rocketmq_consumer_lag_messages",
        "rocketmq_delay_message_latency_seconds_count",
    }


async def scraped(world: World, topic: str) -> str:
    """A page after the traffic, while a consumer and a producer are connected."""
    async with connect(world.namesrv, settings=PATIENT) as mq:
        await traffic(mq, topic)
        assert await route_of(mq, topic) is not None
        async with mq.consume(topic, group=topic, start="first"):

            async def complete() -> bool:
                return await is_complete(world, topic)

            await answered(complete, 60)
            return await page(world)


async def test_figures_of_the_traffic(world: World, name: str) -> None:
    found = samples(await scraped(world, name))
    stored = of_topic(found, "rocketmq_messages_in_total", name, "message_type")
    assert stored["normal"] == 8
    assert stored["fifo"] == 1
    assert stored["delay"] >= 1  # ours counts the delivery of timed messages, too
    sizes = [one for one in found if one.name == "rocketmq_message_size_bucket" and one.labels["topic"] == name]
    ordered = {one.labels["le"]: one.value for one in sizes if one.labels["message_type"] == "fifo"}
    assert (ordered["1024.0"], ordered["4096.0"], ordered["+Inf"]) == (0, 1, 1)
    assert of_topic(found, "rocketmq_send_to_dlq_messages_total", name, "consumer_group") == {name: 1}
    assert of_topic(found, "rocketmq_consumer_lag_messages", name, "consumer_group").keys() == {name}
    sends = [
        one.value
        for one in found
        if one.name == "rocketmq_rpc_latency_milliseconds_count"
        and one.labels["request_code"] == "send_message_v2"
        and one.labels["response_code"] == "success"
    ]
    assert sum(sends) >= 8
    half = of_topic(found, "rocketmq_half_messages", name, "topic")
    assert half == {name: 0} or (world.kind == "apache" and half.keys() == {name})  # Apache's count may be below zero


@pytest.mark.interop
async def test_names_and_labels_are_those_of_apache(kourou_world: World, apache_world: World, name: str) -> None:
    ours, apache = [signature(samples(await scraped(world, name))) for world in (kourou_world, apache_world)]
    assert ours == apache


def asked_for() -> set[str]:
    """The figures that the dashboard reads."""
    board = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    queries += [one["query"]["query"] for one in board["templating"]["list"] if one["type"] == "query"]
    return {word for query in queries for word in re.findall(r"\b(?:rocketmq|kourou)_\w+", query)}


async def test_the_dashboard_reads_figures_that_are_there(world: World, name: str) -> None:
    lines = (await scraped(world, name)).splitlines()
    names = {re.split(r"[{ ]", line)[0] for line in lines if not line.startswith("#")}
    wanted = asked_for()
    assert len(wanted) > 20
    if world.kind == "apache":
        wanted = {one for one in wanted if one.startswith("rocketmq_")}
    assert not wanted - names
