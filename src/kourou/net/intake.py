"""From the bytes of a socket to frames: PROXY preamble, TLS, decoder. No sockets here.

    bytes ─▶ (PROXY preamble) ─▶ (TLS) ─▶ plain bytes ─▶ Decoder

A server distinguishes the three kinds of streams by the first byte. A client knows which kind it opened.
"""

from kourou.net import proxy
from kourou.net.tls import HANDSHAKE_BYTE, TlsLayer, TlsMode, TlsSettings
from kourou.protocol import frame
from kourou.protocol.errors import FrameError


class Intake:
    """The incoming half of one connection."""

    __slots__ = (
        "_is_proxied",
        "_preamble",
        "_settings",
        "_trusted",
        "_user_part",
        "decoder",
        "is_plain",
        "peer",
        "started",
        "tls",
    )

    def __init__(
        self,
        frame_size: int,
        *,
        tls: TlsSettings | None = None,
        tls_layer: TlsLayer | None = None,
        trusted_proxies: proxy.Networks = (),
    ) -> None:
        """A server passes its TLS settings; a client that opened a connection with TLS passes the layer."""
        self.decoder = frame.Decoder(frame_size)
        self.peer = ""  # "ip:port" of the client, from the PROXY preamble if there is one
        self.tls = tls_layer
        self.is_plain = tls is None and tls_layer is None  # bytes go to the decoder unchanged
        self._settings = tls
        self._user_part = None if tls is None else tls.user_part
        self._trusted = trusted_proxies
        self._preamble = bytearray()  # the first bytes of a stream that is not recognised yet
        self._is_proxied = False  # the stream began with a PROXY preamble
        self.started: float | None = None  # when the first byte of the unfinished frame, preamble or handshake arrived

    @property
    def is_closed(self) -> bool:
        """The peer has ended TLS."""
        return self.tls is not None and self.tls.closed

    @property
    def user(self) -> str | None:
        """The user that the peer's certificate names, once the handshake is done; None if it names none."""
        return None if self.tls is None or self._user_part is None else self.tls.certificate.user(self._user_part)

    def unwrap(self, data: bytes) -> tuple[bytes, bytes]:
        """The plain bytes of a read, and bytes to send to the peer.

        Raises FrameError, ssl.SSLError, OSError, ValueError if the stream can't continue.
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
        """The bytes after the preamble; None if more bytes are needed."""
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
            self._is_proxied = True  # a second preamble would come from the client itself, to fake its address
            data = data[size:]
            self._preamble = bytearray(data)
            if not data:
                return None
        if data[0] == HANDSHAKE_BYTE:
            if settings.mode is TlsMode.DISABLED:
                raise FrameError("the peer uses TLS, which is disabled on this server (tls.server.mode)")
            self.tls = TlsLayer(settings.server_context, server_side=True)
        elif settings.mode is TlsMode.ENFORCING:
            raise FrameError("the peer uses plain text, but TLS is required on this server (tls.server.mode)")
        else:
            self.is_plain = True
        self._settings = None
        self._preamble.clear()
        return data

    @property
    def has_begun(self) -> bool:
        """Whether a frame, preamble or handshake of the peer is incomplete."""
        return bool(self.decoder.buffered or self._preamble or (self.tls is not None and not self.tls.ready))

    def note(self, now: float, *, whole: bool) -> None:
        """Update the timer after a read; `whole`: the read completed something."""
        begun = self.has_begun
        if whole or not begun:
            self.started = None
        if begun and self.started is None:
            self.started = now

    def unfinished_for(self, now: float) -> float:
        """Seconds since the first byte of the incomplete frame, preamble or handshake; 0 if there is none."""
        return 0.0 if self.started is None else now - self.started

    def forget(self) -> int:
        """The connection is lost. Returns the number of bytes held of an incomplete frame."""
        held = self.decoder.buffered
        self.decoder = frame.Decoder(0)
        return held


def address_of(name: object) -> str:
    """ "ip:port" of a socket name; "" if it is not an IP socket."""
    if not isinstance(name, tuple) or len(name) < 2:
        return ""
    host, port = name[0], name[1]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
