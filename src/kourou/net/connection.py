"""One connection: frames of both directions over an asyncio transport.

    bytes ─▶ (PROXY preamble) ─▶ (TLS) ─▶ Decoder ─▶ answers  ─▶ their callers
                                                  └▶ requests ─▶ Handler, in batches ─▶ reply() ─▶ one write a batch

Rules:

- All frames of a read are decoded, handled and answered together, with one write.
- The handler gets requests in batches, whose size depends on their cost (waiting.py).
- If a peer does not read its answers, a server stops reading requests from it: it reads nothing from a connection whose
  unsent answers exceed `Limits.pause_writing`, so the memory for a peer is bounded. The side that opened the connection
  always reads; otherwise both sides could wait for each other forever.
- All bytes of a connection (half a frame, unhandled requests, unsent answers) count in the listener's `Budget`.
- No connection occupies the event loop for long: waiting requests are handled for `TURN` seconds, then it is the turn
  of other connections. The listener's `Background` decides when a bulk reader (`step_back`) has its next turn.
- An invalid frame ends its connection, after the requests before it are answered. No other connection is affected.
- A connection without reads and writes for `Limits.idle` seconds is closed.

How a connection ends:

    close            All bytes are sent. A server then sends a FIN, and continues to read and discard bytes until the
                     peer closes as well or `Limits.linger` is over: a socket that is closed while it has unread bytes
                     is reset, and the peer may lose answers that are in flight.
    abort            At once; unsent bytes are lost.
    the peer's FIN   The owed answers are sent, then the connection is closed.
    drain            No more requests are accepted; accepted ones are answered, then the connection is closed.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import cast

from kourou.net import proxy
from kourou.net.background import Background
from kourou.net.calls import Calls, fail_future
from kourou.net.errors import ConnectionLostError, RequestTimedOutError
from kourou.net.handlers import Handler, Reader, too_many
from kourou.net.intake import Intake, address_of
from kourou.net.limits import Budget, Limits
from kourou.net.memory import give_memory_back
from kourou.net.output import Output
from kourou.net.tls import TlsLayer, TlsSettings
from kourou.net.waiting import TURN, Waiting
from kourou.protocol import frame
from kourou.protocol.codes import CommandFlag, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, LocalProtocolError
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

_RESPONSE = int(CommandFlag.RESPONSE)
_ONE_WAY = int(CommandFlag.ONE_WAY)
_SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)

GIVE_BACK_FROM = 1024 * 1024
"""From this size of an incomplete frame or an answer, memory is given back to the system after the connection ended."""


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
        """`ends_if_silent`: a peer that sent nothing while a request to it timed out is considered dead.

        Otherwise a machine that vanished would not be noticed. The next request opens a new connection.
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
        self._waiting = Waiting(limits.batch, self._loop.time)
        self._turn_due = False  # waiting requests are handled after the turn of other connections
        self._owed = 0  # requests handed over, but not answered yet
        self._handed = 0  # how many requests were handed over last
        self._draining = False  # no more requests are accepted
        self._ended = False  # close as soon as nothing is owed
        self._peer_ended = False  # the peer sends no more

        self.output = Output(self._loop, limits, self._account, self.abort)
        self._reading = True

        self.calls = Calls(self._loop, limits.requests)  # our own requests
        self._heard = self._loop.time()  # when the peer last sent anything
        if ends_if_silent:
            self.calls.on_time_out = self._end_if_silent

        # Time.
        self._last_unsent = 0  # unsent bytes at the last check: a change is progress
        self._timer: asyncio.TimerHandle | None = None

        self.held = 0  # the bytes that the budget counts for this connection
        self.reason: str | None = None  # why this side ended it
        self.lost: asyncio.Future[None] = self._loop.create_future()

    # ── Interface ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self.output.is_finished and not self._transport.is_closing()

    @property
    def peer(self) -> str:
        """ "ip:port" of the client, from the PROXY preamble if there is one."""
        return self.intake.peer

    @property
    def is_tls(self) -> bool:
        return self.intake.tls is not None

    def reply(self, command: Command) -> None:
        """Answer one of the peer's requests. The answer is dropped if the connection is gone."""
        try:
            data = frame.encode(command)
        except LocalProtocolError as error:
            log.warning("answer can't be sent peer=%s code=%d: %s", self.peer, command.code, shown(error))
            data = frame.encode(Command(_SYSTEM_ERROR, command.opaque, command.flag, remark=str(error)))
        self.reply_frame(data)

    def reply_frame(self, data: bytes) -> None:
        """Send an encoded answer."""
        self.reply_frames(data, 1)

    def owe(self, count: int) -> None:
        """The reader has served `count` requests whose answers will be given later."""
        self._owed += count

    def reply_frames(self, data: bytes, count: int) -> None:
        """Send encoded answers, `count` of which are owed."""
        self._owed = max(self._owed - count, 0)
        self.output.send(data)
        if self._ended:
            self._close_if_done()

    def step_back(self) -> None:
        """The peer reads in bulk: serve others before its next requests."""
        self._waiting.steps_back = self._background is not None

    def begin(self, command: Command, timeout: float) -> "asyncio.Future[Command]":
        """Send a request now; the future has its answer, or fails with a TransportError.

        Does not wait for a peer that reads slowly: see `is_congested`. Raises ConnectionLostError,
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
        """Send a request and wait for its answer; also waits while the peer does not read.

        Raises ConnectionLostError, RequestTimedOutError, TooManyRequestsError, LocalProtocolError.
        """
        left = timeout
        if self.output.is_paused:
            began = self._loop.time()
            try:
                async with asyncio.timeout(timeout):
                    await self.wait_writable()
            except TimeoutError:
                text = f"request {command.code} could not be sent to {self.peer} within {timeout:g} s: it does not read"
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
    def is_congested(self) -> bool:  # the peer reads more slowly than this side writes
        return self.output.is_paused

    async def wait_writable(self) -> None:
        """Wait until the peer has read most of the sent bytes, or the connection is closed."""
        await self.output.wait_writable()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionLostError(
                f"the connection to {self.peer or 'the peer'} is closed ({self.reason or 'lost'})"
            )

    def send_now(self, command: Command) -> None:
        """Send a one-way command without waiting; it is dropped if the connection is gone."""
        self.output.send(frame.encode(command))

    async def tls_established(self) -> None:
        """Wait for a client's TLS handshake. Raises ssl.SSLError, ConnectionLostError."""
        if self._tls_ready is not None:
            await self._tls_ready

    def close(self) -> None:
        """End the connection after all bytes are sent."""
        self.output.flush()
        transport = self._transport
        if transport is None or not self.is_open:
            return
        if self.intake.tls is not None:
            self.output.write(self.intake.tls.goodbye())
        if not self._is_server or self._peer_ended or not self.output.has_written:
            transport.close()
        elif not transport.is_closing():
            self._waiting.clear()
            self.output.finish()
            self._update_reading()

    def abort(self, reason: str) -> None:
        """End the connection at once; unsent bytes are lost."""
        if self._transport is None:
            return
        if self.reason is None:
            self.reason = reason
            log.info("connection ended peer=%s reason=%s", self.peer, shown(reason))
        self._transport.abort()
        self._release()

    async def drain(self, grace: float) -> None:
        """Accept no more requests, answer the accepted ones, then close. Aborts after `grace` seconds."""
        self._draining = self._ended = True
        if self._waiting.rest:
            self._serve_rest()
        self._hand_over_waiting()
        self._account()
        try:
            async with asyncio.timeout(grace):
                await asyncio.shield(self.lost)
        except TimeoutError:
            self.abort(f"its requests were not answered within {grace:g} s")
            await asyncio.shield(self.lost)

    def _close_if_done(self) -> None:
        if self._ended and not self._owed and not self._waiting:
            self.close()

    # ── Bytes from the peer ───────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.output.attach(self._transport)
        self.intake.peer = self.calls.peer = address_of(transport.get_extra_info("peername"))
        self._budget.members.add(self)
        self._look_later()
        if self.intake.tls is not None:
            self.output.tls = self.intake.tls
            self.output.write(self.intake.tls.start())
        self._close_if_done()  # drained before the connection was made

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
        if self._waiting.rest:
            self._waiting.rest += data
            self._account()
        elif self._waiting.steps_back and data:
            self._waiting.rest = data
            self._account()
            self._go_on_later()
            self._update_reading()
        else:
            if self._background is not None:
                self._background.others_asked = self._heard
            self._read(data)

    def _read(self, data: bytes) -> None:
        """Process plain bytes of a read."""
        if self._reader is None or self._waiting.has_requests or self._draining or self._must_wait():
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
        """Update timers after a read that did not end with a frame, or after the end of the stream."""
        intake.note(self._heard, whole=whole)
        if intake.decoder.error is not None:
            self._end_of_sense(intake.decoder.error)
        elif intake.is_closed:
            self._end_of_peer()

    def _let_read(self, reader: Reader, data: bytes) -> bool:
        """Let the reader serve a read; all answers are sent in one write. Returns whether a frame was complete."""
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
            self._waiting.fit(self._handed, is_congested=self.output.is_paused)
        self.output.flush()
        if self._waiting.has_requests:
            self._hand_over_waiting()
        elif self._waiting.rest:
            self._go_on_later()
            self._update_reading()
            return True
        return decoder.buffered < len(data)

    def decode(self, data: bytes) -> list[Command]:
        """Decode bytes that the reader does not serve itself; returns the requests to serve now.

        Answers go to their callers; an incomplete frame is buffered. If there is more than a batch, the rest waits.
        """
        requests = self._requests_in(self.intake.decoder.decode(data))
        if len(requests) > self._waiting.batch:
            self._waiting.put(requests)
            return []
        self._begin_batch(requests)
        return requests

    def put_off(self, data: bytes) -> None:
        """Process this rest of a read after other connections had their turn."""
        self._waiting.rest = data

    def put_back(self, requests: list[Command]) -> None:
        """Take back requests that were handed over; they are served first after other connections had their turn."""
        self._owed -= sum(not command.flag & _ONE_WAY for command in requests)
        if self.is_open:
            self._waiting.put_back(requests)
            self._go_on_later()

    def _go_on_later(self) -> None:
        """Handle waiting requests after other connections had their turn; a bulk reader waits for the background."""
        if not self._waiting or self._turn_due or self._must_wait() or not self.is_open:
            return
        self._turn_due = True
        if self._waiting.steps_back and self._background is not None:
            self._waiting.steps_back = False  # until it reads in bulk again
            self._background.ask(self._take_turn)
        else:
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._turn_due = False
        if self._waiting.has_requests:
            self._hand_over_waiting()
        elif self._waiting.rest and not self._must_wait() and self.is_open:
            self._serve_rest()
        self._account()

    def _serve_rest(self) -> None:
        self._read(self._waiting.take_rest())
        self._update_reading()
        if self._ended:
            self._close_if_done()

    def _unwrapped(self, answer: bytes) -> None:
        """After bytes of a TLS stream: send TLS' answer, and wake those that wait for the handshake."""
        tls = self.output.tls = self.intake.tls
        self.output.write(answer)
        if tls is not None and tls.ready and self._tls_ready is not None and not self._tls_ready.done():
            self._tls_ready.set_result(None)

    def _take(self, commands: list[Command]) -> None:
        """Answers go to their callers; requests go to the handler, or wait for their turn."""
        requests = self._requests_in(commands)
        if not requests:
            return
        if self._waiting.has_requests or self._must_wait() or len(requests) > self._waiting.batch:
            self._waiting.put(requests)
            self._hand_over_waiting()
        else:
            self._hand_over(requests)
            self.output.flush()

    def _requests_in(self, commands: list[Command]) -> list[Command]:
        """The requests among these commands. Answers go to their callers; excess requests are refused at once."""
        requests: list[Command] = []
        for command in commands:
            if command.flag & _RESPONSE:
                self.calls.answer(command)
            elif self._owed < self._limits.in_flight:
                requests.append(command)
            else:
                self.output.send(too_many(command, self._owed))
        return requests

    def _must_wait(self) -> bool:
        return self.output.is_paused and self._is_server

    def _hand_over_waiting(self) -> None:
        """Hand over waiting requests, for `TURN` seconds."""
        if self.output.is_gathering:
            return  # a caller further up the stack continues
        waiting, until = self._waiting, self._loop.time() + TURN
        while waiting.has_requests and not self._turn_due and not self._must_wait() and self.is_open:
            if self._loop.time() > until or waiting.steps_back:
                break
            self._hand_over(waiting.take_batch())
        self._go_on_later()
        self.output.flush()
        self._update_reading()
        self._close_if_done()

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
        self._waiting.fit(len(batch), is_congested=self.output.is_paused)

    def _begin_batch(self, batch: list[Command]) -> None:
        self._handed = len(batch)
        self._waiting.begin(len(batch))
        for command in batch:
            if not command.flag & _ONE_WAY:
                self._owed += 1

    def eof_received(self) -> bool:
        """The peer has sent its FIN. True: answers to it are outstanding, so the other direction stays open."""
        self._end_of_peer()
        return self.is_open

    def _end_of_peer(self) -> None:
        self._peer_ended = self._ended = True
        self._close_if_done()

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        self._transport = None
        if max(self.intake.forget(), self.output.largest) >= GIVE_BACK_FROM:
            self._loop.call_soon(give_memory_back)
        self._waiting.clear()
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
        self._hand_over_waiting()
        self._account()

    def _update_reading(self) -> None:
        wanted = self.output.is_finished or not (self._must_wait() or self._waiting or self._draining)
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
        """How many bytes this process holds for the peer."""
        if self._transport is None:
            return 0
        taken = self.intake.decoder.buffered + self._waiting.size
        return taken + self.output.gathered + self._transport.get_write_buffer_size()

    def _account(self) -> None:
        if self not in self._budget.members:
            return
        now = self.buffered
        if now != self.held:
            change, self.held = now - self.held, now
            self._budget.add(change)

    def _release(self) -> None:
        """Subtract this connection from the budget, once."""
        if self._timer is not None:
            self._timer.cancel()
        self.output.stop()
        self.calls.stop()
        if self in self._budget.members:
            self._budget.members.discard(self)
            self._budget.held -= self.held
            self.held = 0

    def _fail(self, error: Exception) -> None:
        """End the connection, because the stream can't continue. A TLS peer gets an alert first."""
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
            self.abort(f"the peer sent nothing for {timeout:g} s while a request waited for its answer")

    def _look_at_clock(self) -> None:
        """Check several times per idle period that the peer is alive, and that it completes its frames."""
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
            self.abort(f"a frame was incomplete after {limits.frame_time:g} s")
        else:
            self._look_later()
            self._account()

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(min(self._limits.idle, self._limits.frame_time) / 8, self._look_at_clock)
