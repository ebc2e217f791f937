"""TLS as a layer over bytes: bytes from the peer go in, plain text and bytes to send come out. No sockets here.

A server distinguishes TLS from plain text by the first byte of a connection, so it serves both on one port (Java:
TlsMode). That requires the layer inside the connection, because asyncio's transports decide before the first byte.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from kourou.net.certificates import Certificate, UserPart

HANDSHAKE_BYTE = 0x16
READ_SIZE = 64 * 1024

HANDSHAKE_MAX: Final = 256 * 1024
"""The most bytes of a handshake, including the certificates of the peer."""

WITHOUT_TEXT_MAX: Final = 64 * 1024
"""The most bytes that a peer may send after the handshake without any plain text in them. A record has at most 16 KiB;
more bytes are a flood of records that only cost work, such as those that change keys."""

PROTOCOLS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
"""The supported versions. Older ones are insecure, and no setting enables them."""


class TlsMode(Enum):
    """How a server treats peers with TLS, and peers without."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True)
class TlsSettings:
    """Certificates and options of TLS for one side of a connection. Java: TlsSystemConfig."""

    mode: TlsMode = TlsMode.PERMISSIVE
    test_mode: bool = True  # self-signed certificate made at the start, peers not verified: Apache's default
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    verify_peer: bool = False
    check_host: bool = True  # a verified server's certificate must name the host that was connected to
    trust_path: str | None = None
    client_auth: str = "none"  # whether a server asks clients for certificates: none, optional, require
    user_part: UserPart | None = None  # the part of a client's certificate that names its user; None: no part
    protocols: tuple[str, ...] = ()  # of PROTOCOLS; empty: all of them
    ciphers: str = ""  # for TLS 1.2, as OpenSSL names them; empty: the defaults of Python

    @property
    def files(self) -> list[Path]:
        """The files of certificates and keys."""
        if self.test_mode:
            return []
        return [Path(path) for path in (self.cert_path, self.key_path, self.trust_path) if path]

    @property
    def asks_clients(self) -> bool:
        """Does a server verify the certificates of its clients?"""
        return not self.test_mode and self.verify_peer and self.client_auth.lower() in ("optional", "require")

    def read_again(self) -> None:
        """Read the files again, for new connections.

        Raises OSError, ssl.SSLError, ValueError; nothing has changed then. May be called in any thread.
        """
        fresh = replace(self)
        made = [name for name in ("server_context", "client_context") if name in self.__dict__]
        self.__dict__.update({name: getattr(fresh, name) for name in made})

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        """Created on first use, so that it costs nothing without TLS. Raises OSError, ssl.SSLError."""
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        if self.test_mode:
            _load_made_up_certificate(context)
            return context
        if not self.cert_path or not self.key_path:
            raise FileNotFoundError("TLS needs tls.server.certPath and tls.server.keyPath, or the test mode")
        context.load_cert_chain(self.cert_path, self.key_path, self.key_password or None)
        wanted = self.client_auth.lower()
        if self.asks_clients:
            context.options |= ssl.OP_NO_TICKET  # no tickets: each connection is verified against the current files
            context.num_tickets = 0
            if self.trust_path:
                context.load_verify_locations(self.trust_path)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            context.verify_mode = ssl.CERT_REQUIRED if wanted == "require" else ssl.CERT_OPTIONAL
        elif wanted == "require":
            raise ValueError(
                "tls.server.need.client.auth=require needs tls.server.authClient=true and tls.server.trustCertPath"
            )
        return context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """For outgoing connections. Raises OSError, ssl.SSLError."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        if self.test_mode or not self.verify_peer:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context.check_hostname = self.check_host
            if self.trust_path:
                context.load_verify_locations(self.trust_path)
            else:
                context.load_default_certs()
        if not self.test_mode and self.cert_path and self.key_path:
            context.load_cert_chain(self.cert_path, self.key_path, self.key_password or None)
        return context

    def _context(self, kind: "ssl._SSLMethod") -> ssl.SSLContext:
        """TLS 1.2 and later, without renegotiation. Raises ssl.SSLError, ValueError."""
        context = ssl.SSLContext(kind)
        context.options |= ssl.OP_NO_RENEGOTIATION
        versions = [PROTOCOLS[name] for name in self.protocols or PROTOCOLS]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if self.ciphers:
            context.set_ciphers(self.ciphers)
        return context


def _load_made_up_certificate(context: ssl.SSLContext) -> None:
    """A self-signed certificate for the life of the process: it allows encryption, but proves nothing."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kourou self-signed")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    with TemporaryDirectory() as folder:
        path = Path(folder) / "made-up.pem"
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(path)


class TlsLayer:
    """One connection's TLS. Raises ssl.SSLError for an invalid handshake or record."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_waiting", "_without_text", "closed", "ready")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None) -> None:
        self._without_text = 0  # bytes received since the last plain text
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self._waiting: list[bytes] = []  # plain text that must wait for the handshake
        self.ready = False  # the handshake is done
        self.closed = False  # the peer has ended TLS (close_notify)

    def start(self) -> bytes:
        """A client's first bytes."""
        return self.receive(b"")[1]

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Plain text from the peer, and bytes to send to it. Bytes after its close_notify are ignored."""
        if self.closed:
            return b"", b""
        self._incoming.write(data)
        self._without_text += len(data)
        if not self.ready:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self._check(HANDSHAKE_MAX, "the TLS handshake does not end")
                return b"", self._outgoing.read()
            self.ready = True
            self._without_text = 0
            for text in self._waiting:
                self._object.write(text)
            self._waiting.clear()
        plain = bytearray()
        try:
            while piece := self._object.read(READ_SIZE):
                plain += piece
            self.closed = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed = True
        if plain:
            self._without_text = 0
        elif not self.closed:
            self._check(WITHOUT_TEXT_MAX, "TLS records without plain text")
        return bytes(plain), self._outgoing.read()

    def _check(self, limit: int, what: str) -> None:
        if self._without_text > limit:
            raise ssl.SSLError(f"{what}: {self._without_text} bytes, more than {limit}")

    @property
    def certificate(self) -> Certificate:
        """The verified certificate of the peer; empty if there is none, or before `ready`."""
        return Certificate(self._object.getpeercert() if self.ready else None)

    def send(self, text: bytes) -> bytes:
        """The bytes to send for `text`; none before the end of the handshake."""
        if not self.ready:
            self._waiting.append(text)
            return b""
        if text:
            self._object.write(text)
        return self._outgoing.read()

    def alert(self) -> bytes:
        """OpenSSL's alert for the peer after a failure."""
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """The bytes of our close_notify."""
        if not self.ready:
            return b""
        with suppress(ssl.SSLError):  # raised because the peer's close_notify is missing, for which we do not wait
            self._object.unwrap()
        return self._outgoing.read()
