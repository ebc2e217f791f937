"""The load: connections that send frames made before, and note when the answers came.

It runs on the cores that the server uses too, so it does little: no header is parsed, a look at the first bytes tells
success from refusal. A function that keeps requests in flight returns only when every one of them is answered, so that
the CPU time of a server between two calls belongs to the requests counted.
"""

import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice

from benchmarks.report import quantile

READ_SIZE = 1 << 18
TIMEOUT_S = 30.0
HEADER_AT = 8
SUCCESS = b'{"code":0,'


class RefusedError(Exception):
    """A server answered with an error, or closed the connection: its figures would mean nothing."""


@dataclass
class Seen:
    """Requests that were answered. Of a pipelined load, no latencies are known."""

    count: int
    seconds: float
    latencies_ns: list[int]

    @property
    def per_second(self) -> float:
        return self.count / self.seconds

    def latency_us(self, share: float) -> float:
        return quantile(self.latencies_ns, share) / 1000


class Answers:
    """Counts the whole frames in a stream of bytes, whatever the pieces are in which it comes."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> int:
        """How many answers `data` completes. Raises RefusedError when one of them is none of success."""
        if self._rest:
            data = self._rest + data
        at, end, count = 0, len(data), 0
        while end - at >= HEADER_AT:
            stop = at + 4 + int.from_bytes(data[at : at + 4])
            if stop > end:
                break
            if not data.startswith(SUCCESS, at + HEADER_AT):
                raise RefusedError(f"answered with {data[at + HEADER_AT : stop][:300]!r}")
            at = stop
            count += 1
        self._rest = data[at:]
        return count


class Link:
    """One connection that asks and waits for the answer."""

    def __init__(self, address: str) -> None:
        self._socket = connect(address)
        self._answers = Answers()

    def ask(self, frame: bytes) -> None:
        """Raises RefusedError, TimeoutError."""
        self._socket.sendall(frame)
        while not self._answers.take(_received(self._socket)):
            pass

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(READ_SIZE)
    if not data:
        raise RefusedError("the server closed the connection")
    return data


def repeat(link: Link, frames: Sequence[bytes], seconds: float, at_least: int = 3) -> Seen:
    """Asks one thing after the other on one connection."""
    latencies: list[int] = []
    start = now = time.perf_counter_ns()
    end = start + int(seconds * 1e9)
    for frame in cycle(frames):
        if now >= end and len(latencies) >= at_least:
            break
        link.ask(frame)
        before, now = now, time.perf_counter_ns()
        latencies.append(now - before)
    return Seen(len(latencies), (now - start) / 1e9, latencies)


class Crowd:
    """Several connections, each with up to `depth` requests in flight."""

    def __init__(self, address: str, connections: int, depth: int) -> None:
        self._depth = depth
        self._poll = select.epoll()
        self._members: dict[int, tuple[socket.socket, Answers]] = {}
        with ExitStack() as on_error:
            on_error.callback(self.close)
            for _ in range(connections):
                connection = connect(address)
                self._members[connection.fileno()] = (connection, Answers())
                self._poll.register(connection, select.EPOLLIN)
            on_error.pop_all()

    def close(self) -> None:
        for connection, _ in self._members.values():
            connection.close()
        self._poll.close()

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, frames: Iterator[bytes], seconds: float) -> Seen:
        """Keeps asking until `frames` or the time runs out, then waits for what is in flight."""
        latencies: list[int] = []
        in_flight = dict.fromkeys(self._members, 0)
        sent_ns = dict.fromkeys(self._members, 0)
        count, depth, clock = 0, self._depth, time.perf_counter_ns

        def send(member: int, room: int) -> None:
            batch = list(islice(frames, room))
            in_flight[member] += len(batch)
            sent_ns[member] = clock()
            self._members[member][0].sendall(b"".join(batch))

        start = clock()
        end = start + int(seconds * 1e9)
        for member in self._members:
            send(member, depth)
        while any(in_flight.values()):
            ready = self._poll.poll(TIMEOUT_S)
            if not ready:
                raise TimeoutError(f"no answer for {TIMEOUT_S} s")
            for member, _ in ready:
                connection, answers = self._members[member]
                done = answers.take(_received(connection))
                if not done:
                    continue
                now = clock()
                if depth == 1:
                    latencies.append(now - sent_ns[member])
                count += done
                in_flight[member] -= done
                if now < end:
                    send(member, done)
        return Seen(count, (clock() - start) / 1e9, latencies)


# ── Stalls ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Stalls:
    """Queries one after the other, while now and then a registration is under way on another connection.

    `worst_ns` has, for each registration, the longest that a query took meanwhile; `quiet_ns`, the latencies of the
    queries between registrations, tells how much of that is the machine's own noise.
    """

    latencies_ns: list[int]
    worst_ns: list[int]
    quiet_ns: list[int]

    @property
    def max_ms(self) -> float:
        return max(self.worst_ns) / 1e6


def stalls(
    address: str, registrar: Link, registrations: Sequence[bytes], queries: Sequence[bytes], pause_s: float
) -> Stalls:
    """Sends each registration once, with pauses, and queries all the while."""
    spans: list[tuple[int, int]] = []
    faults: list[BaseException] = []
    done = threading.Event()

    def register() -> None:
        try:
            for frame in registrations:
                time.sleep(pause_s)
                start = time.perf_counter_ns()
                registrar.ask(frame)
                spans.append((start, time.perf_counter_ns()))
            time.sleep(pause_s)
        except BaseException as fault:
            faults.append(fault)
        finally:
            done.set()

    thread = threading.Thread(target=register, name="registrar")
    asked: list[tuple[int, int]] = []
    with Link(address) as link:
        thread.start()
        frames = cycle(queries)
        while not done.is_set():
            start = time.perf_counter_ns()
            link.ask(next(frames))
            asked.append((start, time.perf_counter_ns()))
        thread.join()
    if faults:
        raise faults[0]
    return sort_stalls(asked, spans)


def sort_stalls(asked: Sequence[tuple[int, int]], spans: Sequence[tuple[int, int]]) -> Stalls:
    """Gives each query to the registration that it overlaps; both are in the order of time."""
    worst = [0] * len(spans)
    quiet: list[int] = []
    at = 0
    for start, end in asked:
        while at < len(spans) and spans[at][1] < start:
            at += 1
        if at < len(spans) and spans[at][0] <= end:
            worst[at] = max(worst[at], end - start)
        else:
            quiet.append(end - start)
    return Stalls([end - start for start, end in asked], worst, quiet)
