"""Runs a broker's machine: passes it requests, time and finished work, and performs its effects.

One event loop owns everything. Worker threads run store jobs and write tables; they only wait for the disk, and their
results come back as events. Registrations are sent to name servers over separate connections.

    listener, fast listener ─▶ Requests ─┐                     ┌─▶ Reply, Tell ─▶ connections
    timer ─▶ Tick ───────────────────────┼─▶ Broker.step ──────┼─▶ Run, Save ─▶ workers ─▶ Done, Saved
    workers, name servers ───────────────┘                     └─▶ Announce ─▶ name servers ─▶ Announced
"""

import asyncio
import contextlib
import logging
import os
import random
import secrets
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

from kourou.access.plain_acl import PlainAcl
from kourou.broker.events import (
    AccountsRead,
    Announce,
    Announced,
    Answered,
    Ask,
    AskBroker,
    AskNameServer,
    Close,
    ConnectMember,
    Done,
    Effect,
    Event,
    Gone,
    GroupLink,
    Owe,
    Peer,
    PutBack,
    PutOff,
    Reply,
    ReplyFrames,
    ReplyParts,
    Requests,
    Run,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.broker.machine import Broker
from kourou.broker.missing import without_effect
from kourou.broker.properties import Configuration
from kourou.broker.property_values import members_of
from kourou.broker.settings import BrokerSettings
from kourou.net.background import Background
from kourou.net.connection import Connection
from kourou.net.limits import Limits
from kourou.net.listener import Listener
from kourou.net.proxy import networks
from kourou.net.tls import TlsSettings
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command, encode_head
from kourou.protocol.errors import KourouError, LocalProtocolError
from kourou.protocol.hosts import encode_host
from kourou.raft.transport import UNSENT_MAX
from kourou.replication.links import Accepted, Connect, HangUp, LinkEvent, Transfer
from kourou.server import exposure
from kourou.server.access_files import users_key, with_accounts
from kourou.server.account_watch import AccountWatch
from kourou.server.certificate_watch import CertificateWatch
from kourou.server.clock import SteadyClock, UniqueIdClock, file_time
from kourou.server.conf import AddressError, ConfError
from kourou.server.driver import Driver, Tasks
from kourou.server.ha import HaPort
from kourou.server.ha_gate import peer_security
from kourou.server.name_servers import NameServerLink, NameServers
from kourou.store.jobs import Job
from kourou.store.store import Store
from kourou.store.wall_clock import WallClock
from kourou.store.worker import Worker

if TYPE_CHECKING:
    from kourou.server.metrics import MetricsServer

log = logging.getLogger(__name__)

BROKERS_MAX = 16
"""The most connections for requests to other brokers (old and new masters) and controllers."""

SHUTDOWN_GRACE = 5.0
NEVER_IDLE = 366 * 24 * 3600.0
"""The idle time that 0 stands for: as with Apache, idle connections are not closed."""

FIRST_REGISTRATION = 3.0
"""How long a start waits for the name servers, so that clients find the broker as soon as it reports ready."""

FIRST_FOLLOWING = 20.0
"""How long a slave of a cluster waits for its master before it reports ready."""


@dataclass(frozen=True, slots=True)
class BrokerPaths:
    """The folders of a broker's state."""

    root: Path  # storePathRootDir
    commit_log: Path | None = None  # storePathCommitLog


class BrokerProcess:
    """A broker that listens. `async with` starts and stops it."""

    def __init__(
        self,
        configuration: Configuration,
        paths: BrokerPaths,
        name_servers: Sequence[str],
        *,
        host: str = "127.0.0.1",
        fast_port: int | None = None,
        tls: TlsSettings | None = None,
        outgoing_tls: TlsSettings | None = None,
        limits: Limits | None = None,
        group_socket: socket.socket | None = None,
    ) -> None:
        """Port 0 means any free port. A `fast_port` of None means no such port; without `tls` there is no TLS.

        `outgoing_tls`: use TLS for requests to name servers, controllers and other brokers.

        `group_socket` is bound to the address of this member in dLegerPeers; if it is None, the broker binds one.
        """
        acl_file = configuration.process.plain_acl_file if configuration.process.plain_acl else ""
        self._accounts = AccountWatch(Path(acl_file), self._accounts_read) if acl_file else None
        configuration = with_accounts(configuration)
        settings = configuration.broker
        self._configuration = configuration
        for sentence in without_effect(configuration.given):
            log.warning("%s", sentence)
        self._settings = settings
        self.open_ports: list[exposure.OpenPort] = []  # from the start on
        self._paths = paths
        self._host = host
        self._port = settings.port
        self._fast_port = fast_port
        self._tls = tls
        idle = float(configuration.process.idle_seconds) or NEVER_IDLE
        limits = replace(
            limits or Limits(),
            idle=idle,
            connections=configuration.process.connections_max,
            connections_of_address=configuration.process.connections_of_address,
            in_flight=configuration.process.in_flight_max,
        )
        self.background = Background(lambda: self._settings.bulk_ratio / 100)
        trusted = networks(configuration.process.trusted_proxies)
        self._listener, fast = (
            Listener(self, limits=limits, tls=tls, background=self.background, trusted_proxies=trusted)
            for _ in range(2)
        )
        self._fast_listener = fast if fast_port is not None else None
        self._listener.reader = fast.reader = self
        by_lookup = configuration.process.name_servers_by_lookup
        self._name_servers = NameServers(name_servers, outgoing_tls, by_lookup=by_lookup)
        self._outgoing_tls = outgoing_tls
        security = peer_security(configuration.process, tls)
        self._certificates = CertificateWatch([tls, outgoing_tls, security.tls, security.outgoing])
        self._ha = HaPort(self._link_event, security=security)
        self._group = HaPort(self._group_event, UNSENT_MAX, one_master=False, security=security, purpose="Raft")
        self._group_socket = group_socket
        self._brokers: dict[str, NameServerLink] = {}  # connections for requests to other brokers
        self._peers: dict[Connection, Peer] = {}
        self._machine: Broker | None = None
        self._worker: Worker | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kourou-broker-writer")
        self._driver: Driver[Event, Effect] | None = None
        self._tasks = Tasks()
        self._registered = asyncio.Event()
        self._metrics: MetricsServer | None = None
        self._clock = SteadyClock()
        self._wall_clock = WallClock()  # the store's, once it is open
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def machine(self) -> Broker:
        assert self._machine is not None, "not started"
        return self._machine

    @property
    def settings(self) -> BrokerSettings:
        return self._settings

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics; None if they are not served."""
        return None if self._metrics is None else self._metrics.port

    @property
    def store_root(self) -> Path:
        return self._paths.root

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def address(self) -> str:
        """The `ip:port` that is announced to clients."""
        return self._settings.address

    async def registered(self) -> None:
        """Wait until a name server knows the broker in its present role."""
        self._registered.clear()
        self.machine.registration.announce_now()
        self._step([Tick()])
        await self._registered.wait()

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Raises AddressError if an address can't be listened on, StoreError if the store can't be opened."""
        self._loop = asyncio.get_running_loop()
        await self._listen(self._listener, self._port)
        port = self._listener.port
        if self._fast_listener is not None:
            assert self._fast_port is not None
            try:
                await self._fast_listener.start(self._host, self._fast_port)
            except (OSError, OverflowError) as error:  # few clients use it, and they can use the main port
                log.warning("no fast port, because %s:%d can't be listened on: %s", self._host, self._fast_port, error)
                self._fast_listener = None
        ha_port = self._settings.ha_port
        if not self._settings.raft:
            ha_port = await self._listen_for_slaves(ha_port if self._port else 0)
        self._settings = replace(self._settings, port=port, ha_port=ha_port)
        fast_port = None if self._fast_listener is None else self._fast_listener.port
        process = self._configuration.process
        self.open_ports = exposure.of_broker(self._settings, process, self._host, fast_port, self._tls)
        self._settings.open_ports = exposure.warn(self.open_ports)
        self._configuration = replace(self._configuration, broker=self._settings)
        try:
            self._open()
        except BaseException:
            self._ha.close()
            await self._close_listeners(0.0)
            raise
        machine = self.machine
        await self._serve_metrics()
        self._certificates.start()
        if self._accounts is not None:
            self._accounts.start()
        if self._settings.raft:
            await self._listen_for_group()
        else:
            machine.registration.is_on = True
            if self._name_servers:
                machine.failover.ask_first(self._now())
        self._step([Tick()])
        if self._name_servers and not self._settings.raft:  # a member is registered once there is a leader
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_REGISTRATION):
                    await self._registered.wait()

    async def has_master(self) -> None:
        """Wait until this broker is a master or follows one, or until FIRST_FOLLOWING has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_FOLLOWING):
                while not self.machine.replication.has_master:  # noqa: ASYNC110 - nothing tells of it
                    await asyncio.sleep(0.01)

    async def _serve_metrics(self) -> None:
        process = self._configuration.process
        if process.metrics_type not in ("PROM", "DISABLE"):
            log.warning("metricsExporterType=%s is not supported: set PROM to export metrics", process.metrics_type)
        if process.metrics_type != "PROM":
            return
        from kourou.server.metrics import MetricsServer  # its library takes a while to import

        self._metrics = MetricsServer(self.machine, self._now)
        await self._metrics.start(process.metrics_host or self._host, process.metrics_port)
        log.info("metrics url=http://%s:%d/metrics", process.metrics_host or self._host, self._metrics.port)

    async def _listen(self, listener: Listener, port: int) -> None:
        try:
            await listener.start(self._host, port)
        except (OSError, OverflowError) as error:
            remedy = "Choose another port with --port or listenPort (0: any free port), or another address with --host"
            raise AddressError(f"{self._host}:{port}", error, remedy) from None

    async def _listen_for_group(self) -> None:
        """Listen on the port of the Raft group."""
        address = members_of(self._settings.raft_peers)[self._settings.raft_self]
        port = int(address.rpartition(":")[2])
        try:
            await self._group.listen(self._host, port, listening=self._group_socket)
        except OSError as error:
            await self.stop()
            remedy = "Choose another port in dLegerPeers of all members"
            raise AddressError(f"{self._host}:{port}", error, remedy) from None

    async def _listen_for_slaves(self, port: int) -> int:
        """Listen on the HA port. If that fails, the broker still serves clients."""
        try:
            return await self._ha.listen(self._host, port)
        except (OSError, OverflowError) as error:
            log.error(
                "slaves can't follow this broker: can't listen on %s:%d: %s. Set haListenPort to a free port",
                self._host,
                port,
                error,
            )
            return port

    def _open(self) -> None:
        settings, started_ms = self._settings, self._clock.now_ms()
        store_host = encode_host(settings.address)
        store = Store.open(
            self._paths.root,
            self._configuration.store,
            store_host=store_host,
            now_ms=started_ms,
            file_time=file_time,
            commit_log=self._paths.commit_log,
        )
        try:
            self._machine = Broker(
                self._configuration,
                store,
                store_host,
                now_ms=started_ms,
                memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                unique_id=UniqueIdClock(settings.ip),
                chance=random.Random(secrets.randbits(64)),
                local_day=lambda time_ms: file_time(time_ms)[:8],  # yyyyMMdd
                clock_ns=time.perf_counter_ns,
                users_key=users_key(self._configuration.process.users_key_file),
            )
        except OSError as error:
            store.abandon()
            raise ConfError(f"the tables in {self._paths.root / 'config'} can't be read: {error}") from None
        except BaseException:
            store.abandon()
            raise
        self._wall_clock = store.clock
        self._driver = Driver(
            self._machine, self._perform, now_ms=self._now, tick=Tick(), turn=Turn(), on_fault=self._fault
        )
        self._worker = Worker(self._job_done)

    async def stop(self) -> None:
        """Unregister, answer the accepted requests, and close the store cleanly: no `abort` file remains."""
        if self._machine is None or self._driver is None:
            await self._close_listeners(0.0)
            self._writer.shutdown()
            return
        machine = self._machine
        self._certificates.stop()
        if self._accounts is not None:
            self._accounts.stop()
        self._driver.rest()
        self._driver.perform(machine.leave(self._now()))
        self._ha.close()
        self._group.close()
        self._driver.perform(machine.release_pulls())
        await self._close_listeners(SHUTDOWN_GRACE)
        await self._tasks.finish(SHUTDOWN_GRACE)
        self._name_servers.close()
        for link in self._brokers.values():
            link.close()
        if self._metrics is not None:
            await self._metrics.stop()
        self._driver.close()
        # Not in the event loop's thread, so that a second signal is handled even if the disk hangs.
        await asyncio.to_thread(self._close_store)

    def _close_store(self) -> None:
        assert self._worker is not None
        self._writer.shutdown()
        for job in self._worker.close():
            self.machine.store.finished(job, self._now())
        self.machine.keep_all(self._now())
        self.machine.store.close(self._now())

    async def _close_listeners(self, grace: float) -> None:
        listeners = [self._listener] if self._fast_listener is None else [self._listener, self._fast_listener]
        await asyncio.gather(*(listener.close(grace) for listener in listeners))

    async def __aenter__(self) -> "BrokerProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, connection: Connection, data: bytes) -> None:
        """Bytes arrived on a connection."""
        driver = self._driver
        if driver is None:
            self.requests(connection, connection.decode(data))
            return
        peer = self._peers.get(connection) or self._meet(connection)
        try:
            effects = self.machine.read(((peer, data),), self._now())
        except Exception as error:
            self._fault("a read", error)
            connection.abort("internal error")
        else:
            driver.perform(effects)

    def _meet(self, connection: Connection) -> Peer:
        peer = Peer(connection.peer, _host_of(connection.peer), connection, connection.decode, connection.intake.user)
        self._peers[connection] = peer
        return peer

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        """Serve requests that had to wait until others were served."""
        if self._machine is None:
            for command in commands:
                if not command.is_one_way:
                    connection.reply(command.answer(ResponseCode.SYSTEM_BUSY, "the broker is starting: try again"))
            return
        self._step([Requests(self._peers.get(connection) or self._meet(connection), commands)])

    def closed(self, connection: Connection) -> None:
        peer = self._peers.pop(connection, None)
        if peer is not None and self._machine is not None:
            self._step([Gone(peer)])

    def _link_event(self, event: LinkEvent) -> None:
        """An event of a connection that carries the log."""
        if self._machine is not None:
            self._step([event])
        elif isinstance(event, Accepted):
            self._ha.perform(HangUp(event.link, "the broker is starting"))

    def _group_event(self, event: LinkEvent) -> None:
        self._step([GroupLink(event)])

    def _now(self) -> int:
        """The steady time; also tells the machine the time of day."""
        now_ms, self._wall_clock.skew_ms = self._clock.read()
        return now_ms

    def _job_done(self) -> None:
        """Called in a worker thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._take_jobs)

    def _take_jobs(self) -> None:
        if self._worker is not None:
            jobs = self._worker.finished()
            if jobs:
                self._step([Done(job) for job in jobs])

    def _accounts_read(self, acl: PlainAcl) -> None:
        self._step([AccountsRead(acl)])

    def _step(self, events: list[Event]) -> None:
        if self._driver is not None:
            self._driver.step(events)

    def _fault(self, what: str, error: Exception) -> None:
        """An unexpected failure. Connections and timers continue."""
        self.machine.faults += 1
        log.error("%s failed; the broker continues: %s", what, error, exc_info=error)

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is ReplyFrames:  # most effects are of these four kinds, and a match over classes takes its time
            effect.peer.link.reply_frames(effect.frames, effect.count)  # type: ignore[union-attr]
            if effect.is_bulk:  # type: ignore[union-attr]
                effect.peer.link.step_back()  # type: ignore[union-attr]
        elif kind is Reply:
            effect.peer.link.reply(effect.command)  # type: ignore[union-attr]
        elif kind is Transfer:
            self._ha.perform(effect)  # type: ignore[arg-type]
        elif kind is ReplyParts:
            _reply_parts(effect)  # type: ignore[arg-type]
        else:
            self._perform_rest(effect)

    def _perform_rest(self, effect: Effect) -> None:
        match effect:
            case Reply(peer, command):
                peer.link.reply(command)
            case ReplyParts():
                _reply_parts(effect)
            case ReplyFrames(peer, frames, count, is_bulk):
                peer.link.reply_frames(frames, count)
                if is_bulk:
                    peer.link.step_back()
            case Owe(peer, count):
                peer.link.owe(count)
            case PutOff(peer, data):
                peer.link.put_off(data)
            case PutBack(peer, commands):
                peer.link.put_back(commands)
            case Tell(peer, command):
                peer.link.send_now(command)
            case Close(peer, reason):
                peer.link.abort(reason)
            case Run(job):
                self._run(job)
            case Save():
                self._tasks.start(self._save(effect))
            case Ask():
                self._tasks.start(self._ask(effect))
            case AskBroker():
                self._tasks.start(self._ask_broker(effect))
            case AskNameServer():
                self._tasks.start(self._ask_name_server(effect))
            case Transfer() | HangUp() | Connect():
                self._ha.perform(effect)
            case ConnectMember(address):
                self._group.connect(address)
            case Announce():
                self._tasks.start(self._announce_to_all(effect))
            case _:
                assert_never(effect)

    def _run(self, job: Job) -> None:
        assert self._worker is not None
        self._worker.submit(job)

    async def _save(self, save: Save) -> None:
        assert self._loop is not None
        error: str | None = None
        try:
            await self._loop.run_in_executor(self._writer, save.file.write, save.content)
        except OSError as problem:
            error = f"{save.file.path}: {problem.strerror or problem}"
        except Exception as problem:
            self._fault(f"writing {save.file.path}", problem)
            error = f"{save.file.path}: {type(problem).__name__}: {problem}"
        self._step([Saved(save.name, save.version, error)])

    async def _ask(self, ask: Ask) -> None:
        connection: Connection = ask.peer.link
        answer: Command | None = None
        try:
            with contextlib.suppress(KourouError):
                answer = await connection.request(ask.command, ask.timeout_ms / 1000)
        finally:
            self._step([Answered(ask.token, answer)])

    async def _ask_broker(self, ask: AskBroker) -> None:
        link = self._brokers.get(ask.address)
        if link is None:
            while len(self._brokers) >= BROKERS_MAX:  # close the least recently used one
                self._brokers.pop(next(iter(self._brokers))).close()
            link = NameServerLink(ask.address, self._outgoing_tls)
        else:
            del self._brokers[ask.address]
        self._brokers[ask.address] = link
        answer = await link.ask(ask.command, ask.timeout_ms / 1000)
        self._step([Answered(ask.token, None if isinstance(answer, str) else answer)])

    async def _ask_name_server(self, ask: AskNameServer) -> None:
        answer = await self._name_servers.ask_one(ask.command, ask.timeout_ms / 1000)
        self._step([Answered(ask.token, answer)])

    async def _announce_to_all(self, announce: Announce) -> None:
        await asyncio.gather(*(self._announce(link, announce) for link in await self._name_servers.links()))

    async def _announce(self, link: NameServerLink, announce: Announce) -> None:
        answer = await link.ask(announce.command, announce.timeout_ms / 1000)
        code = announce.command.code
        if isinstance(answer, str):
            self._step([Announced(link.address, None, answer, code)])
        else:
            self._registered.set()
            self._step([Announced(link.address, answer, None, code)])


def _reply_parts(effect: ReplyParts) -> None:
    """Send header and records in one piece: for answers of usual size one copy is cheaper than many writes."""
    connection: Connection = effect.peer.link
    connection.reply_frame(b"".join((encode_head(effect.command, effect.size), *effect.parts)))
    if effect.is_bulk:
        connection.step_back()


def _host_of(address: str) -> bytes:
    try:
        return encode_host(address)
    except LocalProtocolError:
        return bytes(8)
