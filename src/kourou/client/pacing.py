"""A budget for the requests to each server: how many are under way, and how many per second.

For programs that must not be a burden, such as the console. Requests beyond the budget wait for their turn, in order;
long polls count as requests per second, but not as under way, because brokers hold them without work. Sends do not
count: a producer has limits of its own.

A server that does not answer is asked again every few seconds by one request; others fail at once meanwhile, instead of
waiting for their timeout one after another.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kourou.client.errors import ClientError
from kourou.net.errors import ConnectFailedError, ConnectionLostError, RequestTimedOutError, TransportError
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import Command

_PULLS = frozenset((int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)))
_SUSPEND = int(PullSysFlag.SUSPEND)
_SENDS = frozenset(map(int, (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)))

_FORWARDED = frozenset(
    map(
        int,
        (
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        ),
    )
)
"""Brokers pass these on to a consumer: if there is no answer, the broker may be well."""

SERVERS_MAX = 1000
"""Servers whose budget is remembered."""
SILENT_S = 5.0
"""How long a server that has not answered is not asked again."""
WAITED_S = 1.0
"""A request that was lost after a shorter time says nothing about its server: the connection may have been closed."""


class TooBusyError(ClientError):
    """Too many requests wait for their turn."""

    retriable = True


class SilentServerError(TransportError):
    """The server has not answered a request some seconds ago."""


class _Server:
    """The budget of one server."""

    def __init__(self, under_way: int, burst: float, now: float) -> None:
        self.places = asyncio.Semaphore(under_way)
        self.tokens = burst
        self.stamp = now
        self.silent_until = float("-inf")
        self.reason = ""
        """Why it is taken for silent; empty if it is not."""
        self.is_probed = False
        """A request is under way that finds out whether it answers again."""


class Pacing:
    """`under_way` requests at a time and `per_second` on average to each server; as many at once after a pause."""

    def __init__(
        self,
        under_way: int,
        per_second: float,
        *,
        waiting_max: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._under_way = under_way
        self._per_second = per_second
        self._waiting_max = waiting_max
        self._clock = clock
        self._servers: dict[str, _Server] = {}
        self.waiting = 0

    @asynccontextmanager
    async def turn(self, address: str, command: Command) -> AsyncIterator[None]:
        """Waits until a request to this server may be sent, and lasts until it is answered.

        Raises TooBusyError, SilentServerError.
        """
        if command.code in _SENDS:
            yield
            return
        if self.waiting >= self._waiting_max:
            raise TooBusyError(f"{self.waiting} requests already wait for their turn")
        server = self._server(address)
        is_held = is_long_poll(command)
        self._check(server)
        self.waiting += 1
        try:
            if not is_held:
                await server.places.acquire()
            try:
                if (pause := self._take(server)) > 0:
                    await asyncio.sleep(pause)
            except BaseException:
                if not is_held:
                    server.places.release()
                raise
        finally:
            self.waiting -= 1
        is_probe = False
        try:
            is_probe = self._check(server)
            server.is_probed |= is_probe
            async with self._watched(server, command):
                yield
        finally:
            if is_probe:
                server.is_probed = False
            if not is_held:
                server.places.release()

    def _check(self, server: _Server) -> bool:
        """Whether the request is the one that finds out whether the server answers again. Raises SilentServerError."""
        if not server.reason:
            return False
        if server.is_probed or self._clock() < server.silent_until:
            raise SilentServerError(server.reason)
        return True

    @asynccontextmanager
    async def _watched(self, server: _Server, command: Command) -> AsyncIterator[None]:
        began = self._clock()
        try:
            yield
        except (RequestTimedOutError, ConnectFailedError, ConnectionLostError) as error:
            now = self._clock()
            waited = isinstance(error, ConnectFailedError) or now - began >= WAITED_S
            if waited and command.code not in _FORWARDED and not is_long_poll(command):
                server.reason, server.silent_until = str(error), now + SILENT_S
            raise
        server.reason = ""

    def _server(self, address: str) -> _Server:
        found = self._servers.get(address)
        if found is None:
            if len(self._servers) >= SERVERS_MAX:
                self._servers.pop(next(iter(self._servers)))
            found = self._servers[address] = _Server(self._under_way, self._per_second, self._clock())
        return found

    def _take(self, server: _Server) -> float:
        """Takes one request of the budget. Returns how long to wait for it."""
        now = self._clock()
        server.tokens = min(self._per_second, server.tokens + (now - server.stamp) * self._per_second) - 1
        server.stamp = now
        return max(-server.tokens / self._per_second, 0.0)


def is_long_poll(command: Command) -> bool:
    """Whether a broker may hold the request until there is a message."""
    if command.code not in _PULLS:
        return False
    flags = (command.ext or {}).get("sysFlag", "0")
    return flags.isdigit() and bool(int(flags) & _SUSPEND)
