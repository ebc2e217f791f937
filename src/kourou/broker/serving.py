"""Serving requests: the function of each request's code, and what all requests have in common.

    request ─▶ its declared header is decoded ─▶ may the peer? (access.py) ─▶ the function of its code
    the function ─▶ answer: a Reply, at once or after the tables that it changed are durable
                 ─▶ None: the function has answered, or will
                 ├─ raises Refused ─▶ the answer has its code and remark
                 └─ a generator ─▶ runs in slices (`kourou.turns`); other requests are served in between

Requests that follow a long one on the same connection do not wait for it, unless they are long as well.
"""

import logging
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any, TypeAlias

import msgspec

from kourou.access.errors import AccessError
from kourou.broker.access import Access
from kourou.broker.events import Asked, Large, Outbox, Peer, PutBack, Refused, Reply, ReplyParts, Request
from kourou.broker.message_writer import MessageWriter, PendingAnswer
from kourou.broker.meters import Meters
from kourou.broker.persistence import Persistence
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.protocol.headers import REQUESTS, Header
from kourou.protocol.names import shown
from kourou.store.errors import StoreError
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

BATCH_NS = 10_000_000
"""How long the requests of one connection are served before other connections have their turn. The last of them may
take a slice of `kourou.turns` more.
"""

REMARK_MAX = 2_000
"""Characters of a refusal: it may repeat the peer's input, which may be megabytes."""

FIELD_CHARS_MAX = 65_536
"""Characters of a header field. Names are hashed and joined with others for each queue, and a header may have 1 MiB."""

LIST_CHARS_MAX = 524_288
"""The same for a field with many names."""

_LISTS = frozenset(("topicList", "filterGroups"))
_PROPERTIES = frozenset(("properties", "i"))

_ONE_WAY = int(CommandFlag.ONE_WAY)
_SUCCESS = int(ResponseCode.SUCCESS)
_SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)

_MUST_FINISH = frozenset(
    (
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
    )
)
"""Requests that change several things, one after the other: once started, they are completed."""

_PROMISE_NO_TABLE = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.HEART_BEAT))
"""Requests that may create a group, or its retry topic, as a side effect. A group that is lost in a crash is created
again by the next of them; so a disk that can't be written prevents no consumer from reading.
"""

_CHANGE_TABLES = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.CLONE_GROUP_OFFSET,
    RequestCode.RESUME_CHECK_HALF_MESSAGE,
)
"""Requests that a slave refuses: it would lose the change with the next copy of its master's tables."""

Answer: TypeAlias = Command | Large | None
"""The answer to a request; None if it was given or will be."""

Serve: TypeAlias = Callable[[Request[Any]], Command | Slices[Command | None] | Slices[Command | Large] | None]
"""Serves a request, at once or in slices. The header is of the class that is declared for the request's code."""


def refuse_on_slaves(table: dict[int, Serve], settings: BrokerSettings) -> None:
    """While the broker is a slave, requests that change tables are refused."""
    for code in _CHANGE_TABLES:
        if code in table:
            table[code] = _on_masters(table[code], settings)


def _on_masters(serve: Serve, settings: BrokerSettings) -> Serve:
    def serve_on_master(asked: Request[Any]) -> object:
        if settings.role is Role.SLAVE:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
            )
        return serve(asked)

    return serve_on_master  # type: ignore[return-value]


class Serving:
    """Serves the requests of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        outbox: Outbox,
        persistence: Persistence,
        turns: Turns,
        access: Access,
        clock_ns: Callable[[], int],
        table: Mapping[int, Serve],
        meters: Meters,
        writer: MessageWriter,
    ) -> None:
        """`table` has the function of each request code; `clock_ns` measures how long requests take."""
        self._settings = settings
        self._outbox = outbox
        self._persistence = persistence
        self._turns = turns
        self._access = access
        self._clock_ns = clock_ns
        self._meters = meters
        self._writer = writer
        self._table = {int(code): (serve, REQUESTS[code].header) for code, serve in table.items()}
        self.now_ms = 0  # the time of the step: long requests end in a later step

    def serve_all(self, peer: Peer, commands: list[Command], now_ms: int, wall_ms: int) -> None:
        """Serve the requests of a connection, in this order. If that takes long, the others are put back."""
        if len(commands) == 1:
            self.serve(peer, commands[0], now_ms, wall_ms)
            return
        until_ns = self._clock_ns() + BATCH_NS
        for count, command in enumerate(commands, 1):
            self.serve(peer, command, now_ms, wall_ms)
            if self._clock_ns() > until_ns and count < len(commands):
                self._outbox.put(PutBack(peer, commands[count:]))
                return

    def serve(self, peer: Peer, command: Command, now_ms: int, wall_ms: int) -> None:
        """Serve a request, or begin to."""
        meters = self._meters
        if not meters.is_on:
            self._serve(peer, command, now_ms, wall_ms)
            return
        since_ns = meters.now_ns()
        meters.asked(peer, command)
        code = self._serve(peer, command, now_ms, wall_ms)
        if command.flag & _ONE_WAY:
            meters.served_one_way(command.code, code, since_ns)

    def _serve(self, peer: Peer, command: Command, now_ms: int, wall_ms: int) -> int:
        """The code of the answer, as far as it is known at once."""
        known = self._table.get(command.code)
        persistence, effects = self._persistence, self._outbox.effects
        changes, mark, newest = persistence.total, len(effects), self._writer.newest
        answer: Command | None
        try:
            if self._access.rules is not None:
                self._access.rules.authenticate(peer, command, now_ms)
            if known is None:
                remark = f" request type {command.code} not supported"
                answer = command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            else:
                if command.ext is not None and sum(map(len, command.ext.values())) > FIELD_CHARS_MAX:
                    _check_fields(command.ext)
                serve, declared = known
                header = None if declared is None else declared.decode(command.ext)
                asked: Request[Header | None] = Request(peer, command, now_ms, wall_ms, header)
                if self._access.rules is not None:
                    self._access.check_header(asked, header)
                found = serve(asked)
                if type(found) is GeneratorType:
                    self._check_long(asked)
                    self._turns.start(
                        peer,
                        self._serve_in_slices(asked, found, changed=persistence.total != changes),
                        len(command.body),
                        must_finish=command.code in _MUST_FINISH,
                    )
                    return _SUCCESS
                answer = found  # type: ignore[assignment]
        except Exception as error:
            answer = _refusal(peer, command, error)
        if answer is not None and not command.flag & _ONE_WAY:
            effects.append(Reply(peer, answer))
        if persistence.total != changes and command.code not in _PROMISE_NO_TABLE:
            self._hold_until_kept(mark, newest, now_ms)
        return _SUCCESS if answer is None else answer.code

    def _check_long(self, asked: Asked) -> None:
        """Raises Refused when too much long work waits already."""
        turns, settings = self._turns, self._settings
        if turns.count >= settings.long_requests_max:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"{turns.count} long requests wait, the limit (maxLongRequests): try again later",
            )
        if turns.size + turns.held + len(asked.command.body) > settings.long_memory_max and turns.is_busy:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"long requests hold {turns.size + turns.held} bytes, the limit is {settings.long_memory_max} "
                "(maxLongRequestMemory): try again later",
            )

    def _serve_in_slices(self, asked: Asked, slices: Slices[Command | Large | None], *, changed: bool) -> Slices[None]:
        """`changed`: the request has changed tables before its first slice."""
        persistence, limit_ns = self._persistence, self._settings.long_time_ms * 1_000_000
        answer: Answer
        while True:
            total, mark, newest = persistence.total, len(self._outbox.effects), self._writer.newest
            try:
                if self._turns.spent_ns > limit_ns:
                    slices.close()
                    raise Refused(
                        ResponseCode.SYSTEM_BUSY,
                        f"the request took more than {self._settings.long_time_ms} ms (maxLongRequestTime)",
                    )
                held = next(slices)
            except StopIteration as end:
                answer = end.value
                break
            except Exception as error:
                answer = _refusal(asked.peer, asked.command, error)
                break
            changed |= persistence.total != total
            yield held
        if not asked.command.flag & _ONE_WAY:
            if type(answer) is Large:
                parts = [memoryview(part) for part in answer.body]
                self._outbox.put(ReplyParts(asked.peer, answer.command, parts, sum(map(len, parts))))
            elif answer is not None:
                self._outbox.put(Reply(asked.peer, answer))  # type: ignore[arg-type]
        if changed or persistence.total != total:
            self._hold_until_kept(mark, newest, self.now_ms)

    def _hold_until_kept(self, mark: int, newest: PendingAnswer | None, now_ms: int) -> None:
        """The effects of a request that changed a table wait until the table is durable, as does its answer.

        `mark` and `newest` are the number of effects, and the last answer that waited for a message, before it.
        """
        effects, writer = self._outbox.effects, self._writer
        held = effects[mark:]
        del effects[mark:]
        pending = None if writer.newest is newest else writer.newest
        if pending is not None:
            pending.waits_for_tables = True

        def go_on(problem: str | None) -> None:
            for effect in held:
                if problem is not None and isinstance(effect, Reply | ReplyParts):
                    failed = msgspec.structs.replace(effect.command, code=_SYSTEM_ERROR, remark=problem)
                    effect = Reply(effect.peer, failed)
                self._outbox.put(effect)
            if pending is not None:
                writer.tables_are_kept(pending, problem)

        self._persistence.when_safe(now_ms, go_on)


def _check_fields(ext: Mapping[str, str]) -> None:
    """Raises Refused if a header field is too long."""
    for name, value in ext.items():
        limit = LIST_CHARS_MAX if name in _LISTS else FIELD_CHARS_MAX
        if len(value) > limit:
            code = ResponseCode.MESSAGE_ILLEGAL if name in _PROPERTIES else ResponseCode.INVALID_PARAMETER
            raise Refused(code, f"the header field {shown(name)} has {len(value)} characters, the limit is {limit}")


def _refusal(peer: Peer, command: Command, error: Exception) -> Command:
    """The answer to a request that failed."""
    if isinstance(error, Refused):
        return command.answer(error.code, error.remark[:REMARK_MAX], error.ext)
    if isinstance(error, AccessError):
        return command.answer(error.code, str(error)[:REMARK_MAX])
    if isinstance(error, ProtocolError):
        return command.answer(_SYSTEM_ERROR, str(error)[:REMARK_MAX])
    if isinstance(error, StoreError | OSError):
        log.error("request %d failed peer=%s: %s", command.code, peer.address, error)
        return command.answer(_SYSTEM_ERROR, str(error))
    # An internal error: the sender is told, and other requests are served.
    log.error("request %d failed peer=%s", command.code, peer.address, exc_info=error)
    return command.answer(_SYSTEM_ERROR, f"{type(error).__name__}: {error}")
