"""Runs a broker's machine: gives it requests, time and finished work, and performs its effects.

One event loop owns everything. Store jobs and tables are run by worker threads that only wait for the disk; their ends
come back as events. Name servers are told over connections of their own.

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
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from kourou.broker.events import (
    Announce,
    Announced,
    Answered,
    Ask,
    Close,
    Done,
    Effect,
    Event,
    Gone,
    Owe,
    Peer,
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
from kourou.server.clock import SteadyClock, UniqueIdClock, file_time
from kourou.server.conf import AddressError, ConfError
from kourou.server.name_servers import NameServerLink, NameServers
from kourou.store.jobs import Job
from kourou.store.store import Store
from kourou.store.wall_clock import WallClock
from kourou.store.worker import Worker

if TYPE_CHECKING:
    from kourou.server.metrics import MetricsServer

log = logging.getLogger(__name__)

TICK = 0.1
"""Seconds between two looks at what is due, for what needs no more precision."""

SHUTDOWN_GRACE = 5.0
NEVER_IDLE = 366 * 24 * 3600.0
"""What an idle time of 0 stands for: as with Apache, connections are not closed for being idle."""

FIRST_REGISTRATION = 3.0
"""How long a start waits for the name servers: clients find the broker as soon as it says that it is ready."""


@dataclass(frozen=True, slots=True)
class BrokerPaths:
    """Where a broker keeps its state."""

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
        name_server_tls: TlsSettings | None = None,
        limits: Limits | None = None,
    ) -> None:
        """A port of 0 means any free one, a `fast_port` of None means none, and the same for TLS."""
        settings = configuration.broker
        self._configuration = configuration
        for sentence in without_effect(configuration.given):
            log.warning("%s", sentence)
        self._settings = settings
        self._paths = paths
        self._host = host
        self._port = settings.port
        self._fast_port = fast_port
        idle = float(configuration.process.idle_seconds) or NEVER_IDLE
        limits = replace(limits or Limits(), idle=idle)
        self.background = Background(lambda: self._settings.bulk_ratio / 100)
        trusted = networks(configuration.process.trusted_proxies)
        self._listener, fast = (
            Listener(self, limits=limits, tls=tls, background=self.background, trusted_proxies=trusted)
            for _ in range(2)
        )
        self._fast_listener = fast if fast_port is not None else None
        self._listener.reader = fast.reader = self
        by_lookup = configuration.process.name_servers_by_lookup
        self._name_servers = NameServers(name_servers, name_server_tls, by_lookup=by_lookup)
        self._peers: dict[Connection, Peer] = {}
        self._machine: Broker | None = None
        self._worker: Worker | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kourou-broker-writer")
        self._tasks: set[asyncio.Task[None]] = set()
        self._registered = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._metrics: MetricsServer | None = None
        self._stepping = False
        self._clock = SteadyClock()
        self._wall_clock = WallClock()  # the store's, once it is open
        self._events: list[Event] = []  # that came while a step was under way
        self._stopping = False
        self._turn_due = False  # long work goes on in the loop's next round
        self._closed = False  # the store is being closed, in another thread
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
        """Where the metrics are; None if they are nowhere."""
        return None if self._metrics is None else self._metrics.port

    @property
    def store_root(self) -> Path:
        return self._paths.root

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def address(self) -> str:
        """`ip:port` that clients are told."""
        return self._settings.address

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Raises AddressError: an address can't be listened on; StoreError: the store can't be opened."""
        self._loop = asyncio.get_running_loop()
        await self._listen(self._listener, self._port)
        port = self._listener.port
        if self._fast_listener is not None:
            assert self._fast_port is not None
            try:
                await self._fast_listener.start(self._host, self._fast_port)
            except (OSError, OverflowError) as error:  # few clients ask for it, and all find the other one
                log.warning("no fast port: can't listen on %s:%d: %s", self._host, self._fast_port, error)
                self._fast_listener = None
        ha_port = self._settings.ha_port if self._port else port + 1
        self._settings = replace(self._settings, port=port, ha_port=ha_port)
        self._configuration = replace(self._configuration, broker=self._settings)
        try:
            self._open()
        except BaseException:
            await self._close_listeners(0.0)
            raise
        machine = self.machine
        await self._serve_metrics()
        machine.registration.is_on = True
        self._step([Tick()])
        self._schedule()
        if self._name_servers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_REGISTRATION):
                    await self._registered.wait()

    async def _serve_metrics(self) -> None:
        process = self._configuration.process
        if process.metrics_type not in ("PROM", "DISABLE"):
            log.warning("metricsExporterType=%s is not in this version, only PROM is: no metrics", process.metrics_type)
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
            remedy = "Another port: --port PORT or listenPort (0 chooses a free one); another address: --host"
            raise AddressError(f"{self._host}:{port}", error, remedy) from None

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
            )
        except OSError as error:
            store.abandon()
            raise ConfError(f"the tables in {self._paths.root / 'config'} can't be read: {error}") from None
        except BaseException:
            store.abandon()
            raise
        self._wall_clock = store.clock
        self._worker = Worker(self._job_done)

    async def stop(self) -> None:
        """Leaves the name servers, answers what was taken, and closes the store: nothing is lost, no `abort` stays."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        if self._machine is None:
            await self._close_listeners(0.0)
            self._writer.shutdown()
            return
        machine = self._machine
        self._perform(machine.leave(self._now()))
        self._perform(machine.release_pulls())
        await self._close_listeners(SHUTDOWN_GRACE)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SHUTDOWN_GRACE)
        for task in self._tasks:
            task.cancel()
        self._name_servers.close()
        if self._metrics is not None:
            await self._metrics.stop()
        self._closed = True
        # Not in the event loop's thread: a disk that hangs must not keep a second signal from being heard.
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
        """Bytes came on a connection."""
        machine = self._machine
        if machine is None:
            self.requests(connection, connection.decode(data))
            return
        peer = self._peers.get(connection) or self._meet(connection)
        self._stepping = True
        try:
            self._perform(machine.read(((peer, data),), self._now()))
        except Exception as error:
            self._fault("a read", error)
            connection.abort("internal error")
        finally:
            self._stepping = False
        if self._events or machine.turns.is_busy:
            self._end_of_step()

    def _meet(self, connection: Connection) -> Peer:
        peer = Peer(connection.peer, _host_of(connection.peer), connection, connection.decode)
        self._peers[connection] = peer
        return peer

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        """Requests that had to wait until others were served."""
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

    def _tick(self) -> None:
        try:
            self._step([Tick()])
        finally:
            self._schedule()

    def _schedule(self) -> None:
        """Set the timer. It is the pulse of the broker: whatever fails, the next tick comes."""
        assert self._loop is not None
        wait = TICK
        try:
            now = self._now()
            wait = min(max(self.machine.wake_ms(now) - now, 0) / 1000, TICK)
        except Exception as error:
            self._fault("when the next tick is due", error)
        finally:
            self._timer = self._loop.call_later(wait, self._tick)

    def _now(self) -> int:
        """The steady time; the machine is told the time of day with it."""
        now_ms, self._wall_clock.skew_ms = self._clock.read()
        return now_ms

    def _job_done(self) -> None:
        """In a worker thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._take_jobs)

    def _take_jobs(self) -> None:
        if self._worker is not None:
            jobs = self._worker.finished()
            if jobs:
                self._step([Done(job) for job in jobs])

    def _step(self, events: list[Event]) -> None:
        """A step's effects may cause events at once (a reply may close a connection): these wait for the next step."""
        self._events += events
        if not self._stepping:
            self._end_of_step()

    def _end_of_step(self) -> None:
        """Take all events that have gathered, and see to long work."""
        if self._events:
            self._stepping = True
            try:
                while self._events:
                    events, self._events = self._events, []
                    try:
                        self._perform(self.machine.step(events, self._now()))
                    except Exception as error:
                        self._fault("a step", error)
            finally:
                self._stepping = False
        if self.machine.is_busy and not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        """A slice of long work, after everybody whose bytes are here was served."""
        self._turn_due = False
        if not self._closed:
            self._step([Turn()])

    def _fault(self, what: str, error: Exception) -> None:
        """Something failed that nobody expected to fail. Connections and timers go on."""
        self.machine.faults += 1
        log.error("%s failed, the broker goes on: %s", what, error, exc_info=error)

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            try:
                kind = type(effect)
                if kind is ReplyFrames:
                    effect.peer.link.reply_frames(effect.frames, effect.count)  # type: ignore[union-attr]
                    if effect.is_bulk:  # type: ignore[union-attr]
                        effect.peer.link.step_back()  # type: ignore[union-attr]
                elif kind is Reply:
                    effect.peer.link.reply(effect.command)  # type: ignore[union-attr]
                elif kind is ReplyParts:
                    _reply_parts(effect)  # type: ignore[arg-type]
                else:
                    self._perform_rest(effect)
            except Exception as error:  # the effects of other peers are performed all the same
                self._fault(f"the effect {type(effect).__name__}", error)

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
            case Tell(peer, command):
                peer.link.send_now(command)
            case Close(peer, reason):
                peer.link.abort(reason)
            case Run(job):
                self._run(job)
            case Save():
                self._start(self._save(effect))
            case Ask():
                self._start(self._ask(effect))
            case Announce():
                self._start(self._announce_to_all(effect))
            case _:
                assert_never(effect)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
    """The head and the records in one piece: for answers of usual size one copy is cheaper than many writes."""
    connection: Connection = effect.peer.link
    connection.reply_frame(b"".join((encode_head(effect.command, effect.size), *effect.parts)))
    if effect.is_bulk:
        connection.step_back()


def _host_of(address: str) -> bytes:
    try:
        return encode_host(address)
    except LocalProtocolError:
        return bytes(8)
