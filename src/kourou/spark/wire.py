"""A blocking client for tasks: one socket, requests and their answers.

Tasks are plain loops in processes of their own, so there is no event loop here. Connections stay open between the
tasks of a worker process (`connect`), since Spark uses its workers again.
"""

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, TypeVar

import msgspec

from kourou.protocol.command import Command, size_error
from kourou.protocol.errors import FrameError, KourouError
from kourou.protocol.frame import FRAME_SIZE_MAX, LENGTH_SIZE, encode, split
from kourou.spark.errors import UnreachableError

BUFFER_SIZE: Final = 320 * 1024
"""The size of the buffer for answers; a larger frame gets a larger one."""

SMALL: Final = 4096
LARGE: Final = 16 * 1024
"""A body of at least this size is sent without copying it, next to its header."""

PIECES_MAX: Final = 512

TOGETHER_MAX: Final = 1024
"""Requests that are sent before the first answer is read. They fit into the buffers of a connection, so that neither
side waits for the other to read first."""

_T = TypeVar("_T")


class Access(msgspec.Struct, frozen=True):
    """Access to name servers and brokers: credentials and TLS."""

    timeout: float = 10.0
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    tls: bool = False
    tls_trust: str | None = None
    """Certificates to verify brokers by; without them none are verified, as in Apache's clients."""
    tls_cert: str | None = None
    tls_key: str | None = None

    def __repr__(self) -> str:  # Spark prints this in plans, so it has no secrets
        return f"Access(access_key={self.access_key!r}, tls={self.tls})"


@lru_cache(maxsize=8)
def _context(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if access.tls_trust:
        context.load_verify_locations(access.tls_trust)
    else:
        context.verify_mode = ssl.CERT_NONE
    if access.tls_cert:
        context.load_cert_chain(access.tls_cert, access.tls_key)
    return context


def _pieces(command: Command) -> list[bytes]:
    """A frame, in one piece or in two."""
    body = command.body
    if len(body) < LARGE:
        return [encode(command)]
    command.body = b""
    head = encode(command)
    command.body = body
    return [(int.from_bytes(head[:4]) + len(body)).to_bytes(4) + head[4:], bytes(body)]


class Intake:
    """The incoming bytes of a socket, frame by frame, through one buffer that stays in the processor's cache."""

    def __init__(self, connection: socket.socket, peer: str) -> None:
        self._socket = connection
        self._peer = peer
        self._view = memoryview(bytearray(BUFFER_SIZE))
        self._begin = self._end = 0  # bytes that were received and not used yet

    def frame(self) -> tuple[Command, memoryview]:
        """The next command, and its body in the buffer, valid until the next call. Raises OSError, FrameError."""
        if self._begin > SMALL:
            self._move_to_front(len(self._view))
        size = int.from_bytes(self._first(LENGTH_SIZE), signed=True)
        if not 4 <= size <= FRAME_SIZE_MAX:
            raise size_error(size, FRAME_SIZE_MAX)
        whole = self._first(LENGTH_SIZE + size)
        self._begin += len(whole)
        header_size = int.from_bytes(whole[5:8])  # the byte before it is the header's form
        head = bytes(whole[LENGTH_SIZE : LENGTH_SIZE + 4 + header_size])
        commands, _, _, error = split(len(head).to_bytes(LENGTH_SIZE) + head, FRAME_SIZE_MAX)
        if error is not None:
            raise error
        return commands[0], whole[LENGTH_SIZE + 4 + header_size :]

    def _first(self, count: int) -> memoryview:
        """This number of bytes, once they have arrived. Few more are read, so that little has to be moved."""
        if self._begin + count + LENGTH_SIZE > len(self._view):
            self._move_to_front(max(count + LENGTH_SIZE, len(self._view)))
        while self._end - self._begin < count:
            until = max(self._begin + count + LENGTH_SIZE, self._end + SMALL)
            got = self._socket.recv_into(self._view[self._end : until])
            if not got:
                raise ConnectionResetError(f"{self._peer} has closed the connection")
            self._end += got
        return self._view[self._begin : self._begin + count]

    def _move_to_front(self, room: int) -> None:
        rest = self._view[self._begin : self._end]
        if room > len(self._view):
            self._view = memoryview(bytearray(room))
        self._view[: len(rest)] = rest
        self._begin, self._end = 0, len(rest)


class Link:
    """One connection. After an error it can't be used any more. Raises OSError, FrameError."""

    def __init__(self, address: str, access: Access) -> None:
        self.address = address
        self._access = access
        host, _, port = address.rpartition(":")
        try:
            place = (host.removeprefix("[").removesuffix("]"), int(port))
            plain = socket.create_connection(place, timeout=access.timeout)
        except (ValueError, OverflowError) as error:  # an invalid address, which a route may have
            raise ConnectionError(f"no connection to {address[:300]!r}: {error}") from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: socket.socket = plain
        if access.tls:
            try:
                self._socket = _context(access).wrap_socket(plain)
            except BaseException:
                plain.close()
                raise
        self._opaque = 0
        self._intake = Intake(self._socket, address)
        self._asked: set[int] = set()  # requests without an answer so far
        self._early: dict[int, Command] = {}  # answers that were not awaited yet
        self._ignored: set[int] = set()
        self.broken = False

    def close(self) -> None:
        self.broken = True
        self._socket.close()

    def send(self, *commands: Command) -> list[int]:
        """Send requests. Returns the numbers with which to wait for their answers."""
        numbers = []
        for command in commands:
            self._opaque = self._opaque % 0x7FFFFFFF + 1
            command.opaque = self._opaque
            numbers.append(self._opaque)
            self._asked.add(self._opaque)
            if self._access.access_key and self._access.secret_key:
                self._sign(command)
        try:
            self._send([piece for command in commands for piece in _pieces(command)])
        except BaseException:
            self.close()
            raise
        return numbers

    def _send(self, pieces: list[bytes]) -> None:
        """Send all pieces. Large pieces are not joined before."""
        if self._access.tls or len(pieces) == 1 or len(pieces) > PIECES_MAX:
            self._socket.sendall(b"".join(pieces))
            return
        left = sum(map(len, pieces)) - self._socket.sendmsg(pieces)
        if left:
            rest: list[bytes | memoryview] = []
            for piece in reversed(pieces):
                if left <= 0:
                    break
                rest.append(memoryview(piece)[max(len(piece) - left, 0) :])
                left -= len(piece)
            for part in reversed(rest):
                self._socket.sendall(part)

    def _sign(self, command: Command) -> None:
        from kourou.protocol.signing import Credentials

        access = self._access
        Credentials(access.access_key or "", access.secret_key or "", access.security_token).sign(command)

    def answer(self, number: int) -> Command:
        """Wait for one answer."""
        answer, body = self.answer_in_place(number)
        answer.body = bytes(body)
        return answer

    def answer_in_place(self, number: int) -> tuple[Command, bytes | memoryview]:
        """The same, with its body apart, which is valid until the next call."""
        early = self._early.pop(number, None)
        if early is not None:
            return early, early.body
        try:
            while True:
                command, body = self._intake.frame()
                if not command.is_response:  # a request of the broker to a consumer, which this client is not
                    continue
                if command.opaque not in self._asked:  # an answer without a request
                    continue
                self._asked.remove(command.opaque)
                if command.opaque == number:
                    return command, body
                if command.opaque in self._ignored:
                    self._ignored.remove(command.opaque)
                else:
                    command.body = bytes(body)
                    self._early[command.opaque] = command
        except BaseException:
            self.close()
            raise

    def ignore(self, numbers: Iterable[int]) -> None:
        """These answers are no longer needed."""
        for number in numbers:
            if self._early.pop(number, None) is None:
                self._ignored.add(number)

    def ask(self, command: Command) -> Command:
        """Send one request and wait for its answer."""
        return self.answer(self.send(command)[0])

    def ask_all(self, commands: Sequence[Command]) -> list[Command]:
        """The same for many, which are sent together."""
        return [self.answer(number) for part in in_parts(commands) for number in self.send(*part)]


def in_parts(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    """As many at a time as may be sent together."""
    for at in range(0, len(commands), TOGETHER_MAX):
        yield commands[at : at + TOGETHER_MAX]


# ── Connections of this process ─────────────────────────────────────────────────────────────────────────────────────

_Key = tuple[int, int, str, Access]
_links: dict[_Key, Link] = {}


def _key(address: str, access: Access) -> _Key:
    """By process, because a forked worker must not share its parent's sockets; and by thread, because another thread
    might read the answer."""
    return os.getpid(), threading.get_ident(), address, access


def connect(address: str, access: Access) -> Link:
    """This thread's connection to this address: the open one, or a new one. Raises OSError."""
    key = _key(address, access)
    link = _links.get(key)
    if link is None or link.broken:
        _close_those_of_ended_threads()
        link = _links[key] = Link(address, access)
    return link


def is_connected(address: str, access: Access) -> bool:
    """Is there an open connection to this address?"""
    link = _links.get(_key(address, access))
    return link is not None and not link.broken


def forget(address: str, access: Access) -> None:
    """Close the connection to this address, if there is one."""
    link = _links.pop(_key(address, access), None)
    if link is not None:
        link.close()


def ask_side_by_side(
    asked: Sequence[tuple[str, Sequence[Command]]], access: Access
) -> list[list[Command] | OSError | FrameError]:
    """The answers to requests to several addresses, which are sent at the same time.

    One round trip for each thousand requests, whatever the number of addresses.
    If an address fails, its answer is the error.
    """
    found: list[list[Command] | OSError | FrameError] = [[] for _ in asked]
    parts = [list(in_parts(commands)) for _, commands in asked]
    # Connecting to a dead address may take long; the other brokers have their requests by then.
    order = sorted(range(len(asked)), key=lambda at: not is_connected(asked[at][0], access))
    for turn in range(max(map(len, parts), default=0)):
        waiting: list[tuple[int, Link, list[int]]] = []
        for at in order:
            if turn < len(parts[at]) and isinstance(found[at], list):
                try:
                    link = connect(asked[at][0], access)
                    waiting.append((at, link, link.send(*parts[at][turn])))
                except (OSError, FrameError) as error:
                    forget(asked[at][0], access)
                    found[at] = error
        for at, link, numbers in waiting:
            answers = found[at]
            try:
                if isinstance(answers, list):
                    answers.extend([link.answer(number) for number in numbers])
            except (OSError, FrameError) as error:
                forget(asked[at][0], access)
                found[at] = error
    return found


def close_all() -> None:
    """Close this process's connections."""
    _close(lambda key: key[0] == os.getpid())


def _close_those_of_ended_threads() -> None:
    running = {thread.ident for thread in threading.enumerate()}
    _close(lambda key: key[0] == os.getpid() and key[1] not in running)


def _close(wanted: Callable[[_Key], bool]) -> None:
    for key in [key for key in list(_links) if wanted(key)]:
        link = _links.pop(key, None)
        if link is not None:
            link.close()


FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0


def persist(
    what: str | Callable[[], str],
    attempt: Callable[[], _T],
    patience_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Retry until it succeeds: a broker may be restarting. Raises UnreachableError when the time is over.

    Spark's own retries do not help: in local mode there are none, and a failed task fails the query.
    """
    end = clock() + patience_s
    pause = FIRST_PAUSE_S
    while True:
        try:
            return attempt()
        except (OSError, KourouError) as error:
            if isinstance(error, KourouError) and not (error.retriable or isinstance(error, FrameError)):
                raise
            if clock() + pause > end:
                said = str(error) or type(error).__name__
                failed = what if isinstance(what, str) else what()
                raise UnreachableError(f"{failed}: {said} (tried for {patience_s:g} s)") from None
        sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)
