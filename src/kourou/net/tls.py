"""TLS as a layer of bytes: what came from the peer in, plain text and bytes to send out. No sockets here.

A server tells TLS from plain text by the first byte of a connection, so both are served on one port (Java: TlsMode).
That needs the layer inside the connection rather than in asyncio's transports, which decide before the first byte.
"""

import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

HANDSHAKE_BYTE = 0x16
READ_SIZE = 64 * 1024


class TlsMode(Enum):
    """What a server does with a peer that speaks TLS, and with one that does not."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


@dataclass(frozen=True)
class TlsSettings:
    """Where certificates are, for the side that uses these settings. Java: TlsSystemConfig."""

    mode: TlsMode = TlsMode.PERMISSIVE
    test_mode: bool = True  # a certificate made up at start, peers not verified: Apache's default
    cert_path: str | None = None
    key_path: str | None = None
    key_password: str | None = None
    verify_peer: bool = False
    trust_path: str | None = None
    client_auth: str = "none"  # what a server asks of clients: none, optional, require

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        """Built on first use: a server that never meets TLS pays nothing for it. Raises OSError, ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.test_mode:
            _load_made_up_certificate(context)
            return context
        if not self.cert_path or not self.key_path:
            raise FileNotFoundError("TLS without test mode needs tls.server.certPath and tls.server.keyPath")
        context.load_cert_chain(self.cert_path, self.key_path, self.key_password or None)
        wanted = self.client_auth.lower()
        if wanted in ("optional", "require") and self.verify_peer:
            if self.trust_path:
                context.load_verify_locations(self.trust_path)
            else:
                context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
            context.verify_mode = ssl.CERT_REQUIRED if wanted == "require" else ssl.CERT_OPTIONAL
        elif wanted == "require":
            raise ValueError("tls.server.need.client.auth=require needs tls.server.authClient=true and a trustCertPath")
        return context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """For connections that we open. Raises OSError, ssl.SSLError."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.test_mode or not self.verify_peer:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif self.trust_path:
            context.load_verify_locations(self.trust_path)
        else:
            context.load_default_certs()
        if not self.test_mode and self.cert_path and self.key_path:
            context.load_cert_chain(self.cert_path, self.key_path, self.key_password or None)
        return context


def _load_made_up_certificate(context: ssl.SSLContext) -> None:
    """A self-signed certificate for one process life: it encrypts, and proves nothing."""
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
    """One connection's TLS. Raises ssl.SSLError for a handshake or a record that does not hold."""

    __slots__ = ("_incoming", "_object", "_outgoing", "_waiting", "closed", "ready")

    def __init__(self, context: ssl.SSLContext, *, server_side: bool, server_hostname: str | None = None) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self._waiting: list[bytes] = []  # plain text that must wait for the handshake
        self.ready = False  # the handshake is done
        self.closed = False  # the peer has said goodbye

    def start(self) -> bytes:
        """A client's first bytes."""
        return self.receive(b"")[1]

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Plain text from the peer, and bytes that are to be sent to it. After its goodbye nothing counts any more."""
        if self.closed:
            return b"", b""
        self._incoming.write(data)
        if not self.ready:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                return b"", self._outgoing.read()
            self.ready = True
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
        return bytes(plain), self._outgoing.read()

    def send(self, text: bytes) -> bytes:
        """Bytes that carry `text`; none while the handshake is under way."""
        if not self.ready:
            self._waiting.append(text)
            return b""
        if text:
            self._object.write(text)
        return self._outgoing.read()

    def alert(self) -> bytes:
        """What OpenSSL wants to tell the peer about a failure."""
        return self._outgoing.read()

    def goodbye(self) -> bytes:
        """The closing bytes."""
        if not self.ready:
            return b""
        with suppress(ssl.SSLError):  # it says that the peer's own goodbye is missing, which is not waited for
            self._object.unwrap()
        return self._outgoing.read()
