"""Connections of browsers: silent connections do not keep out others.

The server accepts `CONNECTIONS_MAX` connections, and refuses requests on further ones. A connection without a request
is closed after a time, or at once if its place is needed, beginning with the one that has been silent longest.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from kourou.console.limits import HEAD_SECONDS_MAX


class Connection(H11Protocol):
    """One connection of HTTP/1.1."""

    _closing: asyncio.TimerHandle | None = None
    _silent_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._silent_since = self.loop.time()
        self._closing = self.loop.call_later(HEAD_SECONDS_MAX, self._end)
        if self.limit_concurrency is not None and len(self.connections) >= self.limit_concurrency:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if not self._is_silent:
            self._silent_since = self.loop.time()
        super().data_received(data)
        if not self._is_silent:
            self._keep()
        elif self._closing is None:  # the beginning of another request
            self._closing = self.loop.call_later(HEAD_SECONDS_MAX, self._end)

    def connection_lost(self, exc: Exception | None) -> None:
        self._keep()
        super().connection_lost(exc)

    @property
    def _is_silent(self) -> bool:
        """No request has arrived since the last one was answered."""
        return self.conn.their_state is h11.IDLE

    def _keep(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _end(self) -> None:
        self._closing = None
        if self._is_silent:
            self.connections.discard(self)
            self.transport.abort()

    def _make_room(self) -> None:
        others: list[Any] = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        silent = [one for one in others if one._is_silent]
        if silent:
            min(silent, key=lambda one: one._silent_since)._end()
