"""The outgoing half of a connection: gathers answers into one write, limits unsent bytes, ends the stream.

    send ─▶ gather ─▶ flush ─▶ (TLS) ─▶ transport
                                          └▶ pause, resume      the peer does not read; it reads again

At the end, `finish` sends a FIN after all bytes, and gives the peer some time to close as well. If a socket is closed
while it has unread bytes, it is reset, and the peer may lose answers that are in flight.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from kourou.net.limits import Limits
from kourou.net.tls import TlsLayer


class Output:
    """The outgoing half of one connection."""

    __slots__ = (
        "_abort",
        "_account",
        "_flush_due",
        "_limits",
        "_linger",
        "_loop",
        "_out",
        "_transport",
        "_writable",
        "gathered",
        "has_written",
        "is_finished",
        "is_gathering",
        "is_paused",
        "largest",
        "last_active",
        "tls",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        account: Callable[[], None],
        abort: Callable[[str], None],
    ) -> None:
        """`account` is called when bytes are sent other than after a read; `abort` ends the connection."""
        self._loop = loop
        self._limits = limits
        self._account = account
        self._abort = abort
        self._transport: asyncio.Transport | None = None
        self.tls: TlsLayer | None = None
        self._out: list[bytes] = []
        self.gathered = 0  # bytes gathered so far
        self.is_gathering = False  # while requests are being served: their answers are sent together
        self._flush_due = False
        self.is_paused = False  # the peer does not read
        self.is_finished = False  # nothing more is accepted; our FIN is sent, or follows the unsent bytes
        self.has_written = False
        self.largest = 0  # bytes of the largest write
        self.last_active = loop.time()  # when something was last written, or read by the peer
        self._writable: asyncio.Future[None] | None = None  # for callers that wait for the peer to read
        self._linger: asyncio.TimerHandle | None = None

    def attach(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=self._limits.pause_writing)

    @property
    def unsent(self) -> int:
        """How many bytes the transport has not sent yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, data: bytes) -> None:
        """Gather bytes with others, to be sent soon. They are dropped if the connection is gone."""
        if self._transport is None or self.is_finished:
            return
        self._out.append(data)
        self.gathered += len(data)
        if self.gathered >= self._limits.pause_writing:
            self.flush()  # gathering more has no benefit; the transport reports when it is too much
            if not self.is_gathering:
                self._account()
        elif not self.is_gathering and not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush_later)

    def _flush_later(self) -> None:
        self._flush_due = False
        self.flush()
        self._account()

    def flush(self) -> None:
        out = self._out
        if not out:
            return
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        self.gathered = 0
        if self.tls is None:
            self.write(data)
        elif self._is_open:
            try:
                self.write(self.tls.send(data))
            except ssl.SSLError as error:
                self._abort(f"TLS: {error}")

    def write(self, data: bytes) -> None:
        """Write these bytes unchanged, before the gathered ones."""
        transport = self._transport
        if not data or transport is None or self.is_finished or transport.is_closing():
            return
        self.last_active = self._loop.time()
        self.has_written = True
        self.largest = max(self.largest, len(data))
        transport.write(data)
        if self.is_paused and transport.get_write_buffer_size() > self._limits.unsent:
            self._abort(f"more than {self._limits.unsent} bytes of answers are unsent: the peer does not read")

    @property
    def _is_open(self) -> bool:
        return self._transport is not None and not self.is_finished and not self._transport.is_closing()

    # ── Pressure ──────────────────────────────────────────────────────────────────────────────────────────────────

    def pause(self) -> None:
        """Called when the transport has too many unsent bytes."""
        self.is_paused = True

    def resume(self) -> None:
        """Called when the peer has read most of them."""
        self.is_paused = False
        self.last_active = self._loop.time()
        if self.is_finished and self._transport is not None and self._linger is None:
            self._send_fin(self._transport)
        self._wake()

    async def wait_writable(self) -> None:
        """Wait until the peer has read most of the sent bytes, or the connection is closed."""
        while self.is_paused and self._is_open:
            if self._writable is None:
                self._writable = self._loop.create_future()
            await asyncio.shield(self._writable)

    def _wake(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self) -> None:
        """Send the unsent bytes, then our FIN, and let the peer close first. Later bytes are dropped."""
        transport = self._transport
        assert transport is not None and not self.is_finished
        self.is_finished = True
        if transport.get_write_buffer_size():
            transport.set_write_buffer_limits(high=0)  # `resume` is called when everything is sent
        else:
            self._send_fin(transport)

    def _send_fin(self, transport: asyncio.Transport) -> None:
        """Send a FIN, and give the peer some time to close as well.

        The transport's write_eof is not used: if the peer has reset the connection, asyncio raises from the event loop,
        and uvloop reports a fatal error. The copy shares the connection, but not the file descriptor.
        """
        try:
            number = transport.get_extra_info("socket").fileno()
            with socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM) as twin:
                twin.shutdown(socket.SHUT_WR)
        except OSError:
            transport.close()
        else:
            self._linger = self._loop.call_later(self._limits.linger, transport.close)

    def stop(self) -> None:
        """The connection is being ended: cancel the timer."""
        if self._linger is not None:
            self._linger.cancel()

    def detach(self) -> None:
        """The connection is lost: nothing can be sent."""
        self.stop()
        self._transport = None
        self._out.clear()
        self.gathered = 0
        self._wake()
        self._account, self._abort = _nothing, _nothing  # so that the connection is freed without the garbage collector


def _nothing(*_: object) -> None:
    pass
