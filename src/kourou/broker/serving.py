"""Serving requests: the function of each request's code, and what all requests have in common.

    request ─▶ the function of its code ─▶ answer: a Reply, at once or after the tables that it changed are durable
                     │                └─▶ None: the function has answered, or will
                     ├─ raises Refused ─▶ the answer has its code and remark
                     └─ a generator ─▶ runs in slices (`kourou.turns`); other requests are served in between

Requests that follow a long one on the same connection do not wait for it, unless they are long as well.
"""

import logging
from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import TypeAlias

import msgspec

from kourou.broker.events import Asked, Large, Outbox, Refused, Reply, ReplyParts
from kourou.broker.persistence import Persistence
from kourou.broker.settings import BrokerSettings
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import ProtocolError
from kourou.store.errors import StoreError
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

REMARK_MAX = 2_000
"""Characters of a refusal: it may repeat what the peer said, which may be megabytes."""

_ONE_WAY = int(CommandFlag.ONE_WAY)
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
"""Requests that change several things, one after the other: once begun, they are finished though nobody waits."""

_PROMISE_NO_TABLE = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.HEART_BEAT))
"""Requests that may make a group, or its retry topic, in passing. A group that a crash takes away is made again by the
next of them; so a disk that can't be written keeps no consumer from reading.
"""

Answer: TypeAlias = Command | Large | None
"""The answer to a request; None if it was given or will be."""

Serve: TypeAlias = Callable[[Asked], Command | Slices[Command | None] | Slices[Command | Large] | None]
"""Serves a request, at once or in slices."""


class Serving:
    """Serves the requests of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        outbox: Outbox,
        persistence: Persistence,
        turns: Turns,
        table: Mapping[int, Serve],
    ) -> None:
        """`table` has the function of each request code."""
        self._settings = settings
        self._outbox = outbox
        self._persistence = persistence
        self._turns = turns
        self._table = table
        self.now_ms = 0  # the time of the step: long requests end in a later one than they came in

    def serve(self, asked: Asked) -> None:
        """Serve a request, or begin to."""
        command = asked.command
        serve = self._table.get(command.code)
        persistence, effects = self._persistence, self._outbox.effects
        changes, mark = persistence.total, len(effects)
        answer: Command | None
        if serve is None:
            remark = f" request type {command.code} not supported"
            answer = command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        else:
            try:
                found = serve(asked)
                if type(found) is GeneratorType:
                    self._check_long(asked)
                    self._turns.start(
                        asked.peer,
                        self._serve_in_slices(asked, found),
                        len(command.body),
                        must_finish=command.code in _MUST_FINISH,
                    )
                    return
                answer = found  # type: ignore[assignment]
            except Exception as error:
                answer = _refusal(asked, error)
        if answer is not None and not command.flag & _ONE_WAY:
            effects.append(Reply(asked.peer, answer))
        if persistence.total != changes and command.code not in _PROMISE_NO_TABLE:
            self._hold_until_kept(mark, asked.now_ms)

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

    def _serve_in_slices(self, asked: Asked, slices: Slices[Command | Large | None]) -> Slices[None]:
        persistence, limit_ns = self._persistence, self._settings.long_time_ms * 1_000_000
        changed = False
        answer: Answer
        while True:
            total, mark = persistence.total, len(self._outbox.effects)
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
                answer = _refusal(asked, error)
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
            self._hold_until_kept(mark, self.now_ms)

    def _hold_until_kept(self, mark: int, now_ms: int) -> None:
        """What follows from a request that changed a table waits until the table is safe."""
        effects = self._outbox.effects
        held = effects[mark:]
        del effects[mark:]

        def go_on(problem: str | None) -> None:
            for effect in held:
                if problem is not None and isinstance(effect, Reply | ReplyParts):
                    failed = msgspec.structs.replace(effect.command, code=_SYSTEM_ERROR, remark=problem)
                    effect = Reply(effect.peer, failed)
                self._outbox.put(effect)

        self._persistence.when_safe(now_ms, go_on)


def _refusal(asked: Asked, error: Exception) -> Command:
    """The answer to a request that failed."""
    command = asked.command
    if isinstance(error, Refused):
        return command.answer(error.code, error.remark[:REMARK_MAX], error.ext)
    if isinstance(error, ProtocolError):
        return command.answer(_SYSTEM_ERROR, str(error)[:REMARK_MAX])
    if isinstance(error, StoreError | OSError):
        log.error("request %d failed peer=%s: %s", command.code, asked.peer.address, error)
        return command.answer(_SYSTEM_ERROR, str(error))
    # A fault of ours: who asked is told, and everybody else is served.
    log.error("request %d failed peer=%s", command.code, asked.peer.address, exc_info=error)
    return command.answer(_SYSTEM_ERROR, f"{type(error).__name__}: {error}")
