"""One connection: frames of both directions over an asyncio transport.

    bytes ─▶ (PROXY preamble) ─▶ (TLS) ─▶ Decoder ─▶ answers  ─▶ whoever awaits them
                                                  └▶ requests ─▶ Handler, in batches ─▶ reply() ─▶ one write a batch

Rules that hold here:

- Whatever one read brings is decoded, handled and answered together, with one write.
- The handler gets requests in batches: small ones at first, larger ones while they are cheap, smaller ones again when
  they take long or their answers pile up. So nobody's first requests can make us produce more than we can send.
- A peer that does not read its answers is not read from: a server stops taking requests from a connection whose unsent
  answers exceed `Limits.pause_writing`, so what it can make us hold is bounded. The side that opened the connection
  always reads, or two full directions could wait for each other for ever.
- What a connection holds (half a frame, unhandled requests, unsent answers) counts in the listener's `Budget`.
- Nobody has the loop for long: requests that wait are handled for `TURN` seconds, then it is the others' turn. Who
  reads in bulk (`step_back`) has its next turn when the listener's `Background` says so.
- A frame that can't be understood ends this connection, after the requests before it are answered. Nobody else notices.
- Neither read nor write for `Limits.idle` seconds: closed.

How a connection ends:

    close            what is to be sent is sent. A server then says that no more comes (FIN) and goes on reading, into
                     nothing, until the peer closes too or `Limits.linger` is over: a socket that is closed with bytes
                     unread is reset, and the peer may lose answers that are on their way.
    abort            at once; what is unsent is lost
    the peer's FIN   the answers that are owed are sent, then closed
    drain            no more requests are taken, those that were are answered, then closed
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from kourou.net import proxy
from kourou.net.background import Background
from kourou.net.calls import Calls, fail_future
from kourou.net.errors import ConnectionLostError, RequestTimedOutError
from kourou.net.intake import Intake
from kourou.net.limits import Budget, Limits
from kourou.net.memory import give_memory_back
from kourou.net.output import Output
from kourou.net.tls import TlsLayer, TlsSettings
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, LocalProtocolError
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

_RESPONSE = int(CommandFlag.RESPONSE)
_ONE_WAY = int(CommandFlag.ONE_WAY)
_SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)

TURN = 0.010
"""Seconds that the waiting requests of one connection may take before other connections have their turn."""

GIVE_BACK_FROM = 1024 * 1024
"""Bytes of a half frame that are worth a word to the allocator when its connection is gone."""

FIRST_BATCH = 8
"""Requests that are handed over at once before it is known what they cost."""

_COMMAND_SIZE = 512
"""What a decoded request costs us besides its body, roughly."""


class Handler(Protocol):
    """Who answers the peer's requests."""

    def requests(self, connection: "Connection", commands: list[Command]) -> None:
        """Requests in the order they came. Each that is not one-way is owed one `connection.reply`, now or later."""

    def closed(self, connection: "Connection") -> None:
        """The connection is gone; nothing can be sent on it any more."""


class Reader(Protocol):
    """Serves the bytes of a read, for handlers that need not have every request decoded."""

    def read(self, connection: "Connection", data: bytes) -> None:
        """Serve the frames in `data`, of which the last one may not be whole.

        Answers are given by `connection.reply_frames`, and those that will be given later are announced by
        `connection.owe`. What is not served from the bytes goes to `connection.decode`, which returns the requests to
        serve now; or to `connection.put_off`, and is read again when other connections had their turn.
        """


class NoRequests:
    """The handler of a side that only asks: it tells the peer that it serves nothing."""

    def requests(self, connection: "Connection", commands: list[Command]) -> None:
        for command in commands:
            if not command.is_one_way:
                connection.reply(command.answer(3, f" request type {command.code} not supported"))

    def closed(self, connection: "Connection") -> None:
        pass


class Connection(asyncio.Protocol):
    """See the module's text. Made by `Listener` and `connect`, never directly."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        budget: Budget,
        *,
        tls: TlsSettings | None = None,
        tls_layer: TlsLayer | None = None,
        on_end: Callable[["Connection"], None] | None = None,
        reader: Reader | None = None,
        background: Background | None = None,
        trusted_proxies: proxy.Networks = (),
        ends_if_silent: bool = False,
    ) -> None:
        """`ends_if_silent`: a peer that sent nothing while a request of ours timed out is taken for dead.

        Nothing else would notice a machine that is gone without a word. The next request opens a new connection.
        """
        self._loop = asyncio.get_running_loop()
        self._handler = handler
        self._reader = reader
        self._background = background
        self._limits = limits
        self._budget = budget
        self._on_end = on_end
        self._transport: asyncio.Transport | None = None
        self._is_server = tls is not None
        self.intake = Intake(limits.frame_size, tls=tls, tls_layer=tls_layer, trusted_proxies=trusted_proxies)
        self._tls_ready = self._loop.create_future() if tls_layer is not None else None

        # Requests from the peer.
        self._inbox: deque[Command] = deque()  # decoded, not handed over yet
        self._inbox_size = 0  # roughly their bytes
        self._owed = 0  # handed over, not answered yet
        self._batch = min(FIRST_BATCH, limits.batch)  # how many are handed over at once, at present
        self._turn_due = False  # the inbox goes on being handled when the others had their turn
        self._handed = 0  # how many requests were handed over last
        self._batch_began = 0.0  # when a batch of more than one request was handed over
        self._rest = b""  # of a read: for the reader, when the others had their turn
        self._rest_due = False
        self._steps_back = False  # what comes next is for the background
        self._draining = False  # no more requests are taken
        self._ended = False  # close as soon as nothing is owed
        self._peer_ended = False  # the peer sends no more

        self.output = Output(self._loop, limits, self._account, self.abort)
        self._reading = True

        self.calls = Calls(self._loop, limits.requests)  # our own requests
        self._heard = self._loop.time()  # when the peer last sent anything
        if ends_if_silent:
            self.calls.on_time_out = self._end_if_silent

        # Time.
        self._last_unsent = 0  # unsent bytes at the last look: a change is progress
        self._timer: asyncio.TimerHandle | None = None

        self.held = 0  # what the budget believes of us
        self.reason: str | None = None  # why we ended it
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # ── What others do with a connection ──────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.output.is_finished and not self._transport.is_closing()

    @property
    def is_writable(self) -> bool:
        """Does the peer read what it is sent? If not, what is not an answer should wait."""
        return not self.output.is_paused

    @property
    def peer(self) -> str:
        """ "ip:port" of the client, as the PROXY preamble says if there is one."""
        return self.intake.peer

    @property
    def is_tls(self) -> bool:
        return self.intake.tls is not None

    def reply(self, command: Command) -> None:
        """An answer to one of the peer's requests. Dropped if the connection is gone."""
        try:
            data = frame.encode(command)
        except LocalProtocolError as error:
            log.warning("answer can't be sent peer=%s code=%d: %s", self.peer, command.code, shown(error))
            data = frame.encode(Command(_SYSTEM_ERROR, command.opaque, command.flag, remark=str(error)))
        self.reply_frame(data)

    def reply_frame(self, data: bytes) -> None:
        """An answer that is encoded already."""
        self.reply_frames(data, 1)

    def owe(self, count: int) -> None:
        """So many answers will be given later, to requests that the reader has served."""
        self._owed += count

    def reply_frames(self, data: bytes, count: int) -> None:
        """Answers that are encoded already, `count` of which are owed."""
        self._owed = max(self._owed - count, 0)
        self.output.send(data)
        if self._ended:
            self._close_if_done()

    def step_back(self) -> None:
        """The peer reads in bulk: others come before its next requests."""
        self._steps_back = self._background is not None

    def begin(self, command: Command, timeout: float) -> "asyncio.Future[Command]":
        """Send a request now; the future has its answer, or fails with a TransportError.

        It does not wait for a peer that reads slowly: see `is_congested`. Raises ConnectionLostError,
        TooManyRequestsError, LocalProtocolError.
        """
        number = self.calls.number()
        self._check_open()
        command.opaque = number
        data = frame.encode(command)
        future = self.calls.begin(number, command.code, timeout)
        self.output.send(data)
        return future

    async def request(self, command: Command, timeout: float) -> Command:
        """Send a request and wait for its answer, also for the peer to read.

        Raises ConnectionLostError, RequestTimedOutError, TooManyRequestsError, LocalProtocolError.
        """
        left = timeout
        if self.output.is_paused:
            began = self._loop.time()
            try:
                async with asyncio.timeout(timeout):
                    await self.wait_writable()
            except TimeoutError:
                text = f"request {command.code} could not be sent to {self.peer} in {timeout:g} s: it does not read"
                raise RequestTimedOutError(text) from None
            left = max(timeout - (self._loop.time() - began), 0)
        future = self.begin(command, left)
        number = command.opaque
        try:
            return await future
        finally:
            self.calls.forget(number)

    async def send(self, command: Command) -> None:
        """Send without awaiting an answer; waits while the peer does not read. Raises ConnectionLostError."""
        data = frame.encode(command)
        await self.wait_writable()
        self._check_open()
        self.output.send(data)

    @property
    def is_congested(self) -> bool:
        """The peer does not read as fast as we write."""
        return self.output.is_paused

    async def wait_writable(self) -> None:
        """Wait until the peer has read most of what was sent, or the connection is gone."""
        await self.output.wait_writable()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionLostError(
                f"the connection to {self.peer or 'the peer'} is closed ({self.reason or 'lost'})"
            )

    def send_now(self, command: Command) -> None:
        """A one-way command from code that can't wait; dropped if the connection is gone."""
        self.output.send(frame.encode(command))

    async def tls_established(self) -> None:
        """Wait for a client's TLS handshake. Raises ssl.SSLError, ConnectionLostError."""
        if self._tls_ready is not None:
            await self._tls_ready

    def close(self) -> None:
        """End the connection; what is to be sent is sent first."""
        self.output.flush()
        transport = self._transport
        if transport is None or not self.is_open:
            return
        if self.intake.tls is not None:
            self.output.write(self.intake.tls.goodbye())
        if not self._is_server or self._peer_ended or not self.output.has_written:
            transport.close()
        elif not transport.is_closing():
            self._rest = b""
            self._inbox.clear()
            self._inbox_size = 0
            self.output.finish()
            self._update_reading()

    def abort(self, reason: str) -> None:
        """End the connection at once; what is unsent is lost."""
        if self._transport is None:
            return
        if self.reason is None:
            self.reason = reason
            log.info("connection ended peer=%s reason=%s", self.peer, shown(reason))
        self._transport.abort()
        self._release()

    async def drain(self, grace: float) -> None:
        """Take no more requests, answer those that were taken, then close. Gives up after `grace` seconds."""
        self._draining = self._ended = True
        if self._rest:
            self._serve_rest()
        self._hand_over_inbox()
        self._account()
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(self.lost)
        except TimeoutError:
            self.abort(f"not drained in {grace:g} s")
            await asyncio.shield(self.lost)

    def _close_if_done(self) -> None:
        if self._ended and not self._owed and not self._inbox and not self._rest:
            self.close()

    # ── Bytes from the peer ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.output.attach(self._transport)
        self.intake.peer = self.calls.peer = _address(transport.get_extra_info("peername"))
        self._budget.members.add(self)
        self._look_later()
        if self.intake.tls is not None:
            self.output.tls = self.intake.tls
            self.output.write(self.intake.tls.start())
        self._close_if_done()  # drained before it began

    def data_received(self, data: bytes) -> None:
        if self.output.is_finished:
            return
        self._heard = self._loop.time()
        if not self.intake.is_plain:
            try:
                data, answer = self.intake.unwrap(data)
            except (FrameError, ssl.SSLError, OSError, ValueError) as error:
                self._fail(error)
                return
            self._unwrapped(answer)
        if self._rest:
            self._rest += data
            self._account()
        elif self._steps_back and data:
            self._rest = data
            self._account()
            self._rest_later()
            self._update_reading()
        else:
            if self._background is not None:
                self._background.others_asked = self._heard
            self._read(data)

    def _read(self, data: bytes) -> None:
        """What came, out of all wrappings."""
        if self._reader is None or self._inbox or self._draining or self._must_wait():
            commands = self.intake.decoder.feed(data)
            if commands:
                self._take(commands)
            whole = bool(commands)
        else:
            whole = self._let_read(self._reader, data)
        intake = self.intake
        decoder = intake.decoder
        if decoder.buffered or intake.started is not None or not intake.is_plain or decoder.error is not None:
            self._note(intake, whole)
        self._account()

    def _note(self, intake: Intake, whole: bool) -> None:
        """After a read that did not end with a frame, or that is the end."""
        intake.note(self._heard, whole=whole)
        if intake.decoder.error is not None:
            self._end_of_sense(intake.decoder.error)
        elif intake.is_closed:
            self._end_of_peer()

    def _let_read(self, reader: Reader, data: bytes) -> bool:
        """The reader serves what came; all answers leave in one write. Was anything whole?"""
        decoder = self.intake.decoder
        data = decoder.join(data)
        if not data:
            return False
        self.output.is_gathering = True
        self._handed = 0
        try:
            reader.read(self, data)
        except Exception:
            log.exception("a read failed peer=%s", self.peer)
            self.abort("internal error")
            return False
        finally:
            self.output.is_gathering = False
        if self._handed:
            self._fit_batch(self._handed)
        self.output.flush()
        if self._inbox:
            self._hand_over_inbox()
        elif self._rest:
            self._rest_later()
            self._update_reading()
            return True
        return decoder.buffered < len(data)

    def decode(self, data: bytes) -> list[Command]:
        """The requests in what the reader does not serve from the bytes, if it may serve them now.

        Answers go to whoever awaits them, and half a frame is kept. More requests than a batch has wait in the inbox.
        """
        requests = self._requests_in(self.intake.decoder.decode(data))
        if len(requests) > self._batch:
            self._put_in_inbox(requests)
            return []
        self._begin_batch(requests)
        return requests

    def put_off(self, data: bytes) -> None:
        """This rest of a read is read when other connections had their turn."""
        self._rest = data

    def _rest_later(self) -> None:
        if self._rest and not self._rest_due and not self._must_wait():
            self._rest_due = True
            self._call_later(self._rest_turn)

    def _call_later(self, turn: Callable[[], None]) -> None:
        """When the others had their turn."""
        if self._steps_back and self._background is not None:
            self._steps_back = False  # until it reads in bulk again
            self._background.ask(turn)
        else:
            self._loop.call_soon(turn)

    def _rest_turn(self) -> None:
        self._rest_due = False
        if self._rest and not self._must_wait() and self.is_open:
            self._serve_rest()

    def _serve_rest(self) -> None:
        data, self._rest = self._rest, b""
        self._read(data)
        self._update_reading()
        if self._ended:
            self._close_if_done()

    def _unwrapped(self, answer: bytes) -> None:
        """After bytes of a stream that is not plain: what TLS wants to send, and who waits for its handshake."""
        tls = self.output.tls = self.intake.tls
        self.output.write(answer)
        if tls is not None and tls.ready and self._tls_ready is not None and not self._tls_ready.done():
            self._tls_ready.set_result(None)

    def _take(self, commands: list[Command]) -> None:
        """Answers to whoever awaits them; requests to the handler, or into the inbox while that has to wait."""
        requests = self._requests_in(commands)
        if not requests:
            return
        if self._inbox or self._must_wait() or len(requests) > self._batch:
            self._put_in_inbox(requests)
            self._hand_over_inbox()
        else:
            self._hand_over(requests)
            self.output.flush()

    def _requests_in(self, commands: list[Command]) -> list[Command]:
        """The requests among these commands. Answers go to whoever awaits them."""
        requests: list[Command] = []
        for command in commands:
            if command.flag & _RESPONSE:
                self.calls.answer(command)
            else:
                requests.append(command)
        return requests

    def _put_in_inbox(self, requests: list[Command]) -> None:
        self._inbox.extend(requests)
        self._inbox_size += sum(len(command.body) + _COMMAND_SIZE for command in requests)

    def _must_wait(self) -> bool:
        return self.output.is_paused and self._is_server

    def _hand_over_inbox(self) -> None:
        if self.output.is_gathering:
            return  # further up the stack it goes on
        until = self._loop.time() + TURN
        while self._inbox and not self._must_wait() and self.is_open:
            if self._loop.time() > until or self._steps_back:
                self._hand_over_later()
                break
            batch = [self._inbox.popleft() for _ in range(min(len(self._inbox), self._batch))]
            self._inbox_size -= sum(len(command.body) + _COMMAND_SIZE for command in batch)
            self._hand_over(batch)
        self.output.flush()
        self._update_reading()
        self._close_if_done()

    def _hand_over_later(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._call_later(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        self._hand_over_inbox()
        self._account()

    def _hand_over(self, batch: list[Command]) -> None:
        self._begin_batch(batch)
        self.output.is_gathering = True
        try:
            self._handler.requests(self, batch)
        except Exception:
            log.exception("handler failed peer=%s codes=%s", self.peer, [command.code for command in batch][:8])
            self.abort("internal error")
        finally:
            self.output.is_gathering = False
        self._fit_batch(len(batch))

    def _begin_batch(self, batch: list[Command]) -> None:
        self._handed = len(batch)
        if len(batch) > 1:  # a single request can't be made fewer
            self._batch_began = self._loop.time()
        for command in batch:
            if not command.flag & _ONE_WAY:
                self._owed += 1

    def _fit_batch(self, count: int) -> None:
        """After a batch of so many requests: the next one is larger, or smaller if this one took long."""
        took_long = count > 1 and self._loop.time() - self._batch_began > TURN
        if self.output.is_paused or self._steps_back or took_long:
            self._batch = max(count // 2, 1)
        elif count == self._batch:
            self._batch = min(self._batch * 2, self._limits.batch)

    def eof_received(self) -> bool:
        """The peer sends no more. True: we still owe it answers, so the other direction stays open."""
        self._end_of_peer()
        return self.is_open

    def _end_of_peer(self) -> None:
        self._peer_ended = self._ended = True
        self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._transport = None
        if self.intake.forget() >= GIVE_BACK_FROM:
            self._loop.call_soon(give_memory_back)
        self._rest = b""
        self._inbox.clear()
        self._inbox_size = 0
        self.output.detach()
        if self.reason is None and exc is not None:
            self.reason = str(exc)
        why = f"the connection to {self.peer} is lost ({self.reason or 'closed'})"
        self.calls.fail(why)
        if self._tls_ready is not None:
            fail_future(self._tls_ready, ConnectionLostError(why))
        if not self.lost.done():
            self.lost.set_result(None)
        if self._on_end is not None:
            self._on_end(self)
        try:
            self._handler.closed(self)
        except Exception:
            log.exception("handler failed at the end of a connection peer=%s", self.peer)

    # ── Bytes to the peer ─────────────────────────────────────────────────────────────────────────────────────────

    def pause_writing(self) -> None:
        self.output.pause()
        self._update_reading()

    def resume_writing(self) -> None:
        self.output.resume()
        self._rest_later()
        self._hand_over_inbox()
        self._account()

    def _update_reading(self) -> None:
        wanted = self.output.is_finished or not (self._must_wait() or self._inbox or self._rest or self._draining)
        transport = self._transport
        if wanted == self._reading or transport is None or transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            transport.resume_reading()
        else:
            transport.pause_reading()

    # ── Bookkeeping ───────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def last_active(self) -> float:
        """When something was last read or written, by the loop's clock."""
        return max(self._heard, self.output.last_active)

    @property
    def buffered(self) -> int:
        """Bytes that we hold for this peer."""
        if self._transport is None:
            return 0
        taken = self.intake.decoder.buffered + len(self._rest) + self._inbox_size
        return taken + self.output.gathered + self._transport.get_write_buffer_size()

    def _account(self) -> None:
        if self not in self._budget.members:
            return
        now = self.buffered
        if now != self.held:
            change, self.held = now - self.held, now
            self._budget.add(change)

    def _release(self) -> None:
        """Give back what the budget counts for us, once."""
        if self._timer is not None:
            self._timer.cancel()
        self.output.stop()
        self.calls.stop()
        if self in self._budget.members:
            self._budget.members.discard(self)
            self._budget.held -= self.held
            self.held = 0

    def _fail(self, error: Exception) -> None:
        """The stream can't go on. A TLS peer is told why before the end."""
        if self._tls_ready is not None:
            fail_future(self._tls_ready, error)
        if self.intake.tls is not None:
            self.output.write(self.intake.tls.alert())
        self._end_of_sense(error)

    def _end_of_sense(self, error: Exception) -> None:
        if not self.is_open or self._ended:
            return
        self.reason = str(error)
        log.info("connection ended peer=%s reason=%s", self.peer, shown(error))
        self._draining = self._ended = True
        self._update_reading()
        self._close_if_done()

    def _end_if_silent(self, began: float, timeout: float) -> None:
        if self._heard < began:
            self.abort(f"the server was silent for {timeout:g} s")

    def _look_at_clock(self) -> None:
        """Several times in an idle period: is the peer alive, does it come to an end with what it began?"""
        transport = self._transport
        if transport is None or self not in self._budget.members:
            return
        now, limits = self._loop.time(), self._limits
        unsent = transport.get_write_buffer_size()
        if unsent != self._last_unsent:
            self._last_unsent, self.output.last_active = unsent, now
        if now - self.last_active >= limits.idle:
            self.abort(f"idle for {limits.idle:g} s")
        elif self.intake.unfinished_for(now) >= limits.frame_time:
            self.abort(f"a frame was not whole after {limits.frame_time:g} s")
        else:
            self._look_later()
            self._account()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(min(self._limits.idle, self._limits.frame_time) / 8, self._look_at_clock)


def _address(name: object) -> str:
    """ "ip:port" of a socket name; "" for what is no IP socket."""
    if not isinstance(name, tuple) or len(name) < 2:
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
