"""Metrics of brokers on their way to a collector of OpenTelemetry."""

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from tests.interop.processes import free_port
from tests.unit.console.conftest import MakePage

import kourou
from kourou.console import exporting, otlp
from kourou.console.exporting import Collector, Exporting, collector_at
from kourou.console.otlp import families, requests

PAGE = r"""# HELP rocketmq_messages_in_total Messages stored.
# TYPE rocketmq_messages_in_total counter
rocketmq_messages_in_total{cluster="c",topic="a\"b\\c\nd"} 8.0
rocketmq_messages_in_total{cluster="c",topic="orders"} 3.5 1790000000000
# HELP size Sizes.
# TYPE size histogram
size_bucket{le="1024.0",topic="orders"} 2.0
size_bucket{le="4096.0",topic="orders"} 5.0
size_bucket{le="+Inf",topic="orders"} 6.0
size_count{topic="orders"} 6.0
size_sum{topic="orders"} 9000.0
# TYPE wait gauge
wait 0.0
wait{x="1"} NaN
no line at all {
alone 1
"""


def sent(page: str) -> list[dict[str, Any]]:
    """All metrics of all requests."""
    found = []
    for body in requests(page, {"service.name": "rocketmq-broker"}, 1_000, 2_000):
        (one,) = json.loads(body)["resourceMetrics"]
        assert one["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "rocketmq-broker"}}]
        found += one["scopeMetrics"][0]["metrics"]
    return found


def labels(point: dict[str, Any]) -> dict[str, str]:
    return {one["key"]: one["value"]["stringValue"] for one in point["attributes"]}


def test_each_kind_of_metric() -> None:
    counter, histogram, gauge, alone = sent(PAGE)
    assert (counter["name"], counter["description"]) == ("rocketmq_messages_in_total", "Messages stored.")
    assert (counter["sum"]["aggregationTemporality"], counter["sum"]["isMonotonic"]) == (2, True)
    first, second = counter["sum"]["dataPoints"]
    assert labels(first) == {"cluster": "c", "topic": 'a"b\\c\nd'} and first["asDouble"] == 8.0
    assert (second["startTimeUnixNano"], second["timeUnixNano"], second["asDouble"]) == (
        "1000000000",
        "2000000000",
        3.5,
    )
    (point,) = histogram["histogram"]["dataPoints"]
    assert labels(point) == {"topic": "orders"}
    assert (point["explicitBounds"], point["bucketCounts"]) == ([1024.0, 4096.0], ["2", "3", "1"])
    assert (point["count"], point["sum"]) == ("6", 9000.0)
    assert [one["asDouble"] for one in gauge["gauge"]["dataPoints"]] == [0.0]
    assert (alone["name"], alone["gauge"]["dataPoints"][0]["attributes"]) == ("alone", [])


def test_a_long_page_is_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "POINTS_MAX", 10)
    page = "# TYPE a gauge\n" + "".join(f'a{{n="{number}"}} {number}\n' for number in range(25))
    assert [len(one["gauge"]["dataPoints"]) for one in sent(page)] == [10, 10, 5]
    assert list(requests("", {}, 0, 0)) == []


@pytest.mark.parametrize(
    "page", ["\x00", "# TYPE", "# TYPE x", "# HELP x", "{} 1", "a{ 1", 'a{b="} 1', "a 1 2 3", "a x"]
)
def test_a_page_that_makes_no_sense(page: str) -> None:
    list(families(page))
    list(requests(page, {}, 0, 0))


def test_addresses_of_collectors() -> None:
    assert collector_at("http://127.0.0.1:4318") == Collector(False, "127.0.0.1", 4318, "/v1/metrics")
    found = collector_at("https://collector.example/otlp/v1/metrics", "api-key=a%20b, x=1,,y")
    assert found == Collector(True, "collector.example", None, "/otlp/v1/metrics", {"api-key": "a b", "x": "1"})
    for url in ("collector:4318", "file:///etc/passwd", "http://", "http://user:word@host"):
        with pytest.raises(ValueError, match="not the address of a collector"):
            collector_at(url)


@contextmanager
def collecting(status: int = 200) -> Iterator[tuple[Collector, list[tuple[str, dict[str, str], Any]]]]:
    """A collector, and what it was sent."""
    taken: list[tuple[str, dict[str, str], Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            taken.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector_at(f"http://127.0.0.1:{server.server_address[1]}", "x-key=1"), taken
    finally:
        server.shutdown()
        server.server_close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


async def test_a_broker_is_exported(make_page: MakePage) -> None:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(free_port())}
    async with kourou.embedded(properties=settings) as broker, kourou.connect(broker.namesrv) as mq:
        page = await make_page(broker.namesrv)
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b"1")
        with collecting() as (collector, taken):
            assert await Exporting(page.console, collector).export() == 1
    path, headers, body = taken[0]
    assert (path, headers["x-key"], headers["Content-Type"]) == ("/v1/metrics", "1", "application/json")
    (resource,) = body["resourceMetrics"]
    assert {"key": "service.instance.id", "value": {"stringValue": "broker-a:0"}} in resource["resource"]["attributes"]
    metrics = {one["name"]: one for one in resource["scopeMetrics"][0]["metrics"]}
    (point,) = metrics["rocketmq_messages_in_total"]["sum"]["dataPoints"]
    assert (labels(point)["topic"], point["asDouble"]) == ("orders", 1.0)
    assert 0 < int(point["startTimeUnixNano"]) < int(point["timeUnixNano"])


async def test_what_is_not_exported_is_said_once(make_page: MakePage, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(free_port())}
    async with kourou.embedded(properties=settings) as broker:
        page = await make_page(broker.namesrv)
        with collecting(503) as (collector, _):
            work = Exporting(page.console, collector)
            assert [await work.export(), await work.export()] == [0, 0]
        assert [text.rpartition(": ")[2] for text in warnings(caplog)] == ["503 Service Unavailable"]
        assert await work.export() == 0
        assert "does not answer" in warnings(caplog)[-1]


async def test_a_broker_without_metrics(make_page: MakePage, caplog: pytest.LogCaptureFixture) -> None:
    async with kourou.embedded() as broker:
        page = await make_page(broker.namesrv)
        collector = msgspec.structs.replace(collector_at("http://127.0.0.1:1"), headers={})
        assert await Exporting(page.console, collector).export() == 0
    assert "metricsExporterType=PROM" in warnings(caplog)[-1]
    assert exporting.SECONDS >= 10
