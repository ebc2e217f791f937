"""The parts that all producers and consumers of a client share: connections, routes, heartbeats, brokers' requests.

    Session ── Pool ── Link …        one connection per server
       ├── NameServers, Routes       queried when needed, and again every 30 seconds
       ├── heartbeats                to every broker of these routes: every 30 seconds, and first on a new connection
       └── requests of brokers       39 40 220 221 307 309 326, passed to the part that has the group

A heartbeat tells a broker a client's groups. It is the first request on a new connection, so that no other
request comes before it, even after a broker was restarted. Java: MQClientInstance, ClientRemotingProcessor.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol

from kourou.client import identity, naming
from kourou.client.errors import ClosedError, GroupInUseError
from kourou.client.events import Announcer, Connected, Disconnected
from kourou.client.link import Link
from kourou.client.metrics import ClientMetrics
from kourou.client.nameservers import NameServers, namespace_of
from kourou.client.pool import Pool
from kourou.client.routes import Route, Routes
from kourou.client.settings import ClientSettings
from kourou.net.connection import Connection
from kourou.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from kourou.protocol.codes import MASTER_ID, CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError, SystemBusyError
from kourou.protocol.headers import UnregisterClient

log = logging.getLogger(__name__)

INNER_PRODUCER = "CLIENT_INNER_PRODUCER"
_ONE_WAY = int(CommandFlag.ONE_WAY)

QUESTIONS_MAX: Final = 256
"""Requests of brokers that are answered at the same time; further ones get SYSTEM_BUSY."""

Question = Callable[[Connection, Command], None]


class Member(Protocol):
    """A consumer, as far as the session is concerned."""

    group: str

    def heartbeat(self) -> ConsumerData: ...

    def topics(self) -> set[str]:
        """The topics, with their namespace."""

    def route_changed(self, route: Route) -> None: ...

    def rebalance_soon(self) -> None: ...


class Session:
    """See the module's text. All topics and groups in here have the names that brokers know, with the namespace."""

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.ip = identity.local_ip()
        self.client_id = identity.client_id(
            self.ip, settings.instance_name or identity.fresh_instance(), settings.unit_name
        )
        self.namespace = settings.namespace or namespace_of(settings.name_servers)
        self.metrics = ClientMetrics()
        self.pool = Pool(
            self,
            credentials=settings.credentials,
            tls=settings.tls,
            connect_timeout=settings.connect_timeout,
            pacing=settings.pacing,
        )
        self.pool.on_connected = self._connected
        self.pool.on_lost = self._lost
        self._announcer = None if settings.on_connection is None else Announcer(settings.on_connection, self)
        self.name_servers = NameServers(
            self.pool,
            settings.name_servers,
            discovery_url=settings.discovery_url,
            timeout=settings.request_timeout,
        )
        self.routes = Routes(self.name_servers)
        self.routes.on_change = self._route_changed
        self.producer_groups: set[str] = set()
        self.members: dict[str, Member] = {}
        self.broker_versions: dict[str, int] = {}
        self._used: set[str] = set()  # topics that were sent to, or pulled from explicitly
        self._questions: dict[int, Question] = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._ids_changed}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._answering: set[asyncio.Task[None]] = set()
        self._uses_all_brokers = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state = "new"

    # ── Life ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Starts the periodic work. To be called once, inside a running event loop."""
        if self._state != "new":
            raise ClosedError("a client can be started only once: make a new one")
        self._state = "running"
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        self.every(settings.route_interval, self._refresh_routes)
        self.every(settings.heartbeat_interval, self.heartbeat)
        if settings.discovery_url is not None:
            self.every(settings.discovery_interval, self.name_servers.discover)

    def check_running(self) -> None:
        """Raises ClosedError."""
        if self._state != "running":
            raise ClosedError("the client is closed" if self._state == "closed" else "the client is not started yet")
        if asyncio.get_running_loop() is not self._loop:
            raise ClosedError(
                "the client belongs to another event loop, in which it was first used: make a client inside of each "
                "asyncio.run, or use kourou.sync, whose clients serve all threads"
            )

    async def close(self) -> None:
        """Ends the periodic work and closes the connections."""
        self._state = "closed"
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)
        await self.pool.close()
        if self._announcer is not None:
            await asyncio.sleep(0)  # connections report that they are closed in the next turn of the loop
            await self._announcer.finish(self.settings.request_timeout)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Starts a task that ends with the session; a failure is logged."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background work failed task=%s", task.get_name(), exc_info=error)

    def every(self, interval: float, work: Callable[[], Awaitable[None]]) -> "asyncio.Task[None]":
        """Repeats the work every `interval` seconds, even after failures."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval)
                try:
                    await work()
                except KourouError as error:
                    log.warning("%s failed: %s", work.__name__, error)
                except Exception:
                    log.exception("%s failed", work.__name__)

        return self.spawn(repeat(), work.__name__)

    # ── Names and routes ──────────────────────────────────────────────────────────────────────────────────────────

    def wrap(self, name: str) -> str:
        return naming.wrap(name, self.namespace)

    def unwrap(self, name: str) -> str:
        return naming.unwrap(name, self.namespace)

    async def publish_route(self, topic: str) -> Route:
        """The route of a topic that is sent to. Raises NoRouteError, NoNameServerError."""
        self._used.add(topic)
        return self.routes.cached(topic) or await self.routes.get(topic, or_default=True)

    def use(self, topic: str) -> None:
        """Keep the route of this topic, and its brokers, from now on."""
        self._used.add(topic)

    async def use_all_brokers(self) -> None:
        """Send heartbeats to all brokers from now on. Raises NoNameServerError, RefusedError, BodyError."""
        self._uses_all_brokers = True
        await self.routes.refresh_cluster()

    def topics_in_use(self) -> set[str]:
        return self._used.union(*(member.topics() for member in self.members.values()))

    async def _refresh_routes(self) -> None:
        topics = self.topics_in_use()
        await self.routes.refresh_all(topics)
        if self._uses_all_brokers:
            with suppress(KourouError):  # after a failure, the known routes are kept
                await self.routes.refresh_cluster()
        for address in self.routes.forget_unused(topics):
            self.pool.forget(address)
            self.broker_versions.pop(address, None)

    def _route_changed(self, route: Route) -> None:
        log.info(
            "route changed topic=%s publish=%d subscribe=%d", route.topic, len(route.publish), len(route.subscribe)
        )
        for member in self.members.values():
            if route.topic in member.topics():
                member.route_changed(route)

    # ── Groups and heartbeats ─────────────────────────────────────────────────────────────────────────────────────

    def join(self, member: Member) -> None:
        """Adds a consumer. Raises GroupInUseError."""
        self.check_running()
        if member.group in self.members:
            raise GroupInUseError(
                f"this client already has a consumer of group {self.unwrap(member.group)!r}: "
                "let it consume more topics, or make another client"
            )
        self.members[member.group] = member

    async def leave(self, group: str, *, is_producer: bool = False) -> None:
        """Removes a group's producer or consumer, and tells the brokers."""
        if is_producer:
            self.producer_groups.discard(group)
        else:
            self.members.pop(group, None)
        header = UnregisterClient(
            client_id=self.client_id,
            producer_group=group if is_producer else None,
            consumer_group=None if is_producer else group,
        )
        addresses = [address for address in self._heartbeat_addresses(everyone=True) if self.pool.link(address)]
        requests = (
            self.pool.request(
                address,
                Command(RequestCode.UNREGISTER_CLIENT, ext=header.encode()),
                self.settings.request_timeout,
            )
            for address in addresses
        )
        await asyncio.gather(*requests, return_exceptions=True)

    def _heartbeat_command(self) -> Command:
        body = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[
                ProducerData(group_name=group) for group in sorted({*self.producer_groups, INNER_PRODUCER})
            ],
            consumer_data_set=[member.heartbeat() for member in self.members.values()],
        )
        return Command(RequestCode.HEART_BEAT, body=body.encode())

    def _heartbeat_addresses(self, *, everyone: bool = False) -> list[str]:
        """All masters; slaves too if there are consumers, which may read from them."""
        return [
            address
            for broker in self.routes.brokers().values()
            for number, address in broker.broker_addrs.items()
            if number == MASTER_ID or self.members or everyone
        ]

    async def heartbeat(self) -> None:
        """Tells all brokers this client's groups. A broker that can't be reached is told later."""
        if self.producer_groups or self.members:
            beats = (self._heartbeat_to(address) for address in self._heartbeat_addresses())
            await asyncio.gather(*beats)

    async def _heartbeat_to(self, address: str) -> None:
        try:
            answer = await self.pool.ask(address, self._heartbeat_command(), self.settings.request_timeout)
            self.broker_versions[address] = answer.version
        except KourouError as error:
            log.info("heartbeat failed broker=%s: %s", address, error)

    def _connected(self, address: str) -> None:
        if self._announcer is not None:
            self._announcer.tell(Connected(address))
        self._greet(address)

    def _lost(self, address: str, reason: str) -> None:
        if self._announcer is not None:
            self._announcer.tell(Disconnected(address, reason))

    def _greet(self, address: str) -> None:
        """A new connection to a broker begins with a heartbeat."""
        link = self.pool.link(address)
        if link is None or not (self.producer_groups or self.members) or address not in self._heartbeat_addresses():
            return
        with suppress(KourouError):
            future = self.pool.begin(link, self._heartbeat_command(), self.settings.request_timeout)
            future.add_done_callback(lambda done: self._greeted(address, done))

    def _greeted(self, address: str, future: "asyncio.Future[Command]") -> None:
        if not future.cancelled() and future.exception() is None:
            self.broker_versions[address] = future.result().version

    # ── Requests of brokers ───────────────────────────────────────────────────────────────────────────────────────

    def answer_to(self, code: RequestCode, question: Question) -> None:
        """Registers the handler of a broker's request. The handler sends the answer, now or later."""
        self._questions[code] = question

    def check_room(self) -> None:
        """Raises SystemBusyError if as many requests are being answered as allowed."""
        if len(self._answering) >= QUESTIONS_MAX:
            raise SystemBusyError(f"{QUESTIONS_MAX} requests are already being answered by this client")

    def answer_later(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Answers a broker's request in the background. Raises SystemBusyError."""
        try:
            self.check_room()
        except SystemBusyError:
            work.close()
            raise
        task = self.spawn(work, name)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        for command in commands:
            question = self._questions.get(command.code)
            try:
                if question is not None:
                    question(connection, command)
                    continue
                code, remark = ResponseCode.REQUEST_CODE_NOT_SUPPORTED, f" request type {command.code} not supported"
            except SystemBusyError as error:
                code, remark = ResponseCode.SYSTEM_BUSY, str(error)
            except KourouError as error:
                code, remark = ResponseCode.SYSTEM_ERROR, str(error)
            if not command.flag & _ONE_WAY:
                connection.reply(command.answer(code, remark))

    def closed(self, connection: Connection) -> None:
        if self._state == "running":
            log.info("connection lost peer=%s reason=%s", connection.peer, connection.reason)

    def _ids_changed(self, connection: Connection, command: Command) -> None:  # noqa: ARG002
        member = self.members.get((command.ext or {}).get("consumerGroup", ""))
        if member is not None:
            member.rebalance_soon()


__all__ = ["INNER_PRODUCER", "Link", "Member", "Session"]
