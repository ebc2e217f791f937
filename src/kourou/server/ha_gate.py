"""The checks of a connection to the HA port, a Raft group or a controller before the machine gets its bytes.

TLS, and the secret:

    bytes ─▶ (TLS) ─▶ (certificate: one of haAllowedNames) ─▶ (greeting with the secret) ─▶ the machine

If none of these is configured, a connection is open at once, as Apache's brokers expect. No sockets here.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kourou.broker.properties import ProcessSettings
from kourou.broker.property_values import tls_mode
from kourou.net.tls import HANDSHAKE_BYTE, TlsLayer, TlsMode, TlsSettings
from kourou.protocol.errors import ProtocolError
from kourou.replication.secret import NONCE_SIZE, Greeting
from kourou.server.access_files import read_text
from kourou.server.conf import ConfError

SECRET_MIN: Final = 16
"""The fewest bytes of a secret. It should be random, because an eavesdropper of a greeting can guess it offline."""


@dataclass(frozen=True)
class PeerSecurity:
    """How brokers authenticate each other."""

    mode: TlsMode = TlsMode.DISABLED
    tls: TlsSettings | None = None  # for connections to this broker; None without TLS
    outgoing: TlsSettings | None = None  # for connections that it opens
    names: frozenset[str] = frozenset()  # one of these must be in a peer's certificate; empty: any name
    secret: bytes | None = None

    @property
    def is_off(self) -> bool:
        return self.mode is TlsMode.DISABLED and self.secret is None


OPEN: Final = PeerSecurity()


def peer_security(process: ProcessSettings, tls: TlsSettings | None) -> PeerSecurity:
    """The security settings from properties. The broker's certificate is used in both directions. Raises ConfError."""
    mode = TlsMode(process.ha_tls_mode)
    secret = _secret(process.ha_secret_file) if process.ha_secret_file else None
    names = frozenset(word.strip() for word in process.ha_allowed_names.split(",") if word.strip())
    if mode is TlsMode.DISABLED:
        if names:
            raise ConfError("haAllowedNames needs certificates: also set haTlsMode=enforcing")
        return PeerSecurity(secret=secret)
    if tls is None or tls.test_mode or not (tls.cert_path and tls.key_path and tls.trust_path):
        raise ConfError(
            f"haTlsMode={mode.value} needs tls.server.certPath, tls.server.keyPath and tls.server.trustCertPath: "
            "brokers verify each other's certificates"
        )
    incoming = replace(tls, verify_peer=True, client_auth="require", user_part=None)
    outgoing = replace(incoming, check_host=not names)
    try:
        _ = incoming.server_context, outgoing.client_context
    except (OSError, ValueError) as error:
        raise ConfError(f"TLS between brokers can't be configured: {error}") from None
    return PeerSecurity(mode, incoming, outgoing, names, secret)


def controller_security(properties: Mapping[str, str], tls: TlsSettings | None) -> PeerSecurity:
    """The same for the connections between controllers. Raises ConfError."""
    mode = properties.get("haTlsMode", "disabled").strip()
    try:
        mode = tls_mode(mode)
    except ValueError as error:
        raise ConfError(f"haTlsMode={mode}: {error}") from None
    names, path = (properties.get(name, "").strip() for name in ("haAllowedNames", "haSecretFile"))
    return peer_security(ProcessSettings(ha_tls_mode=mode, ha_allowed_names=names, ha_secret_file=path), tls)


def _secret(path: str) -> bytes:
    secret = read_text(Path(path)).strip().encode()
    if len(secret) < SECRET_MIN:
        raise ConfError(
            f"haSecretFile={path}: a secret needs at least {SECRET_MIN} bytes; make one with: openssl rand -base64 32"
        )
    return secret


class Gate:
    """The checks of one connection. `is_open` after all have passed; then `receive` and `send` only wrap and unwrap."""

    def __init__(
        self,
        security: PeerSecurity,
        purpose: str,
        host: str | None = None,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`host`: this broker has connected to it; None: a peer has connected to this broker."""
        self._security = security
        self._is_caller = host is not None
        self._layer: TlsLayer | None = None
        self._is_known = True  # whether the stream uses TLS
        if self._is_caller and security.mode is TlsMode.ENFORCING:
            assert security.outgoing is not None
            self._layer = TlsLayer(security.outgoing.client_context, server_side=False, server_hostname=host)
        elif not self._is_caller:
            self._is_known = security.is_off
        self._greeting: Greeting | None = None
        if security.secret is not None:
            nonce = random(NONCE_SIZE)
            self._greeting = Greeting(security.secret, purpose, nonce, is_caller=self._is_caller)
        self._is_checked = False  # the certificate
        self.is_open = self._layer is None and self._greeting is None and self._is_known

    @property
    def is_transparent(self) -> bool:
        """Do bytes pass unchanged?"""
        return self.is_open and self._layer is None

    def start(self) -> bytes:
        """The first bytes of a caller."""
        if self._layer is not None:
            return self._layer.start()
        return self._greeting.start() if self._greeting is not None else b""

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """Bytes for the machine, and bytes to send. Raises ProtocolError, ssl.SSLError if the peer is refused."""
        if not self._is_known and data:
            self._recognise(data[0] == HANDSHAKE_BYTE)
        answer = b""
        if self._layer is not None:
            data, answer = self._layer.receive(data)
            if not self._layer.ready:
                return b"", answer
            if not self._is_checked:
                answer += self._check_certificate()
        if self._greeting is not None and (data or self.is_open):
            data, more = self._greeting.receive(data)
            answer += self.send(more) if more else b""
            if self._greeting.is_over:
                self._greeting = None
        self.is_open = self._is_known and self._greeting is None
        return data, answer

    def send(self, data: bytes) -> bytes:
        """The bytes to send for this data."""
        return data if self._layer is None else self._layer.send(data)

    def alert(self) -> bytes:
        """The bytes to send to a refused peer."""
        return b"" if self._layer is None else self._layer.alert()

    @property
    def is_closed(self) -> bool:
        """The peer has ended TLS."""
        return self._layer is not None and self._layer.closed

    def _recognise(self, is_tls: bool) -> None:
        mode = self._security.mode
        if is_tls and mode is TlsMode.DISABLED:
            raise ProtocolError("it uses TLS, which is disabled on this broker (haTlsMode)")
        if not is_tls and mode is TlsMode.ENFORCING:
            raise ProtocolError("it uses plain text, but this broker requires TLS (haTlsMode)")
        if is_tls:
            assert self._security.tls is not None
            self._layer = TlsLayer(self._security.tls.server_context, server_side=True)
        self._is_known = True

    def _check_certificate(self) -> bytes:
        """Check the peer's certificate after the handshake. Returns the first bytes of a caller's greeting, if any."""
        assert self._layer is not None
        self._is_checked = True
        names = self._layer.certificate.names
        if self._security.names and not names & self._security.names:
            raise ProtocolError("its certificate has none of the names in haAllowedNames")
        if self._is_caller and self._greeting is not None:
            return self._layer.send(self._greeting.start())
        return b""
