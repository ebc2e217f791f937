"""From the bytes of a socket to frames: PROXY preamble, TLS, decoder. No sockets here.

    bytes ─▶ (PROXY preamble) ─▶ (TLS) ─▶ plain bytes ─▶ Decoder

A server tells the three kinds of a stream apart by its first byte. A client knows which it opened.
"""

from kourou.net import proxy
from kourou.net.tls import HANDSHAKE_BYTE, TlsLayer, TlsMode, TlsSettings
from kourou.protocol import frame
from kourou.protocol.errors import FrameError


class Intake:
    """What one connection receives."""

    __slots__ = ("_is_proxied", "_preamble", "_settings", "_trusted", "decoder", "is_plain", "peer", "started", "tls")

    def __init__(
        self,
        frame_size: int,
        *,
        tls: TlsSettings | None = None,
        tls_layer: TlsLayer | None = None,
        trusted_proxies: proxy.Networks = (),
    ) -> None:
        """A server gives its settings of TLS; a client that opened a connection in TLS gives the layer."""
        self.decoder = frame.Decoder(frame_size)
        self.peer = ""  # "ip:port" of the client, as the PROXY preamble says if there is one
        self.tls = tls_layer
        self.is_plain = tls is None and tls_layer is None  # bytes go to the decoder as they are
        self._settings = tls
        self._trusted = trusted_proxies
        self._preamble = bytearray()  # the first bytes of a stream that is not recognised yet
        self._is_proxied = False  # a PROXY preamble was there
        self.started: float | None = None  # when the first byte of something unfinished came

    @property
    def is_closed(self) -> bool:
        """The peer has ended TLS."""
        return self.tls is not None and self.tls.closed

    def unwrap(self, data: bytes) -> tuple[bytes, bytes]:
        """Plain bytes of what came, and bytes that are to be sent to the peer.

        Raises FrameError, ssl.SSLError, OSError, ValueError: the stream can't go on.
        """
        if self.is_plain:
            return data, b""
        if self._settings is not None:
            self._preamble += data
            known = self._recognise(bytes(self._preamble), self._settings)
            if known is None:
                return b"", b""
            data = known
        return (data, b"") if self.tls is None else self.tls.receive(data)

    def _recognise(self, data: bytes, settings: TlsSettings) -> bytes | None:
        """The bytes after the preamble; None if there are none yet."""
        if not data:
            return None
        if data[0] in proxy.FIRST_BYTES and not self._is_proxied:
            if not proxy.is_trusted(self.peer, self._trusted):
                raise FrameError("a PROXY preamble from an address that is not trusted (proxyProtocolTrusted)")
            parsed = proxy.parse(data)
            if parsed is None:
                return None
            address, size = parsed
            self.peer = address or self.peer
            self._is_proxied = True  # a second preamble would be the client's own, to pretend another address
            data = data[size:]
            self._preamble = bytearray(data)
            if not data:
                return None
        if data[0] == HANDSHAKE_BYTE:
            if settings.mode is TlsMode.DISABLED:
                raise FrameError("the peer uses TLS, which is disabled here (tls.server.mode)")
            self.tls = TlsLayer(settings.server_context, server_side=True)
        elif settings.mode is TlsMode.ENFORCING:
            raise FrameError("the peer uses plain text, and TLS is required here (tls.server.mode)")
        else:
            self.is_plain = True
        self._settings = None
        self._preamble.clear()
        return data

    @property
    def has_begun(self) -> bool:
        """Something of the peer's is begun and not finished: a frame, a preamble, a handshake."""
        return bool(self.decoder.buffered or self._preamble or (self.tls is not None and not self.tls.ready))

    def note(self, now: float, *, whole: bool) -> None:
        """After a read: did it bring something `whole`, and is something begun?"""
        begun = self.has_begun
        if whole or not begun:
            self.started = None
        if begun and self.started is None:
            self.started = now

    def unfinished_for(self, now: float) -> float:
        """Seconds since the first byte of what is begun and not finished."""
        return 0.0 if self.started is None else now - self.started

    def forget(self) -> int:
        """The connection is lost. Bytes that were held of an unfinished frame."""
        held = self.decoder.buffered
        self.decoder = frame.Decoder(0)
        return held
