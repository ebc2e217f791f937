"""The page that Prometheus reads."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families
from tests.unit.test_embedded import send
from tests.waiting import answered

from kourou.client import connect
from kourou.embedded import Embedded


async def page(port: int, request: bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n") -> tuple[bytes, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": 0}


async def test_what_was_sent_is_counted() -> None:
    async with Embedded(properties=PROM) as broker:
        assert broker.metrics_port is not None
        for _ in range(3):
            await send(broker.address, "orders", b"one")
        head, body = await page(broker.metrics_port)
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (
        b'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",node_id="broker-a",'
        b'node_type="broker",topic="orders"} 3.0' in body
    )
    assert b"rocketmq_broker_permission{" in body


async def test_transactions_are_counted() -> None:
    async with Embedded(properties=PROM) as broker, connect(broker.namesrv) as mq:
        for number in range(3):
            async with mq.transaction("orders", group="tx") as tx:
                await tx.send(b"x")
                if number == 2:
                    await tx.rollback()
        async with mq.transaction("orders", group="tx") as tx:
            await tx.send(b"open")
            await tx.leave_open()
        assert broker.metrics_port is not None
        body = b""

        async def is_counted() -> bool:  # ends are one-way
            nonlocal body
            _, body = await page(broker.metrics_port or 0)
            return b"rocketmq_rollback_messages_total{" in body

        await answered(is_counted)
    label = b'{cluster="DefaultCluster",node_id="broker-a",node_type="broker",topic="orders"}'
    assert b"rocketmq_half_messages" + label + b" 1.0" in body
    assert b"rocketmq_commit_messages_total" + label + b" 2.0" in body
    assert b"rocketmq_rollback_messages_total" + label + b" 1.0" in body
    assert b"rocketmq_finish_message_latency_count" + label + b" 2.0" in body
    assert b'rocketmq_finish_message_latency_bucket{cluster="DefaultCluster",le="5.0"' in body


async def test_all_figures_bear_the_labels_of_broker_conf() -> None:
    label = "instance.id:mq-1,9zone:a,topic:mine"
    async with Embedded(properties={**PROM, "metricsLabel": label}) as broker:
        assert broker.metrics_port is not None
        await send(broker.address, "orders", b"one")
        _, body = await page(broker.metrics_port)
    figures = [line for line in body.splitlines() if not line.startswith(b"#")]
    assert figures
    assert all(b'_9zone="a",' in line and b'instance_id="mq-1"' in line for line in figures)
    assert b'topic="orders"' in body
    assert b"mine" not in body


async def test_figures_that_are_not_wanted_are_left_out() -> None:
    flags = ("Request", "Connection", "LagAndDlq", "Stats", "Transaction", "MessageStore")
    async with Embedded(properties=PROM | {f"enable{flag}Metrics": "false" for flag in flags}) as broker:
        assert broker.metrics_port is not None
        await send(broker.address, "orders", b"one")
        _, body = await page(broker.metrics_port)
    assert b"rocketmq_" not in body
    assert b"kourou_held_pulls" in body


async def test_other_pages_and_methods_are_refused() -> None:
    async with Embedded(properties=PROM) as broker:
        assert broker.metrics_port is not None
        assert (await page(broker.metrics_port, b"GET / HTTP/1.1\r\n\r\n"))[0].startswith(b"HTTP/1.1 404")
        assert (await page(broker.metrics_port, b"POST /metrics HTTP/1.1\r\n\r\n"))[0].startswith(b"HTTP/1.1 405")
        assert (await page(broker.metrics_port, b"x" * 100_000))[0] == b""
        assert (await page(broker.metrics_port))[0].startswith(b"HTTP/1.1 200")


async def test_there_are_none_unless_they_are_wanted() -> None:
    async with Embedded() as broker:
        assert broker.metrics_port is None


async def test_the_page_is_what_prometheus_reads() -> None:
    async with Embedded(properties=PROM | {"metricsLabel": 'place:a"b\\c'}) as broker:
        assert broker.metrics_port is not None
        await send(broker.address, "orders", b"one")
        _, body = await page(broker.metrics_port)
        head, nothing = await page(broker.metrics_port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["rocketmq_messages_in"].type == "counter"
    (sample,) = families["rocketmq_messages_in"].samples
    assert (sample.value, sample.labels["topic"], sample.labels["place"]) == (1.0, "orders", 'a"b\\c')
    assert families["rocketmq_topic_number"].type == "gauge"
    assert head.startswith(b"HTTP/1.1 200") and not nothing
