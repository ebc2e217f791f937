"""Fixtures: the two worlds, which run for the whole session, and processes that a test starts for itself."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .both import Both
from .clients import Client, Kind
from .mqadmin import MqAdmin
from .scenarios import DELAYS, Driver, Scene
from .servers import CLUSTER, ApacheBroker, ApacheNameServer, ApacheStage, KourouNameServer, KourouRun, NameServer
from .toolchain import prepare
from .worlds import APACHE_STANDS_IN, CANDIDATE, StartBroker, StartClient, StartNameServer, World, needed

FOR_LONG_RUNS = (
    "[reference",  # Apache's own servers: the test proves itself, not Kourou
    "[apache-",
    "test_broker_consuming.py::test_order_with_two_consumers_and_failures[kourou-GO]",  # it asks for locks every 20 s
    "test_broker_order.py::test_another_consumer_takes_over",  # a lock lives for a minute
    "test_broker_order.py::test_locks_in_strict_mode[apache]",
    "test_controller.py::test_mqadmin_prints_the_same_of_both_controllers",
    "outlives_its_master[apaches-slave]",
    "outlives_its_master[our-slave]",
    "test_broker_sending.py::test_bodies_small_and_large[kourou-JAVA_49",
    "test_liveness.py::test_one_of_two_name_servers_dies",
    "test_liveness.py::test_slave_learns_its_master",
    "test_queue_files.py",
    "test_recorded_bytes.py",
    "test_replication.py",
    "test_store_files.py::test_apache_begins[stop]",
    "test_store_files.py::test_we_begin[stop]",
)
"""What `make interop` runs and `make test` does not, for it takes long; see `slow` there."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.nodeid
        older = "JAVA_49" in name and ("test_broker_consuming.py" in name or "test_broker_restarts.py" in name)
        if "tests/interop/" in name and (older or any(part in name for part in FOR_LONG_RUNS)):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Missing files are fetched before the tests, because that takes longer than a test may."""
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


# Scenarios: one broker of each maker and one process of each client serve all of them.

StartDriver = Callable[[Kind], Driver]
StartRun = Callable[..., KourouRun | ApacheStage]

SETTINGS = (
    f"messageDelayLevel={DELAYS}",
    "enablePropertyFilter=true",
    "transactionCheckInterval=2000",
    "transactionTimeOut=1000",
    "transactionCheckMax=3",
    "transactionOpBatchInterval=500",
)


@pytest.fixture(scope="session")
def kourou_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KourouRun | ApacheStage]:
    """Our name server and broker."""
    with ExitStack() as at_end:
        yield _stage(not APACHE_STANDS_IN, tmp_path_factory.mktemp("kourou"), at_end)


@pytest.fixture(scope="session")
def apache_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KourouRun | ApacheStage]:
    """Apache's, with the same settings."""
    with ExitStack() as at_end:
        yield _stage(False, tmp_path_factory.mktemp("apache"), at_end)


def _stage(ours: bool, home: Path, at_end: ExitStack, *settings: str) -> KourouRun | ApacheStage:
    with needed():
        if ours:
            run = KourouRun(home, *SETTINGS, *settings)
            at_end.callback(run.kill)
            return run
        stage = ApacheStage(home, *SETTINGS, *settings)
        at_end.callback(stage.kill_all)
        return stage


@pytest.fixture(scope="session")
def driver_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartDriver]:
    """The process that plays all clients of a kind."""
    with ExitStack() as at_end:
        known: dict[Kind, Driver] = {}

        def find(kind: Kind) -> Driver:
            if kind not in known:
                with needed():
                    known[kind] = Driver(kind, tmp_path_factory.mktemp(f"driver-{kind.name}"))
                at_end.callback(known[kind].kill)
            return known[kind]

        yield find


@pytest.fixture(scope="session")
def both(mqadmin: MqAdmin, driver_of: StartDriver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """mqadmin against a broker of Apache's and one of ours that no other tests use, and that are alike."""
    with ExitStack() as at_end:
        apache = _stage(False, tmp_path_factory.mktemp("apache"), at_end)
        ours = _stage(True, tmp_path_factory.mktemp("kourou"), at_end, f"brokerClusterName={CLUSTER}")
        yield Both(apache, ours, mqadmin, driver_of(Kind.JAVA))


@pytest.fixture
def start_driver(tmp_path: Path) -> Iterator[StartDriver]:
    """Starts further ones, which end with the test."""
    with ExitStack() as at_end:

        def start(kind: Kind) -> Driver:
            with needed():
                driver = Driver(kind, tmp_path / f"driver-{len(list(tmp_path.iterdir()))}")
            at_end.callback(driver.kill)
            return driver

        yield start


ON_KOUROU = [("kourou_run", Kind.JAVA), ("kourou_run", Kind.JAVA_49), ("kourou_run", Kind.GO)]
ON_BOTH = [*ON_KOUROU, ("apache_stage", Kind.JAVA)]


def scene_id(param: tuple[str, Kind]) -> str:
    return f"{param[0].partition('_')[0]}-{param[1].name}"


@pytest.fixture(params=ON_BOTH, ids=scene_id)
def scene(request: pytest.FixtureRequest, driver_of: StartDriver, start_driver: StartDriver) -> Scene:
    """Each client with our broker; and one with Apache's, which proves the test."""
    where, kind = request.param
    return Scene(
        request.getfixturevalue(where), driver_of(kind), lambda: start_driver(kind), lambda: start_driver(Kind.GO)
    )


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[StartRun]:
    """Starts a `kourou run` for the test alone: `start_run(setting…)`."""
    with ExitStack() as at_end:

        def start(*settings: str) -> KourouRun | ApacheStage:
            return _stage(not APACHE_STANDS_IN, tmp_path / "own", at_end, *settings)

        yield start
