"""The name server's machine: requests in, answers and other effects out.

    Asked ─▶ handler of its code ─▶ Reply                                    routes, lists
                 │             └──▶ Save ─▶ (driver) ─▶ Saved ─▶ Reply       settings that must be durable
                 └▶ change of the tables ─▶ Turn … Turn ─▶ Reply             registrations, permissions
    Gone, Tick ─▶ silent and disconnected brokers are removed ─▶ Close, Tell

`step` takes a batch of events and the time, and returns effects in the order in which to perform them. It never raises
because of a peer's input: a request that can't be served is answered with the reason.

No step takes long (`kourou.turns`): unfinished work continues with the next Turn, and other requests are served in
between. Changes of the tables run one after the other, in the order of their requests; long registrations are decoded
before that. The requests of a connection are served in order.

Java: NamesrvController, DefaultRequestProcessor, ClientRequestProcessor.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, assert_never

from kourou.access.errors import AccessError
from kourou.nameserver.access import AccessControl, AccessSettings
from kourou.nameserver.backlog import Backlog
from kourou.nameserver.broker_requests import BrokerRequests, Registering
from kourou.nameserver.configuration import Configuration, KvTable
from kourou.nameserver.events import AccountsRead, Asked, Effect, Event, Gone, Kept, NotSaved, Reply, Saved, Tick, Turn
from kourou.nameserver.queries import Queries
from kourou.nameserver.requests import Change, Handler, Refused, log_fault, refusal
from kourou.nameserver.routes import Routes
from kourou.nameserver.settings import Settings
from kourou.nameserver.tables import Tables
from kourou.nameserver.topic_requests import TopicRequests
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

LISTS_MAX = 256
"""The number of long answers that may wait for their turns."""

BUSY = "too many registrations are being read, try again"

SCAN_INTERVAL_MIN_MS = 100

TABLES: Final = "tables"
"""The owner of all changes of the tables; see `Turns`."""

_ONE_WAY = int(CommandFlag.ONE_WAY)


class NameServer:
    """The state of one name server. Name servers share nothing."""

    def __init__(
        self,
        settings: Settings,
        kv_config: KvTable,
        now_ms: int,
        other_properties: Mapping[str, str] | None = None,
        clock_ns: Callable[[], int] = lambda: 0,
        access: AccessSettings | None = None,
    ) -> None:
        """`other_properties` of the settings file are kept when it is rewritten.

        `clock_ns` measures slices of long work. Raises AccessError if the users are invalid.
        """
        self._now_ms = self.wake_ms = now_ms  # `wake_ms`: when a Tick is due
        self._effects: list[Effect] = []
        self.tables = Tables()
        self.configuration = Configuration(settings, kv_config, other_properties or {}, self._emit)
        access = access or AccessSettings()
        self.access = AccessControl(access, self._emit, self._now, lambda: self.tables.clusters, self.tables.cluster_of)
        self._queries = Queries(self.tables, self.configuration, now_ms, self._now)
        self.brokers = BrokerRequests(self.tables, self.configuration, self._now, self._emit, access.inner_credentials)
        self._backlog = Backlog()
        self.turns = Turns(clock_ns, on_fault=log_fault)
        self._handlers: dict[int, Handler] = {
            **self._queries.handlers(),
            **self.brokers.handlers(),
            **self.configuration.handlers(),
            **self.access.handlers(),
        }
        self._changes: dict[int, Change] = {**self.brokers.changes(), **TopicRequests(self.tables).changes()}

    @property
    def settings(self) -> Settings:
        return self.configuration.settings

    @property
    def routes(self) -> Routes:
        return self._queries.routes

    @property
    def is_busy(self) -> bool:
        """True if unfinished work waits for a Turn."""
        return self.turns.is_busy

    def holds(self, connection: object) -> bool:
        """True if requests of this connection must wait for an earlier one."""
        return self._backlog.holds(connection)

    def bound(self, port: int) -> None:
        """Set the listening port, before the first step: the setting 0 means any free port."""
        self.configuration.bound(port)

    def check(self) -> None:
        """Assert the invariants of the tables; for tests, after any step."""
        self.tables.check()
        self.routes.check(self.settings, self.configuration.order_conf_of)

    def step(self, events: list[Event], now_ms: int) -> list[Effect]:
        """Handle these events; return the effects in order."""
        self._now_ms = now_ms
        effects: list[Effect] = []
        self._effects = effects
        for event in events:
            if type(event) is Asked:
                self._ask(event)
            else:
                self._happen(event)
        return effects

    def _happen(self, event: Event) -> None:
        match event:
            case Asked():
                self._ask(event)
            case Gone(connection):
                self._backlog.forget(connection)
                self.turns.drop(connection)
                if self.tables.members_on(connection) or self.turns.has(TABLES):
                    self._start_change(self.brokers.leave_with(connection))
            case Tick():
                self.access.save_first()
                self.wake_ms = self._now_ms + max(self.settings.scan_not_active_broker_interval, SCAN_INTERVAL_MIN_MS)
                if self.tables.silent(self._now_ms):
                    self._start_change(self.brokers.leave_silent())
            case Turn():
                self.turns.take_turn()
            case Saved(document, version):
                owner = self.access if document is Kept.USERS else self.configuration
                authors = owner.saved(document, version)
                self.tables.encoded.clear()
                for asked in authors:
                    self._reply(asked, asked.command.answer())
            case NotSaved(document, version, reason):
                log.error("a change could not be saved and was discarded document=%s: %s", document.value, reason)
                owner = self.access if document is Kept.USERS else self.configuration
                for asked in owner.not_saved(document, version):
                    self._reply(asked, asked.command.answer(ResponseCode.SYSTEM_ERROR, f"not changed: {reason}"))
            case AccountsRead(acl):
                self.access.use_accounts(acl)
            case _:
                assert_never(event)

    # ── Requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask(self, asked: Asked) -> None:
        if self.access.is_on:
            try:
                self.access.check(asked)
            except (AccessError, ProtocolError) as error:
                self._reply(asked, refusal(asked, error))
                return
        if not self._backlog.holds(asked.connection):
            self._serve(asked)
        elif self._backlog.has_room(asked):
            self._backlog.wait(asked)
        else:
            self._reply(asked, asked.command.answer(ResponseCode.SYSTEM_BUSY, BUSY))

    def _serve(self, asked: Asked) -> None:
        """Answer now, or start the work that answers later."""
        code = asked.command.code
        try:
            handler = self._handlers.get(code)
            if handler is not None:
                self._answer(asked, handler)
            elif code == RequestCode.REGISTER_BROKER:
                self._register(asked)
            elif code in self._changes:
                self._change(asked, self._changes[code](asked))
            else:
                remark = f" request type {code} not supported"
                self._reply(asked, asked.command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark))
        except (Refused, AccessError, ProtocolError) as error:
            self._reply(asked, refusal(asked, error))

    def _answer(self, asked: Asked, handler: Handler) -> None:
        answer = handler(asked)
        if isinstance(answer, Command):
            self._reply(asked, answer)
        elif answer is not None and self.turns.count - len(self._backlog) >= LISTS_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{LISTS_MAX} requests are waiting, try again")
        elif answer is not None:
            self.turns.start(asked.connection, self._answering(asked, answer))

    def _answering(self, asked: Asked, work: Slices[Command]) -> Slices[None]:
        """Work, then the answer."""
        try:
            answer = yield from work
        except Exception as error:
            answer = refusal(asked, error)
        self._reply(asked, answer)

    # ── Changes of the tables ─────────────────────────────────────────────────────────────────────────────────────

    def _register(self, asked: Asked) -> None:
        registering = self.brokers.start(asked)
        renewal = None if self.turns.has(TABLES) else self.brokers.renewal(registering)
        if renewal is not None:
            self._reply(asked, renewal)
        elif registering.reading is not None:
            self._change(asked, self.brokers.apply(registering))
        else:
            self._begin(asked)
            self.turns.start(asked.connection, self._reading(registering))

    def _reading(self, registering: Registering) -> Slices[None]:
        """Decode a long registration, then apply it."""
        asked = registering.asked
        try:
            yield from self.brokers.read(registering)
        except Exception as error:
            self._reply(asked, refusal(asked, error))
            self._end(asked)
        else:
            self._start_change(self._changing(asked, self.brokers.apply(registering)))

    def _change(self, asked: Asked, work: Slices[Command]) -> None:
        self._begin(asked)
        self._start_change(self._changing(asked, work))

    def _begin(self, asked: Asked) -> None:
        """Start a change; later requests of this connection wait."""
        if not self._backlog.has_room(asked):
            raise Refused(ResponseCode.SYSTEM_BUSY, BUSY)
        self._backlog.begin(asked)

    def _changing(self, asked: Asked, work: Slices[Command]) -> Slices[None]:
        yield from self._answering(asked, work)
        self._end(asked)

    def _start_change(self, work: Slices[None]) -> None:
        """Changes run one after the other. A change that has started is completed even if its connection was closed."""
        self.turns.start(TABLES, work, must_finish=True)

    def _end(self, asked: Asked) -> None:
        """A change is answered; now serve the requests that waited for it."""
        if self._backlog.end(asked):
            self.turns.start(asked.connection, self._serve_waiting(asked.connection))

    def _serve_waiting(self, connection: object) -> Slices[None]:
        while (asked := self._backlog.next(connection)) is not None:
            self._serve(asked)
            if self._backlog.has_change(connection):
                return  # the other requests wait for this one
            yield 0

    def _reply(self, asked: Asked, answer: Command) -> None:
        if not asked.command.flag & _ONE_WAY:
            self._effects.append(Reply(asked.connection, answer))

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _now(self) -> int:
        return self._now_ms
