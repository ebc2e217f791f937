"""The worlds in which the tests happen: a name server under test and a real broker that registers with it.

Two worlds stand side by side for the whole session, the reference with Apache's name server and the candidate with ours;
a test that takes `world` runs once in each. A tool that is missing skips the tests that need it, with the reason; with
KOUROU_REQUIRE_INTEROP=1 it fails them.

KOUROU_INTEROP_CANDIDATE=apache puts a second name server of Apache's in our place: what then fails is the test's fault.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .clients import Client, Kind
from .mqadmin import MqAdmin
from .servers import ApacheBroker, ApacheNameServer, KourouNameServer, NameServer
from .toolchain import MissingToolError

REQUIRED = os.environ.get("KOUROU_REQUIRE_INTEROP") == "1"
CANDIDATE = ApacheNameServer if os.environ.get("KOUROU_INTEROP_CANDIDATE") == "apache" else KourouNameServer

Need = Callable[[], AbstractContextManager[None]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("interop")


@contextmanager
def _need() -> Iterator[None]:
    try:
        yield
    except MissingToolError as missing:
        if REQUIRED:
            pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but {missing}", pytrace=False)
        pytest.skip(f"INTEROP TESTS DO NOT RUN HERE: {missing}")


@pytest.fixture(scope="session")
def need() -> Need:
    """A context in which a missing tool skips the test, or fails it when interop is required."""
    return _need


@pytest.fixture(scope="session")
def mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    admin = MqAdmin(tmp_path_factory.mktemp("mqadmin"))
    yield admin
    admin.stop()


@dataclass
class World:
    """A name server, its broker, and what one does with them."""

    name_server: NameServer
    broker: ApacheBroker
    admin: MqAdmin
    homes: Path
    at_end: ExitStack

    def run(self, command: str, *arguments: str) -> str:
        """What mqadmin prints for this command."""
        return self.admin.run(self.name_server.address, command, *arguments)

    def client(self, kind: Kind) -> Client:
        with _need():
            client = Client(kind, self.name_server.address, self.homes / kind.name)
        self.at_end.callback(client.stop)
        return client


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, mqadmin: MqAdmin) -> Iterator[World]:
    """The world as Apache made it."""
    yield from _world(ApacheNameServer, tmp_path_factory.mktemp("reference"), mqadmin)


@pytest.fixture(scope="session")
def candidate(tmp_path_factory: pytest.TempPathFactory, mqadmin: MqAdmin) -> Iterator[World]:
    """The same, but for the name server, which is ours."""
    yield from _world(CANDIDATE, tmp_path_factory.mktemp("candidate"), mqadmin)


@pytest.fixture(params=["reference", "candidate"])
def world(request: pytest.FixtureRequest) -> World:
    """Each of the two worlds in turn."""
    chosen = request.getfixturevalue(request.param)
    assert isinstance(chosen, World)
    return chosen


def _world(kind: Callable[[Path], NameServer], homes: Path, admin: MqAdmin) -> Iterator[World]:
    with ExitStack() as at_end:
        with _need():
            name_server = kind(homes / "namesrv")
            at_end.callback(name_server.kill)
            broker = ApacheBroker(homes / "broker", "broker-a", name_server.address)
            at_end.callback(broker.kill)
        broker.wait_ready()
        yield World(name_server, broker, admin, homes, at_end)


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., ApacheBroker]]:
    """Starts further brokers: `start_broker(name, name_servers, setting=value…)`; they end with the test."""
    with ExitStack() as at_end:

        def start(name: str, name_servers: str, **settings: object) -> ApacheBroker:
            with _need():
                role = settings.get("brokerId", 0)
                broker = ApacheBroker(tmp_path / f"{name}-{role}", name, name_servers, **settings)
            at_end.callback(broker.kill)
            return broker

        yield start


@pytest.fixture(params=["reference", "candidate"])
def start_name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], NameServer]]:
    """Starts further name servers, of the one kind or the other; they end with the test."""
    kind: Callable[[Path], NameServer] = ApacheNameServer if request.param == "reference" else CANDIDATE
    with ExitStack() as at_end:

        def start(name: str) -> NameServer:
            with _need():
                server = kind(tmp_path / name)
            at_end.callback(server.kill)
            return server

        yield start
