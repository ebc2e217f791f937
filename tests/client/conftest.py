"""The brokers that the client suite runs against: ours, in a thread, and Apache's, in processes.

Every test that takes `world` runs with both. What only one of them can do is a matter of the test's own marks. Tests
give their topics and groups names of their own (`name`), so one broker serves them all.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.interop.processes import free_port
from tests.interop.servers import ApacheBroker, ApacheNameServer
from tests.interop.toolchain import prepare
from tests.interop.worlds import needed

from kourou.client import Client, ClientSettings, Delivery, ProducerSettings, connect
from kourou.embedded import EmbeddedThread

APACHE_SETTINGS = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": 3000,
    "transactionTimeOut": 1000,
    "recallMessageEnable": "true",
    "timerPrecisionMs": 100,
    "traceTopicEnable": "true",
}

KOUROU_SETTINGS = {
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "3000",
    "transactionTimeOut": "1000",
    "recallMessageEnable": "true",
    "metricsExporterType": "PROM",
    "metricsPromExporterPort": "0",
}

PATIENT = ClientSettings(request_timeout=20, connect_timeout=20, producer=ProducerSettings(timeout=20))
"""For tests that are not about time: a busy machine is no failure."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/client/test_java.py" in item.nodeid and "[apache]" in item.nodeid:
            item.add_marker(pytest.mark.slow)  # each starts a JVM; with our broker they always run
        elif "tests/client/test_command_line.py" in item.nodeid and not item.get_closest_marker("interop"):
            item.add_marker(pytest.mark.slow)  # many processes, one after the other


def pytest_collection_finish(session: pytest.Session) -> None:
    """Missing files are fetched before the tests, because that takes longer than a test may."""
    if any(item.get_closest_marker("interop") for item in session.items) and not session.config.option.collectonly:
        prepare()


@dataclass(frozen=True)
class World:
    """Where clients go."""

    kind: str
    namesrv: str
    broker: str
    metrics_port: int


@pytest.fixture(scope="session")
def restarts() -> list[Callable[[], None]]:
    """Restarts of the Apache brokers that run."""
    return []


@pytest.fixture(scope="session")
def apache_world(tmp_path_factory: pytest.TempPathFactory, restarts: list[Callable[[], None]]) -> Iterator[World]:
    with apache(tmp_path_factory.mktemp("apache"), APACHE_SETTINGS, restarts) as world:
        yield world


@contextmanager
def apache(
    home: Path, settings: Mapping[str, object], restarts: list[Callable[[], None]] | None = None
) -> Iterator[World]:
    """Apache's name server and a broker with these settings. A function that restarts the broker goes to `restarts`."""
    with ExitStack() as at_end:
        with needed():
            port = free_port()
            exported = {"metricsExporterType": "PROM", "metricsPromExporterPort": port}
            name_server = ApacheNameServer(home / "namesrv")
            at_end.callback(name_server.kill)
            broker = ApacheBroker(home / "broker", "broker-a", name_server.address, {**settings, **exported})
            at_end.callback(broker.kill)
            broker.wait_registered(name_server.address)

        def restart() -> None:
            broker.kill()
            broker.restart()
            broker.wait_registered(name_server.address)

        if restarts is not None:
            restarts.append(restart)
        yield World("apache", name_server.address, broker.address, port)


@pytest.fixture(scope="session")
def kourou_world() -> Iterator[World]:
    with EmbeddedThread(properties=KOUROU_SETTINGS) as broker:
        yield World("kourou", broker.namesrv, broker.address, broker.metrics_port or 0)


@pytest.fixture(params=["kourou", pytest.param("apache", marks=pytest.mark.interop)])
def world(request: pytest.FixtureRequest) -> World:
    chosen = request.getfixturevalue(f"{request.param}_world")
    assert isinstance(chosen, World)
    return chosen


@pytest.fixture
def name() -> str:
    """For topics and groups that are the test's own."""
    return f"t{uuid.uuid4().hex[:12]}"


@pytest.fixture
async def mq(world: World) -> AsyncIterator[Client]:
    """A client of the world's broker."""
    async with connect(world.namesrv, settings=PATIENT) as client:
        yield client


Collect = Callable[..., Awaitable[list[Delivery]]]


@pytest.fixture
def collect(mq: Client) -> Collect:
    """Consumes `count` messages of a topic from its first, as a group of the test's own, and acks them."""

    async def collect(topic: str, count: int, *, seconds: float = 60, **options: object) -> list[Delivery]:
        found: list[Delivery] = []
        group = str(options.pop("group", f"{topic}-collect"))
        async with mq.consume(topic, group=group, **{"start": "first", **options}) as consumer:  # type: ignore[arg-type]
            async with asyncio.timeout(seconds):
                while len(found) < count:
                    message = await anext(consumer)
                    message.ack()
                    found.append(message)
        return found

    return collect
