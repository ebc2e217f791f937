"""The page that Prometheus reads."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.unit.test_embedded import send
from tests.waiting import answered, eventually

from kourou.client import connect
from kourou.embedded import Embedded, EmbeddedBroker
from kourou.net.client import connect as open_connection
from kourou.protocol.command import Command
from kourou.server import metrics
from kourou.server.broker_figures import BrokerFigures


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
        b'rocketmq_messages_in_total{cluster="DefaultCluster",is_system="false",message_type="normal",node_id="broker-a",'
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
    assert b"rocketmq_finish_message_latency_milliseconds_count" + label + b" 2.0" in body
    assert b'rocketmq_finish_message_latency_milliseconds_bucket{cluster="DefaultCluster",le="5.0"' in body


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
    flags = ("Request", "Remoting", "Connection", "LagAndDlq", "Stats", "Transaction", "MessageStore")
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


async def test_a_client_that_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such connections are no longer counted, so each of them would keep a file open for ever."""
    monkeypatch.setattr(metrics, "PAGE_TIME", 0.05)
    monkeypatch.setattr(metrics, "CLOSE_TIME", 0.05)
    monkeypatch.setattr(BrokerFigures, "text", lambda _: ("x" * 100_000 for _ in range(1_000)))
    async with Embedded(properties=PROM) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.metrics_port, limit=1)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        descriptors = Path("/proc/self/fd")
        assert await reader.read(4) == b"HTTP"
        before = len(list(descriptors.iterdir()))
        await eventually(lambda: len(list(descriptors.iterdir())) < before)
        writer.close()


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


async def test_replication_has_figures_on_both_sides() -> None:
    async with Embedded(properties={"metricsExporterType": "PROM"}, slaves=1, sync=True) as cluster:
        await send(cluster.address, "orders", b"one")
        master, slave = cluster.brokers

        async def figures(broker: EmbeddedBroker) -> dict[str, float]:
            _, body = await page(broker.process.metrics_port or 0)
            return {
                sample.name: sample.value
                for family in text_string_to_metric_families(body.decode())
                for sample in family.samples
                if sample.name.startswith(("kourou_slave", "kourou_repl", "kourou_ha", "kourou_broker_role"))
            }

        assert await figures(master) == {
            "kourou_broker_role": 1,
            "kourou_ha_refused_total": 0,
            "kourou_replicas_in_sync": 2,
            "kourou_replicas_needed": 2,
            "kourou_slave_lag_bytes": 0,
            "kourou_slave_lag_seconds": 0,
            "kourou_slave_in_sync": 1,
        }
        following = await figures(slave)
        assert following == {
            "kourou_broker_role": 1,
            "kourou_ha_refused_total": 0,
            "kourou_replication_lag_bytes": 0,
            "kourou_replication_lag_seconds": 0,
            "kourou_replication_connected": 1,
        }
        await master.stop()

        async def is_behind() -> bool:
            alone = await figures(slave)
            return alone["kourou_replication_connected"] == 0 and alone["kourou_replication_lag_seconds"] > 0

        await answered(is_behind)


async def figures_of(broker: Embedded) -> dict[str, list[Sample]]:
    _, body = await page(broker.metrics_port or 0)
    found: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(body.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample)
    return found


async def test_how_far_a_group_is_behind() -> None:
    """Two messages are consumed, three are pulled and not settled, and more come that are not pulled."""
    async with Embedded(properties=PROM) as broker, connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.send_many("orders", [b"x"] * 5)
        async with mq.consume("orders", group="billing", start="first") as consumer:
            taken = [await anext(consumer) for _ in range(3)]
            taken[0].ack()
            taken[1].ack()

            async def lag() -> tuple[float, ...]:
                found = await figures_of(broker)
                names = ("lag_messages", "inflight_messages", "ready_messages")
                return tuple(
                    sum(
                        one.value
                        for one in found.get(f"rocketmq_consumer_{name}", ())
                        if one.labels["topic"] == "orders"
                    )
                    for name in names
                )

            async def is_committed() -> bool:
                behind, in_flight, ready = await lag()
                return behind == 3 and behind == in_flight + ready

            await answered(is_committed)
            (age,) = (await figures_of(broker))["rocketmq_consumer_lag_latency_milliseconds"]
            assert age.labels["consumer_group"] == "billing"
            assert 0 <= age.value < 60_000


async def test_latencies_tell_pulls_that_waited_apart() -> None:
    async with Embedded(properties=PROM) as broker, connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        async with mq.consume("orders", group="billing", start="first") as consumer:

            async def holds() -> bool:
                return (await figures_of(broker))["kourou_held_pulls"][0].value > 0

            await answered(holds)
            await mq.send("orders", b"x")
            (await anext(consumer)).ack()
        found = await figures_of(broker)
    counts = {
        (one.labels["request_code"], one.labels["response_code"], one.labels["is_long_polling"]): one.value
        for one in found["rocketmq_rpc_latency_milliseconds_count"]
    }
    assert counts["pull_message", "success", "true"] == 1
    assert counts["send_message_v2", "success", "false"] == 1
    assert counts["update_and_create_topic", "success", "false"] == 1
    (created,) = found["rocketmq_topic_create_execution_time_milliseconds_count"]
    assert (created.value, created.labels["invocation_status"]) == (1, "success")


async def test_a_request_code_that_nobody_knows_is_counted_by_its_number() -> None:
    async with Embedded(properties=PROM) as broker:
        host, _, port = broker.address.rpartition(":")
        connection = await open_connection(host, int(port))
        assert (await connection.request(Command(4711), 5.0)).code != 0
        connection.close()
        counts = (await figures_of(broker))["rocketmq_rpc_latency_milliseconds_count"]
    unknown = [one for one in counts if one.labels["request_code"] == "4711"]
    assert [one.labels["response_code"] for one in unknown] == ["request_code_not_supported"]
