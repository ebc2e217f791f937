"""Runs the name server's machine: passes it requests, time and lost connections, and performs its effects.

One event loop owns everything. The only other thread writes the documents that must survive a restart; the requests
that changed them are answered when that is done, and routes are served meanwhile.
"""

import asyncio
import logging
import time
from collections.abc import Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import assert_never, cast

from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.nameserver.configuration import read_kv_text
from kourou.nameserver.events import (
    AccountsRead,
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
from kourou.net.connection import Connection
from kourou.net.limits import Limits
from kourou.net.listener import Listener
from kourou.net.proxy import networks
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.server import exposure
from kourou.server.access_files import name_server_access, name_server_users
from kourou.server.account_watch import AccountWatch
from kourou.server.certificate_watch import CertificateWatch
from kourou.server.conf import AddressError, ConfError
from kourou.server.driver import Driver, Tasks
from kourou.server.files import write_safely
from kourou.server.route_lane import RouteLane
from kourou.server.telling import tell

log = logging.getLogger(__name__)

SHUTDOWN_GRACE = 5.0
BATCH_TIME = 0.010
"""Seconds for which the requests of one connection are served before other connections have their turn."""

NEVER_IDLE = 366 * 24 * 3600.0
"""The idle time that 0 stands for: as with Apache, idle connections are not closed."""


class NameServerProcess:
    """A name server that listens. `async with` starts and stops it."""

    def __init__(
        self,
        settings: Settings,
        *,
        tls: TlsSettings | None = None,
        broker_tls: TlsSettings | None = None,
        limits: Limits | None = None,
        other_properties: Mapping[str, str] | None = None,
        shares_users: bool = False,
    ) -> None:
        """`broker_tls`: use TLS to notify brokers. `other_properties` are preserved in the file of settings.

        With `shares_users` the users are those of a broker in this process (`share_users`). Raises ConfError if the
        saved documents can't be read.
        """
        idle = float(settings.server_channel_max_idle_time_seconds) or NEVER_IDLE
        try:
            trusted = networks(settings.proxy_protocol_trusted)
        except ValueError as error:
            raise ConfError(f"proxyProtocolTrusted={settings.proxy_protocol_trusted}: {error}") from None
        limits = replace(
            limits or Limits(),
            idle=idle,
            connections=settings.max_connections,
            connections_of_address=settings.max_connections_per_address,
            in_flight=settings.max_requests_in_flight,
        )
        self._listener = Listener(self, limits=limits, tls=tls, trusted_proxies=trusted)
        self._broker_tls = broker_tls
        self._certificates = CertificateWatch([tls, broker_tls])
        self._start_settings = settings
        self.open_ports: list[exposure.OpenPort] = []  # from the start on
        self._tls = tls
        self._accounts = (
            AccountWatch(Path(settings.plain_acl_file), lambda acl: self._step([AccountsRead(acl)]))
            if settings.acl_enable
            else None
        )
        access = replace(name_server_access(settings), is_shared=shares_users)
        self._first_accounts = access.accounts
        self._paths = {
            Kept.USERS: name_server_users(settings),
            Kept.KV_CONFIG: Path(settings.kv_config_path),
            Kept.SETTINGS: Path(settings.config_store_path),
        }
        kv_config = _read_kv(self._paths[Kept.KV_CONFIG])
        try:
            self._machine = NameServer(
                settings, kv_config, _now_ms(), other_properties, time.perf_counter_ns, access=access
            )
        except AccessError as error:
            raise ConfError(
                f"the users and policies are invalid: {error}; correct the configuration or {self._paths[Kept.USERS]}"
            ) from None
        self._listener.reader = RouteLane(self._machine, self)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kourou-namesrv-writer")
        self._driver: Driver[Event, Effect] | None = None
        self._saves = Tasks()
        self._tells = Tasks()
        self._stopping = False

    @property
    def machine(self) -> NameServer:
        return self._machine

    @property
    def listener(self) -> Listener:
        return self._listener

    @property
    def address(self) -> str:
        """ "host:port" on which it listens."""
        host = self._start_settings.bind_address
        return f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"

    def share_users(self, directory: Directory | None) -> None:
        """Use the users of a broker in this process from now on, if it has any."""
        if directory is not None and self._machine.access.is_on:
            self._machine.access.use_users(directory)

    async def start(self) -> None:
        """Raises AddressError if the address can't be listened on."""
        settings = self._start_settings
        try:
            await self._listener.start(settings.bind_address, settings.listen_port)
        except (OSError, OverflowError) as error:
            remedy = "Choose another port with -p PORT (0: any free port), or another address with --host"
            raise AddressError(f"{settings.bind_address}:{settings.listen_port}", error, remedy) from None
        self._machine.bound(self._listener.port)
        self.open_ports = exposure.of_name_server(self._machine.settings, self._tls, self._first_accounts)
        exposure.warn(self.open_ports)
        self._driver = Driver(
            self._machine, self._perform, now_ms=_now_ms, tick=Tick(), turn=Turn(), on_fault=self._fault
        )
        self._certificates.start()
        if self._accounts is not None:
            self._accounts.start()
        self._step([Tick()])

    async def stop(self) -> None:
        """Answer the accepted requests, then stop. A running write is completed."""
        self._stopping = True
        self._certificates.stop()
        if self._accounts is not None:
            self._accounts.stop()
        if self._driver is not None:
            self._driver.rest()
        await self._listener.close(SHUTDOWN_GRACE)
        await self._saves.finish(SHUTDOWN_GRACE)
        await self._tells.finish(0.0)
        # Not in the event loop's thread, so that a second signal is handled even if the disk hangs.
        await asyncio.to_thread(self._writer.shutdown)

    async def __aenter__(self) -> "NameServerProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        """Serve these requests. If that takes long, the rest waits until other connections had their turn."""
        until, user = time.perf_counter() + BATCH_TIME, connection.intake.user
        for count, command in enumerate(commands, 1):
            self._step([Asked(connection, command, connection.peer, user)])
            if count < len(commands) and time.perf_counter() > until:
                connection.put_back(commands[count:])
                return

    def closed(self, connection: Connection) -> None:
        if not self._stopping:  # while this server stops, brokers are not reported as disconnected
            self._step([Gone(connection)])

    def _step(self, events: list[Event]) -> None:
        if self._driver is not None:
            self._driver.step(events)

    def _fault(self, what: str, error: Exception) -> None:
        """An unexpected failure. Connections and timers continue."""
        log.error("%s failed; the name server continues: %s", what, error, exc_info=error)

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect) -> None:
        if type(effect) is Reply:  # nearly all are, and a match over classes takes as long as the answer
            _connection(effect.connection).reply(effect.command)
            return
        match effect:
            case Reply(connection, command):
                _connection(connection).reply(command)
            case Close(connection, reason):
                _connection(connection).abort(reason)
            case Save():
                self._saves.start(self._save(effect))
            case Tell():
                self._tells.start(
                    tell(effect.address, effect.command, _connection(effect.connection), self._broker_tls)
                )
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


def _connection(handle: Hashable) -> Connection:
    return cast(Connection, handle)


def _now_ms() -> int:
    """Monotonic, since only differences matter and a change of the clock must not make all brokers look silent."""
    return time.monotonic_ns() // 1_000_000


def _read_kv(path: Path) -> dict[str, dict[str, str]]:
    """The saved KV configuration; the backup if the file can't be parsed. Raises ConfError if neither can."""
    if not path.exists():
        return {}
    problems: list[str] = []
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            return read_kv_text(candidate.read_bytes())
        except (OSError, BodyError) as error:
            problems.append(f"{candidate}: {error}")
            log.error("the KV configuration can't be read path=%s: %s", candidate, error)
    raise ConfError(f"the KV configuration can't be read ({'; '.join(problems)}): repair or remove the file")
