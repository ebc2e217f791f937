"""The two ends of a connection under test: handlers, and peers that the test controls."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

from kourou.net.connection import Connection
from kourou.net.listener import Listener
from kourou.protocol import frame
from kourou.protocol.command import Command


class Echo:
    """Answers each request with its own body, and remembers what it saw."""

    def __init__(self, body: bytes | None = None) -> None:
        self.body = body  # what is answered instead of the request's own body
        self.batches: list[list[Command]] = []
        self.gone: list[Connection] = []
        self.connections: list[Connection] = []

    @property
    def seen(self) -> list[Command]:
        return [command for batch in self.batches for command in batch]

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        self.batches.append(commands)
        if connection not in self.connections:
            self.connections.append(connection)
        for command in commands:
            if not command.is_one_way:
                self.answer(connection, command)

    def answer(self, connection: Connection, command: Command) -> None:
        connection.reply(command.answer(body=command.body if self.body is None else self.body))

    def closed(self, connection: Connection) -> None:
        self.gone.append(connection)


class Later(Echo):
    """Owes all answers until it is told to give them."""

    def __init__(self, body: bytes | None = None) -> None:
        super().__init__(body)
        self.owed: list[tuple[Connection, Command]] = []

    def answer(self, connection: Connection, command: Command) -> None:
        self.owed.append((connection, command))

    def pay(self) -> None:
        owed, self.owed = self.owed, []
        for connection, command in owed:
            super().answer(connection, command)


BULK = 7
"""The code of a request that reads in bulk."""


class Bulky(Echo):
    """Recognises bulk readers."""

    def answer(self, connection: Connection, command: Command) -> None:
        super().answer(connection, command)
        if command.code == BULK:
            connection.step_back()


class RawPeer:
    """A socket with nothing around it: it reads and writes when told, and never by itself."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._loop = asyncio.get_running_loop()
        self._decoder = frame.Decoder()
        self._commands: list[Command] = []

    @classmethod
    async def open(cls, port: int, receive_buffer: int | None = None) -> "RawPeer":
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    @property
    def address(self) -> str:
        host, port = self.sock.getsockname()
        return f"{host}:{port}"

    async def send(self, data: bytes | Command | list[Command]) -> None:
        if isinstance(data, Command):
            data = frame.encode(data)
        elif isinstance(data, list):
            data = b"".join(map(frame.encode, data))
        await self._loop.sock_sendall(self.sock, data)

    async def flood(self, data: bytes, limit: int) -> int:
        """Send the same bytes again and again until the other side takes no more; how many bytes it took."""
        sent, silent_turns = 0, 0
        while silent_turns < 200:
            try:
                count = self.sock.send(data[sent % len(data) :])
                sent, silent_turns = sent + count, 0
                assert sent < limit, f"{sent} bytes were taken from a peer that does not read"
            except BlockingIOError:
                silent_turns += 1
            await asyncio.sleep(0.001)
        return sent

    async def receive(self, size: int = 65536) -> bytes:
        return await self._loop.sock_recv(self.sock, size)

    async def command(self) -> Command:
        """The next command. Raises EOFError."""
        while not self._commands:
            data = await self.receive()
            if not data:
                raise EOFError
            self._commands = self._decoder.feed(data)
            assert self._decoder.error is None
        return self._commands.pop(0)

    async def commands(self, count: int) -> list[Command]:
        return [await self.command() for _ in range(count)]

    async def rest(self) -> list[Command]:
        """All commands until the other side ends the connection in good order."""
        found: list[Command] = []
        try:
            while True:
                found.append(await self.command())
        except EOFError:
            return found

    async def ended(self) -> bool:
        """Wait until the other side ends the connection, in whatever way; True if nothing was sent before."""
        try:
            return await self.receive() == b""
        except ConnectionError:
            return True

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.sock.close()


class CountingTransport:
    """Stands before a real transport and counts what is written."""

    def __init__(self, connection: Connection) -> None:
        self._real: Any = connection._transport
        self.writes: list[bytes] = []
        connection._transport = connection.output._transport = self  # type: ignore[assignment]

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))
        self._real.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


async def eventually(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds; the test's own time limit ends a wait in vain."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Let the loop run a little, for what must not happen."""
    for _ in range(count):
        await asyncio.sleep(0.001)


async def only_connection(listener: Listener) -> Connection:
    """The server's side of the one connection."""
    await eventually(lambda: len(listener.connections) == 1)
    (connection,) = listener.connections
    await eventually(lambda: connection.is_open)
    return connection
