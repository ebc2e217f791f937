"""A whole RocketMQ in this process: name server and broker, for tests and small tools.

    async with kourou.embedded() as broker:
        ...                                     # any client, at broker.namesrv

    async with kourou.embedded(brokers=2, slaves=1) as cluster:
        await cluster.broker("broker-a").stop()         # consumers continue with its slave

    async with kourou.embedded(raft=3) as group:    # a Raft group of three
        await group.leader.stop()                   # another one leads

    with EmbeddedThread() as broker:            # the same beside code that is not asyncio
        ...

Ports are free ones; files are small, and in a temporary folder that is removed at the end, unless `store` names a
folder. Several may run at once. Code, bytes on loopback and files are the same as those of `kourou broker`.
"""

import asyncio
import socket
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kourou.broker.properties import Configuration, ProcessSettings, PropertyError, configure, unknown_keys
from kourou.broker.settings import BrokerSettings
from kourou.nameserver.settings import Settings
from kourou.server.access_files import with_access_of
from kourou.server.broker import BrokerPaths, BrokerProcess
from kourou.server.cluster import (
    Member,
    bind,
    keep_ports,
    kept_ports,
    members,
    raft_members,
    raft_peers,
    shared_properties,
)
from kourou.server.conf import ConfError
from kourou.server.nameserver import NameServerProcess
from kourou.store.settings import EMBEDDED

SLAVES_FOLLOW_SECONDS = 20.0
"""How long a start waits until all slaves follow their masters, or a Raft group has a leader."""


class EmbeddedBroker:
    """One broker of an `Embedded`: its address, and methods to stop it and start it again."""

    def __init__(
        self,
        member: Member,
        configuration: Configuration,
        root: Path,
        host: str,
        group_socket: socket.socket | None = None,
    ) -> None:
        self._member = member
        self._group_socket = group_socket  # for the first start of a member of a Raft group
        self._configuration = configuration
        self._root = root
        self._host = host
        self._name_servers: list[str] = []
        self._process: BrokerProcess | None = None

    @property
    def name(self) -> str:
        """brokerName. The slaves of a master have its name."""
        return self._member.name

    @property
    def broker_id(self) -> int:
        """0 is a master, or the leader of a Raft group."""
        return self._member.broker_id if self._process is None else self._process.machine.settings.broker_id

    @property
    def is_master(self) -> bool:
        return self.broker_id == 0

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def address(self) -> str:
        """`host:port`; the same after `stop` and `start`."""
        assert self._configuration.broker.port, "not started"
        return self._configuration.broker.address

    @property
    def store(self) -> Path:
        """The folder of the broker's files."""
        return self._root

    @property
    def process(self) -> BrokerProcess:
        assert self._process is not None, "not started"
        return self._process

    @property
    def follower_count(self) -> int:
        """How many slaves are in sync with this master."""
        return self.process.machine.replication.in_sync - 1

    async def start(self) -> None:
        """Start it again after `stop`, on the same port and with the same files. Does nothing while it is running.

        Raises ConfError, StoreError.
        """
        if self._process is None:
            await self._run()

    async def start_with(self, name_servers: list[str]) -> None:
        """The first start. Raises ConfError, StoreError."""
        self._name_servers = name_servers
        await self._run()

    async def _run(self) -> None:
        group_socket, self._group_socket = self._group_socket, None
        process = BrokerProcess(
            self._configuration,
            BrokerPaths(self._root),
            self._name_servers,
            host=self._host,
            group_socket=group_socket,
        )
        await process.start()
        self._process = process
        settings = process.settings  # its ports are known now
        first = replace(self._configuration.broker, port=settings.port, ha_port=settings.ha_port)
        self._configuration = replace(self._configuration, broker=first)

    async def stop(self) -> None:
        """Stop it cleanly, as SIGTERM does; the others continue. A second call does nothing."""
        process, self._process = self._process, None
        if process is not None:
            await process.stop()


class Embedded:
    """A name server and brokers. Made by `kourou.embedded`; `async with` starts and stops them."""

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
        brokers: int = 1,
        slaves: int = 0,
        sync: bool = False,
        raft: int = 0,
    ) -> None:
        """`properties` are those of broker.conf, such as {"flushDiskType": "SYNC_FLUSH"}.

        `brokers` masters are started, with `slaves` slaves each. With `sync` a master answers when a slave has the
        message. With `raft`, so many brokers form one Raft group, which elects its leader. Raises ConfError for a
        property that is unknown or has a wrong value.
        """
        given = {key: _text(value) for key, value in (properties or {}).items()}
        unknown = unknown_keys(given)
        if unknown:
            raise ConfError(f"{', '.join(unknown)}: not a property of a broker")
        self._store = Path(store) if store is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host = host
        self._namesrv_port = namesrv_port
        self._raft = raft
        self._sockets: list[socket.socket] = []
        self._members = raft_members(raft) if raft else members(brokers, slaves, sync=sync)
        if raft and (brokers > 1 or slaves or sync):
            raise ConfError(f"raft={raft}: the group is the whole cluster; remove brokers, slaves and sync")
        self._is_cluster = len(self._members) > 1 or bool(raft)
        if self._is_cluster:
            if port:
                raise ConfError(f"port={port}: the brokers of a cluster have free ports; remove it")
            given = shared_properties(given, sync=sync)
        self._configurations = [self._configured(member, port, given) for member in self._members]
        self._name_server: NameServerProcess | None = None
        self._brokers: list[EmbeddedBroker] = []

    def _configured(self, member: Member, port: int, given: dict[str, str]) -> Configuration:
        broker = BrokerSettings(name=member.name, ip=self._host, ha_ip=self._host, port=port)
        own = member.properties() if self._is_cluster else {}
        if self._raft:
            own |= {"enableDLegerCommitLog": "true", "dLegerGroup": member.name, "dLegerPeers": self._peers()}
        try:
            return configure(Configuration(broker, EMBEDDED, ProcessSettings(), {}), {**given, **own})
        except PropertyError as error:
            raise ConfError(str(error)) from None

    def _peers(self) -> str:
        """The members of the Raft group, at free ports, which are kept until the brokers listen there."""
        if not self._sockets:
            for port in kept_ports(self._store, self._host, self._raft):
                self._sockets.append(bind(self._host, port))
        return raft_peers(self._host, [bound.getsockname()[1] for bound in self._sockets])

    @property
    def leader(self) -> EmbeddedBroker | None:
        """The broker that leads the Raft group, or the only master; None if there is none at the moment."""
        running = [broker for broker in self._brokers if broker.is_running]
        return next((broker for broker in running if broker.is_master), None)

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server, which clients need."""
        assert self._name_server is not None, "not started"
        return self._name_server.address

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """All brokers, the masters first."""
        return list(self._brokers)

    def broker(self, name: str = "broker-a", broker_id: int = 0) -> EmbeddedBroker:
        """One of the brokers; 0 is the master, slaves have 1, 2, … Raises KeyError."""
        for broker in self._brokers:
            if (broker.name, broker.broker_id) == (name, broker_id):
                return broker
        raise KeyError(f"{name} with brokerId {broker_id} is not in this cluster")

    @property
    def address(self) -> str:
        """`host:port` of the broker, of the first one if there are several."""
        return self._first.address

    @property
    def store(self) -> Path:
        """The folder of the broker's files; of the first one if there are several."""
        return self._first.store

    @property
    def metrics_port(self) -> int | None:
        """The URL of the metrics, with the property metricsExporterType=PROM; None otherwise."""
        return self._first.process.metrics_port

    @property
    def _first(self) -> EmbeddedBroker:
        assert self._brokers, "not started"
        return self._brokers[0]

    async def start(self) -> None:
        """Returns when clients can connect and all slaves follow their masters. Raises ConfError, StoreError."""
        root = self._store
        if root is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kourou-", ignore_cleanup_errors=True)
            root = Path(self._temporary.name)
        settings = Settings(
            bind_address=self._host,
            listen_port=self._namesrv_port,
            kv_config_path=str(root / "namesrv" / "kvConfig.json"),
            config_store_path=str(root / "namesrv" / "namesrv.properties"),
        )
        try:
            if not self._is_cluster:
                settings = with_access_of(settings, self._configurations[0])
            self._name_server = NameServerProcess(settings, shares_users=True)
            await self._name_server.start()
            if self._raft and self._store is not None:
                keep_ports(root, self._peers())
            sockets: list[socket.socket | None] = [*self._sockets] or [None] * len(self._members)
            for member, configuration, bound in zip(self._members, self._configurations, sockets, strict=True):
                folder = root / member.label if self._is_cluster else root
                broker = EmbeddedBroker(member, configuration, folder, self._host, bound)
                self._brokers.append(broker)
                await broker.start_with([self._name_server.address])
            if not self._is_cluster:
                self._name_server.share_users(self._first.process.machine.access_control.directory)
            await self._slaves_follow()
        except BaseException:
            await self.stop()
            raise

    async def _slaves_follow(self) -> None:
        """Raises ConfError if they do not within SLAVES_FOLLOW_SECONDS."""
        if self._raft:
            await self._is_led()
            return
        count = max(member.broker_id for member in self._members)
        if not count:
            return
        masters = [broker for broker in self._brokers if broker.is_master]
        try:
            async with asyncio.timeout(SLAVES_FOLLOW_SECONDS):
                while any(master.follower_count < count for master in masters):  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise ConfError(f"the slaves do not follow their masters within {SLAVES_FOLLOW_SECONDS:g} s") from None

    async def _is_led(self) -> None:
        """Wait until the Raft group has a leader that accepts messages. Raises ConfError."""
        try:
            async with asyncio.timeout(SLAVES_FOLLOW_SECONDS):
                while self.leader is None:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.005)
                await self.leader.process.registered()
        except TimeoutError:
            raise ConfError(f"the group has elected no leader within {SLAVES_FOLLOW_SECONDS:g} s") from None

    async def stop(self) -> None:
        """Stop all cleanly. A second call does nothing."""
        brokers, self._brokers = self._brokers, []
        name_server, self._name_server = self._name_server, None
        temporary, self._temporary = self._temporary, None
        try:
            for broker in brokers:
                await broker.stop()
        finally:
            for bound in self._sockets:  # those that no broker has used
                bound.close()
            if name_server is not None:
                await name_server.stop()
            if temporary is not None:
                temporary.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class EmbeddedThread:
    """An `Embedded` in a thread of its own, for code without asyncio or with several event loops."""

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
        brokers: int = 1,
        slaves: int = 0,
        sync: bool = False,
        raft: int = 0,
    ) -> None:
        """As `Embedded`."""
        self._embedded = Embedded(
            store=store,
            host=host,
            namesrv_port=namesrv_port,
            port=port,
            properties=properties,
            brokers=brokers,
            slaves=slaves,
            sync=sync,
            raft=raft,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @property
    def namesrv(self) -> str:
        return self._embedded.namesrv

    @property
    def address(self) -> str:
        return self._embedded.address

    @property
    def store(self) -> Path:
        return self._embedded.store

    @property
    def brokers(self) -> list[EmbeddedBroker]:
        """All brokers, the masters first. They live in the other thread: use `stop_broker` and `start_broker`."""
        return self._embedded.brokers

    @property
    def metrics_port(self) -> int | None:
        """As that of `Embedded`."""
        return self._embedded.metrics_port

    def stop_broker(self, name: str = "broker-a", broker_id: int = 0) -> None:
        """Stop one broker cleanly; the others continue. Raises KeyError."""
        self._do(self._embedded.broker(name, broker_id).stop())

    def start_broker(self, name: str = "broker-a", broker_id: int = 0) -> None:
        """Start it again, on the same port and with the same files. Raises KeyError, ConfError, StoreError."""
        self._do(self._embedded.broker(name, broker_id).start())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None, "not started"
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self) -> None:
        """Returns when clients can connect. Raises ConfError, StoreError."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="kourou-embedded", daemon=True)
        self._thread.start()
        ready.result()

    def _run(self, ready: Future[None]) -> None:
        asyncio.run(self._live(ready))

    async def _live(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self._embedded.start()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        await self._stop.wait()
        await self._embedded.stop()

    def stop(self) -> None:
        """Returns when everything is closed. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread.is_alive() and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
