"""Fixtures: the two worlds, which stand side by side for the whole session, and what a test starts for itself."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .clients import Client, Kind
from .mqadmin import MqAdmin
from .servers import ApacheBroker, ApacheNameServer, KourouNameServer, NameServer
from .toolchain import prepare
from .worlds import CANDIDATE, StartBroker, StartClient, StartNameServer, World, needed


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetching what is missing takes longer than a test may; so it happens before them."""
    if any(item.get_closest_marker("interop") for item in session.items) and not session.config.option.collectonly:
        prepare()


@pytest.fixture(scope="session")
def mqadmin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MqAdmin]:
    with needed():
        admin = MqAdmin(tmp_path_factory.mktemp("mqadmin"))
    yield admin
    admin.stop()


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
        with needed():
            name_server = kind(homes / "namesrv", tls=True)
            at_end.callback(name_server.kill)
            broker = ApacheBroker(homes / "broker", "broker-a", name_server.address, tls=True)
            at_end.callback(broker.kill)
            world = World(name_server, broker, admin, homes)
            world.wait_for_broker(broker)
        yield world


# What these start ends with the test.


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Starts further brokers: `start_broker(name, name_servers, setting=value…)`."""
    with ExitStack() as at_end:

        def start(name: str, name_servers: str, **settings: object) -> ApacheBroker:
            home = tmp_path / f"{name}-{settings.get('brokerId', 0)}"
            with needed():
                broker = ApacheBroker(home, name, name_servers, settings)
            at_end.callback(broker.kill)
            return broker

        yield start


@pytest.fixture(params=["reference", "candidate"])
def start_name_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartNameServer]:
    """Starts further name servers, of the one kind or the other: `start_name_server(folder)`."""
    kind = ApacheNameServer if request.param == "reference" else CANDIDATE
    with ExitStack() as at_end:

        def start(folder: str) -> NameServer:
            with needed():
                server = kind(tmp_path / folder)
            at_end.callback(server.kill)
            return server

        yield start


@pytest.fixture
def start_client(tmp_path: Path) -> Iterator[StartClient]:
    """Starts clients: `start_client(kind, name_servers)`."""
    with ExitStack() as at_end:

        def start(kind: Kind, name_servers: str) -> Client:
            with needed():
                client = Client(kind, name_servers, tmp_path / kind.name)
            at_end.callback(client.stop)
            return client

        yield start
