"""The worlds in which the tests happen: a name server under test and a real broker that registers with it.

Two worlds stand side by side for the whole session, the reference with Apache's name server and the candidate with
ours; a test that takes `world` runs once in each. A tool that is missing skips the tests that need it, with the reason;
with KOUROU_REQUIRE_INTEROP=1 it fails them.

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
from .processes import wait_for
from .servers import ApacheBroker, ApacheNameServer, KourouNameServer, NameServer
from .toolchain import MissingToolError, prepare

REQUIRED = os.environ.get("KOUROU_REQUIRE_INTEROP") == "1"
CANDIDATE = ApacheNameServer if os.environ.get("KOUROU_INTEROP_CANDIDATE") == "apache" else KourouNameServer

Need = Callable[[], AbstractContextManager[None]]
StartBroker = Callable[..., ApacheBroker]
StartClient = Callable[[Kind, str], Client]
StartNameServer = Callable[[str], NameServer]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetching what is missing takes longer than a test may; so it happens before them."""
    if any(item.get_closest_marker("interop") for item in session.items) and not session.config.option.collectonly:
        prepare()


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

    def run(self, command: str, *arguments: str) -> str:
        """What mqadmin prints for this command."""
        return self.admin.run(self.name_server.address, command, *arguments)

    def wait_for_broker(self, broker: ApacheBroker) -> None:
        wait_registered(self.admin, self.name_server, broker)


def wait_registered(admin: MqAdmin, name_server: NameServer, broker: ApacheBroker) -> None:
    """Until the broker runs and the name server knows it: each broker has a topic of its name.

    On a busy machine its first registration may fail; the next comes ten seconds later.
    """
    broker.wait_ready()
    where = (name_server.address, "topicRoute", "-t", broker.name)
    wait_for(f"the registration of {broker.name}", lambda: broker.address in admin.run(*where), 60)


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


def _world(kind: type[ApacheNameServer] | type[KourouNameServer], homes: Path, admin: MqAdmin) -> Iterator[World]:
    with ExitStack() as at_end:
        with _need():
            name_server = kind(homes / "namesrv", tls=True)
            at_end.callback(name_server.kill)
            broker = ApacheBroker(homes / "broker", "broker-a", name_server.address, tls=True)
            at_end.callback(broker.kill)
        world = World(name_server, broker, admin, homes)
        world.wait_for_broker(broker)
        yield world


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts further brokers: `start_broker(name, name_servers, setting=value…)`; they end with the test."""
    with ExitStack() as at_end:

        def start(name: str, name_servers: str, **settings: object) -> ApacheBroker:
            with _need():
                role = settings.get("brokerId", 0)
                broker = ApacheBroker(tmp_path / f"{name}-{role}", name, name_servers, settings)
            at_end.callback(broker.kill)
            return broker

        yield start


@pytest.fixture(params=["reference", "candidate"])
def start_name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartNameServer]:
    """Starts further name servers, of the one kind or the other; they end with the test."""
    kind = ApacheNameServer if request.param == "reference" else CANDIDATE
    with ExitStack() as at_end:

        def start(name: str) -> NameServer:
            with _need():
                server = kind(tmp_path / name)
            at_end.callback(server.kill)
            return server

        yield start


@pytest.fixture
def start_client(tmp_path: Path) -> Iterator[StartClient]:
    """Starts clients: `start_client(kind, name_servers)`; they end with the test."""
    with ExitStack() as at_end:

        def start(kind: Kind, name_servers: str) -> Client:
            with _need():
                client = Client(kind, name_servers, tmp_path / kind.name)
            at_end.callback(client.stop)
            return client

        yield start
