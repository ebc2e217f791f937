"""Sends metrics of brokers to a collector of OpenTelemetry, once a minute, so that brokers need no exporter for it.

The figures that a broker serves to Prometheus are read from its registered host and the port in its settings.
"""

import asyncio
import http.client
import logging
import os
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, Member, now_ms
from kourou.console.otlp import requests
from kourou.console.views.values import long_in
from kourou.protocol.errors import KourouError

if TYPE_CHECKING:
    from kourou.console.state import Console

log = logging.getLogger(__name__)

SECONDS: Final = 60.0
TIMEOUT: Final = 10.0
PAGE_SIZE_MAX: Final = 64 * 1024 * 1024
PATH: Final = "/v1/metrics"
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's variable with headers for the collector: `name=value,name=value`."""


class Collector(msgspec.Struct, frozen=True):
    """Where metrics are sent."""

    is_secure: bool
    host: str
    port: int | None
    path: str
    headers: dict[str, str] = {}


def collector_at(url: str, headers: str = "") -> Collector:
    """Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url!r} is not the address of a collector, such as http://127.0.0.1:4318")
    pairs = (pair.partition("=") for pair in headers.split(",") if "=" in pair)
    found = {name.strip(): unquote(value.strip()) for name, _, value in pairs}
    path = parts.path if parts.path.strip("/") else PATH
    return Collector(parts.scheme == "https", parts.hostname, parts.port, path, found)


class ExportError(Exception):
    """A page could not be read, or was refused; the text has the reason."""


class Exporting:
    """The loop of one console."""

    def __init__(self, console: "Console", collector: Collector) -> None:
        self._console = console
        self._collector = collector
        self._failures: dict[str, str] = {}
        """The last failure of each broker, which is in the log already."""

    async def run(self) -> None:
        """Runs until it is cancelled."""
        while True:
            began = time.monotonic()
            try:
                await self.export()
            except (KourouError, ConsoleError) as error:
                self._failed("", str(error))
            except Exception:
                log.exception("exporting metrics failed")
            await asyncio.sleep(max(SECONDS - (time.monotonic() - began), 1.0))

    async def export(self) -> int:
        """Reads and sends the metrics of each broker. Returns how many brokers' were sent."""
        look = self._console.facts.look()
        sent = 0
        for member in await look.members():
            try:
                sent += await self._broker(look, member)
                self._failures.pop(member.address, None)
            except (KourouError, ConsoleError, ExportError) as error:
                self._failed(member.address, str(error))
        return sent

    async def _broker(self, look: Look, member: Member) -> bool:
        config = await look.config(member.address)
        port = long_in(config.get("metricsPromExporterPort"))
        if config.get("metricsExporterType") not in ("PROM", "2") or not port:
            raise ExportError("it serves no metrics: metricsExporterType=PROM, with a metricsPromExporterPort")
        start_ms = long_in((await look.runtime(member.address)).get("bootTimestamp")) or 0
        host = member.address.rpartition(":")[0].strip("[]")
        resource = {"service.name": "rocketmq-broker", "service.instance.id": f"{member.name}:{member.id}"}
        await asyncio.to_thread(forward, host, port, self._collector, resource, start_ms)
        return True

    def _failed(self, address: str, text: str) -> None:
        if self._failures.get(address) != text:
            self._failures[address] = text
            log.warning("metrics of %s are not exported: %s", address or "the brokers", text)


def forward(host: str, port: int, collector: Collector, resource: dict[str, str], start_ms: int) -> None:
    """In a thread: a page may be long. Raises ExportError."""
    for body in requests(read_page(host, port), resource, start_ms, now_ms()):
        send(collector, body)


def read_page(host: str, port: int) -> str:
    """The page that a broker serves to Prometheus. Raises ExportError."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
        answer = connection.getresponse()
        data = answer.read(PAGE_SIZE_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        raise ExportError(f"{host}:{port} does not serve metrics: {error}") from None
    finally:
        connection.close()
    if answer.status != 200 or len(data) > PAGE_SIZE_MAX:
        raise ExportError(f"{host}:{port} answered {answer.status} with {len(data):,} bytes")
    return data.decode("utf-8", "replace")


def send(collector: Collector, body: bytes) -> None:
    """Raises ExportError."""
    kind = http.client.HTTPSConnection if collector.is_secure else http.client.HTTPConnection
    connection = kind(collector.host, collector.port, timeout=TIMEOUT)
    try:
        headers = {**collector.headers, "Content-Type": "application/json"}
        connection.request("POST", collector.path, body, headers)
        answer = connection.getresponse()
        answer.read(4096)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ExportError(f"the collector at {collector.host} does not answer: {error}") from None
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        raise ExportError(f"the collector at {collector.host} refused: {answer.status} {answer.reason}")


def collector_given(url: str) -> Collector:
    """As `collector_at`, with the headers of the environment."""
    return collector_at(url, os.environ.get(HEADERS, ""))
