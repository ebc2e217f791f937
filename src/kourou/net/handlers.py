"""The interfaces of the parts that serve a connection's requests."""

from typing import TYPE_CHECKING, Protocol

from kourou.protocol import frame
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command

if TYPE_CHECKING:
    from kourou.net.connection import Connection


class Handler(Protocol):
    """Answers the requests of the peer."""

    def requests(self, connection: "Connection", commands: list[Command]) -> None:
        """Serve requests, in order. Each that is not one-way needs one `connection.reply`, now or later."""

    def closed(self, connection: "Connection") -> None:
        """The connection is gone; nothing more can be sent on it."""


class Reader(Protocol):
    """Serves the bytes of a read, for handlers that can serve some requests without decoding them."""

    def read(self, connection: "Connection", data: bytes) -> None:
        """Serve the frames in `data`, of which the last one may be incomplete.

        Answers are sent with `connection.reply_frames`; those that will be given later are announced with
        `connection.owe`. Bytes that the reader does not serve go to `connection.decode`, which returns the requests to
        serve now, or to `connection.put_off`, to be read again after other connections had their turn.
        """


class NoRequests:
    """The handler of a client, which answers that it serves no requests."""

    def requests(self, connection: "Connection", commands: list[Command]) -> None:
        for command in commands:
            if not command.is_one_way:
                connection.reply(command.answer(3, f" request type {command.code} not supported"))

    def closed(self, connection: "Connection") -> None:
        pass


def too_many(command: Command, owed: int) -> bytes:
    """The answer to a request on a connection that awaits too many answers; empty for a one-way request."""
    if command.is_one_way:
        return b""
    why = f"{owed} requests of this connection await answers, the limit (maxRequestsInFlight): wait for some of them"
    return frame.encode(command.answer(ResponseCode.SYSTEM_BUSY, why))
