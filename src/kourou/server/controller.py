"""Runs a controller: gives its machine requests, time and connections, and performs its effects.

Requests come to the port in `controllerDLegerPeers`, the other controllers to the port after it. One writer thread
replaces the controller's file; everything else happens on the event loop.
"""

import asyncio
import logging
import random
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, assert_never, cast

from kourou.access.errors import AccessError
from kourou.controller.access import AccessSettings
from kourou.controller.events import Asked, Effect, Event, Gone, PeerLink, Reply, Save, Saved, Tell, Tick
from kourou.controller.machine import Controller
from kourou.controller.member import BadFileError, Image, raft_address
from kourou.controller.settings import ControllerSettings
from kourou.net.connection import Connection
from kourou.net.limits import Limits
from kourou.net.listener import Listener
from kourou.net.tls import TlsSettings
from kourou.protocol.command import Command
from kourou.raft.transport import UNSENT_MAX
from kourou.replication.links import Connect, HangUp, LinkEvent, Transfer
from kourou.server import exposure
from kourou.server.certificate_watch import CertificateWatch
from kourou.server.conf import AddressError, ConfError
from kourou.server.driver import Driver, Tasks
from kourou.server.files import write_safely
from kourou.server.ha import HaPort
from kourou.server.ha_gate import OPEN, PeerSecurity
from kourou.server.telling import tell

log = logging.getLogger(__name__)

FILE: Final = "kourou-controller"
"""The file of a controller, in controllerStorePath."""

SHUTDOWN_GRACE: Final = 5.0


class ControllerProcess:
    """A controller that listens. `async with` starts and stops it."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        host: str | None = None,
        port: int | None = None,
        tls: TlsSettings | None = None,
        broker_tls: TlsSettings | None = None,
        limits: Limits | None = None,
        access: AccessSettings | None = None,
        security: PeerSecurity = OPEN,
    ) -> None:
        """`host` and `port` are where to listen for requests, if that differs from the address of this controller.

        `broker_tls`: use TLS to notify brokers. `security`: how controllers authenticate each other.

        Raises ConfError if the file can't be used.
        """
        self._settings = settings
        self._tls, self._broker_tls = tls, broker_tls
        self._access = access or AccessSettings()
        self._certificates = CertificateWatch([tls, broker_tls, security.tls, security.outgoing])
        own, _, own_port = settings.members()[settings.self_id].rpartition(":")
        self._host = host or own.strip("[]")
        self._told = own if settings.peers.strip(" ;") or not host else host  # the host that is announced to brokers
        self._port = int(own_port) if port is None else port
        self._path = Path(settings.store) / FILE
        self._listener = Listener(self, limits=limits or Limits(), tls=tls)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kourou-controller-writer")
        self._peers = HaPort(self._linked, UNSENT_MAX, one_master=False, security=security, purpose="controller")
        self._driver: Driver[Event, Effect] | None = None
        self._saves = Tasks()
        self._tells = Tasks()
        self._is_stopping = False
        self._machine = self._read()

    def _read(self) -> Controller:
        """Raises ConfError."""
        try:
            image = Image.decode(self._path.read_bytes()) if self._path.exists() else None
            return Controller(self._settings, image, random.Random(), _now_ms(), self._access)
        except AccessError as error:
            raise ConfError(f"the users of the controller can't be used: {error}") from None
        except (OSError, BadFileError) as error:
            raise ConfError(
                f"{self._path} can't be used: {error}. Without its vote, this controller could help to elect a second "
                "leader: restore the file from a backup of this controller, never from that of another one"
            ) from None

    @property
    def machine(self) -> Controller:
        return self._machine

    @property
    def address(self) -> str:
        """ "host:port" that is announced to brokers."""
        host = self._told.strip("[]")
        return f"[{host}]:{self._listener.port}" if ":" in host else f"{host}:{self._listener.port}"

    async def start(self) -> None:
        """Raises AddressError if an address can't be listened on."""
        remedy = "Choose another port in controllerDLegerPeers of all controllers; each also needs the next port"
        try:
            await self._listener.start(self._host, self._port)
        except (OSError, OverflowError) as error:
            raise AddressError(f"{self._host}:{self._port}", error, remedy) from None
        own = self._settings.members()
        if len(own) == 1:  # no other controller has to know the ports in advance
            self._machine.listens_at(self.address)
        else:
            peer_port = int(raft_address(own[self._settings.self_id]).rpartition(":")[2])
            try:
                await self._peers.listen(self._host, peer_port)
            except (OSError, OverflowError) as error:
                await self._listener.close(0.0)
                raise AddressError(f"{self._host}:{peer_port}", error, remedy) from None
        exposure.warn(
            exposure.of_controller(self.address, self._host, self._tls, authenticates=self._access.authenticates)
        )
        self._certificates.start()
        self._driver = Driver(
            self._machine, self._perform, now_ms=_now_ms, tick=Tick(), turn=Tick(), on_fault=self._fault
        )
        self._step([Tick()])

    async def stop(self) -> None:
        """Stop. A running write is completed."""
        self._is_stopping = True
        self._certificates.stop()
        if self._driver is not None:
            self._driver.rest()
        await self._listener.close(SHUTDOWN_GRACE)
        await self._saves.finish(SHUTDOWN_GRACE)
        await self._tells.finish(0.0)
        if self._driver is not None:
            self._driver.close()
        self._peers.close()
        await asyncio.to_thread(self._writer.shutdown)

    async def __aenter__(self) -> "ControllerProcess":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        peer, user = connection.peer, connection.intake.user
        self._step([Asked(connection, command, peer, user) for command in commands])

    def closed(self, connection: Connection) -> None:
        if not self._is_stopping:
            self._step([Gone(connection)])

    def _linked(self, event: LinkEvent) -> None:
        self._step([PeerLink(event)])

    def _step(self, events: list[Event]) -> None:
        if self._driver is not None:
            self._driver.step(events)

    def _fault(self, what: str, error: Exception) -> None:
        log.error("%s failed; the controller continues: %s", what, error, exc_info=error)

    # ── Effects ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply(connection, command):
                _connection(connection).reply(command)
            case Save(content):
                self._saves.start(self._save(content))
            case Tell(address, command, connection):
                self._tells.start(tell(address, command, _connection(connection), self._broker_tls))
            case Transfer() | HangUp() | Connect():
                self._peers.perform(effect)
            case _:
                assert_never(effect)

    async def _save(self, content: bytes) -> None:
        error: str | None = None
        try:
            await asyncio.get_running_loop().run_in_executor(self._writer, write_safely, self._path, content)
        except OSError as problem:
            error = f"{self._path}: {problem.strerror or problem}"
        self._step([Saved(error)])


def _connection(handle: Hashable) -> Connection:
    return cast(Connection, handle)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
