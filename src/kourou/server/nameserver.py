"""Runs the name server's machine: gives it requests, time and lost connections, and performs its effects.

One event loop owns everything. The only other thread writes the documents that must survive; their authors are answered
when that is done, and routes are served meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, assert_never, cast

from kourou.nameserver.configuration import read_kv_text
from kourou.nameserver.events import (
    Asked,
    Close,
    Effect,
    Event,
    Gone,
    Kept,
    NotSaved,
    Reply,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.errors import TransportError
from kourou.net.limits import Limits
from kourou.net.listener import Listener
from kourou.net.proxy import networks
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.names import shown
from kourou.server.conf import AddressError, ConfError
from kourou.server.files import write_safely
from kourou.server.route_lane import RouteLane

log = logging.getLogger(__name__)

TELL_TIMEOUT = 3.0
SCAN_INTERVAL_MIN = 0.1
SHUTDOWN_GRACE = 5.0
NEVER_IDLE = 366 * 24 * 3600.0
"""What an idle time of 0 stands for: as with Apache, connections are not closed for being idle."""


class NameServerProcess:
    """A name server that listens. `async with` starts and stops it."""

    def __init__(
        self,
        settings: Settings,
        *,
        tls: TlsSettings | None = None,
        limits: Limits | None = None,
        other_properties: Mapping[str, str] | None = None,
    ) -> None:
        """`other_properties` of the settings' file stay in it. Raises ConfError: what was kept can't be read."""
        idle = float(settings.server_channel_max_idle_time_seconds) or NEVER_IDLE
        try:
            trusted = networks(settings.proxy_protocol_trusted)
        except ValueError as error:
            raise ConfError(f"proxyProtocolTrusted={settings.proxy_protocol_trusted}: {error}") from None
        limits = replace(limits or Limits(), idle=idle)
        self._listener = Listener(self, limits=limits, tls=tls, trusted_proxies=trusted)
        self._start_settings = settings
        self._paths = {
            Kept.KV_CONFIG: Path(settings.kv_config_path),
            Kept.SETTINGS: Path(settings.config_store_path),
        }
        self._machine = NameServer(
            settings, _read_kv(self._paths[Kept.KV_CONFIG]), _now_ms(), other_properties, time.perf_counter_ns
        )
        self._listener.reader = RouteLane(self._machine, self)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kourou-namesrv-writer")
        self._timer: asyncio.TimerHandle | None = None
        self._saves: set[asyncio.Task[None]] = set()
        self._tells: set[asyncio.Task[None]] = set()
        self._turn_due = False
        self._stopping = False

    @property
    def machine(self) -> NameServer:
        return self._machine

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def address(self) -> str:
        """ "host:port" that is listened on."""
        host = self._start_settings.bind_address
        return f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"

    async def start(self) -> None:
        """Raises AddressError: the address can't be listened on."""
        settings = self._start_settings
        try:
            await self._listener.start(settings.bind_address, settings.listen_port)
        except (OSError, OverflowError) as error:
            remedy = "Another port: -p PORT (0 chooses a free one); another address: --host"
            raise AddressError(f"{settings.bind_address}:{settings.listen_port}", error, remedy) from None
        self._machine.bound(self._listener.port)
        self._schedule_scan()

    async def stop(self) -> None:
        """Answers what was taken, then ends. What is being written is written."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        await self._listener.close(SHUTDOWN_GRACE)
        if self._saves:
            await asyncio.wait(self._saves, timeout=SHUTDOWN_GRACE)
        for task in (*self._saves, *self._tells):
            task.cancel()
        # Not in the event loop's thread: a disk that hangs must not keep a second signal from being heard.
        await asyncio.to_thread(self._writer.shutdown)

    async def __aenter__(self) -> "NameServerProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        self._step([Asked(connection, command) for command in commands])

    def closed(self, connection: Connection) -> None:
        if not self._stopping:  # it is we who leave: nobody is to be told that brokers did
            self._step([Gone(connection)])

    def _scan(self) -> None:
        self._step([Tick()])
        self._schedule_scan()

    def _schedule_scan(self) -> None:
        interval = max(self._machine.settings.scan_not_active_broker_interval / 1000, SCAN_INTERVAL_MIN)
        self._timer = asyncio.get_running_loop().call_later(interval, self._scan)

    def _step(self, events: list[Event]) -> None:
        for effect in self._machine.step(events, _now_ms()):
            if type(effect) is Reply:  # nearly all are, and a match over classes costs as much as the answer
                _connection(effect.connection).reply(effect.command)
            else:
                self._perform(effect)
        if self._machine.is_busy and not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        self._step([Turn()])

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply(connection, command):
                _connection(connection).reply(command)
            case Close(connection, reason):
                _connection(connection).abort(reason)
            case Save():
                _start(self._save(effect), self._saves)
            case Tell():
                _start(_tell(effect), self._tells)
            case _:
                assert_never(effect)

    async def _save(self, save: Save) -> None:
        path = self._paths[save.document]
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, write_safely, path, save.content)
        except OSError as error:
            reason = f"{path} can't be written: {error.strerror or error}"
            self._step([NotSaved(save.document, save.version, reason)])
        else:
            self._step([Saved(save.document, save.version)])


def _start(work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> None:
    task = asyncio.get_running_loop().create_task(work)
    among.add(task)
    task.add_done_callback(among.discard)


async def _tell(tell: Tell) -> None:
    """Brokers name their own addresses, so anything may stand there: only the broker's own host is connected to."""
    host, _, port = tell.address.rpartition(":")
    peer = _connection(tell.connection).peer.rpartition(":")[0]
    if host.strip("[]") != peer.strip("[]"):
        log.warning("broker not told address=%s: it registered from %s", shown(tell.address), peer)
        return
    try:
        async with asyncio.timeout(TELL_TIMEOUT):
            connection = await connect(host.strip("[]"), int(port), timeout=TELL_TIMEOUT)
            try:
                await connection.send(tell.command)
            finally:
                connection.close()
    except (TransportError, TimeoutError, ValueError, OverflowError) as error:
        log.warning("broker not told address=%s code=%d: %s", shown(tell.address), tell.command.code, shown(error))


def _connection(handle: Hashable) -> Connection:
    return cast(Connection, handle)


def _now_ms() -> int:
    """Only differences matter, and a clock that is set must not make all brokers look silent."""
    return time.monotonic_ns() // 1_000_000


def _read_kv(path: Path) -> dict[str, dict[str, str]]:
    """What was kept; the backup if the file itself does not parse. Raises ConfError when neither does."""
    if not path.exists():
        return {}
    problems: list[str] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            return read_kv_text(candidate.read_bytes())
        except (OSError, BodyError) as error:
            problems.append(f"{candidate}: {error}")
            log.error("KV configuration not readable path=%s: %s", candidate, error)
    raise ConfError(f"the KV configuration can't be read ({'; '.join(problems)}): mend or remove the file")
