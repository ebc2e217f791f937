"""Configuration files, and the TLS settings in them."""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path

from kourou.net.certificates import UserPart
from kourou.net.tls import PROTOCOLS, TlsMode, TlsSettings
from kourou.protocol import conf_text
from kourou.protocol.errors import KourouError

log = logging.getLogger(__name__)

TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"
"""Where Apache looks for TLS settings unless `tls.config.file` names another file."""


TLS_KEYS = frozenset(
    (
        "tls.config.file",
        "tls.server.mode",
        "tls.test.mode.enable",
        "tls.server.certPath",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.authClient",
        "tls.server.trustCertPath",
        "tls.server.need.client.auth",
        "tls.server.clientUser",
        "tls.enable",
        "tls.protocols",
        "tls.ciphers",
    )
)
"""The TLS properties that have an effect."""


_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class ConfError(KourouError):
    """An invalid configuration: the message names the file, the key and the remedy."""


class AddressError(ConfError):
    """An address that can't be listened on."""

    def __init__(self, address: str, error: Exception, remedy: str) -> None:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        self.problem = f"can't listen on {address}: {'the port is in use' if taken else error}"
        super().__init__(f"{self.problem}. {remedy}")


def read_conf(path: Path) -> dict[str, str]:
    """The properties of a file. Raises ConfError."""
    try:
        return conf_text.loads(_text(path.read_bytes()))
    except OSError as error:
        raise ConfError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfError(f"{path} is not UTF-8 text: {error}") from None
    except KourouError as error:
        raise ConfError(f"{path}: {error}") from None


def _text(data: bytes) -> str:
    """UTF-8, or else Latin-1, as Java reads it. Raises UnicodeDecodeError for other encodings.

    Files with settings in ASCII and comments in another encoding are common.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        if data.startswith(_UTF_16_MARKS) or b"\0" in data:
            raise
        return data.decode("latin-1")


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """`key=value` words of a command line. Raises ConfError."""
    found: dict[str, str] = {}
    for word in assignments:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ConfError(f"--set {word}: key=value is expected")
        found[key.strip()] = value.strip()
    return found


def tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """The TLS settings of a server, from the file in `tls.config.file` and from the properties themselves.

    Without certificates this is Apache's test mode: a self-signed certificate, plain text allowed. Raises ConfError.
    """
    merged = {**_tls_file(properties), **{key: v for key, v in properties.items() if key.startswith("tls.")}}
    for key in merged:
        if key.startswith("tls.") and not key.startswith("tls.client.") and key not in TLS_KEYS:
            log.warning("property %s has no effect in Kourou and is ignored", key)
    word = merged.get("tls.server.mode", TlsMode.PERMISSIVE.value).lower()
    try:
        mode = TlsMode(word)
    except ValueError:
        raise ConfError(f"tls.server.mode={word}: disabled, permissive or enforcing is expected") from None
    has_certificate = "tls.server.certPath" in merged or "tls.server.keyPath" in merged
    client_auth = merged.get("tls.server.need.client.auth", "none")
    if client_auth.lower() not in ("none", "optional", "require"):
        raise ConfError(f"tls.server.need.client.auth={client_auth}: none, optional or require is expected")
    settings = TlsSettings(
        mode=mode,
        test_mode=_flag(merged, "tls.test.mode.enable", default=not has_certificate),
        cert_path=merged.get("tls.server.certPath"),
        key_path=merged.get("tls.server.keyPath"),
        key_password=merged.get("tls.server.keyPassword"),
        verify_peer=_flag(merged, "tls.server.authClient", default=False),
        trust_path=merged.get("tls.server.trustCertPath"),
        client_auth=client_auth,
        user_part=_user_part(merged),
        protocols=_protocols(merged),
        ciphers=_ciphers(merged),
    )
    if mode is TlsMode.ENFORCING and settings.test_mode:
        raise ConfError(
            "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath, without "
            "tls.test.mode.enable=true: the self-signed certificate of the test mode proves nothing"
        )
    if settings.user_part is not None and (mode is TlsMode.DISABLED or not settings.asks_clients):
        raise ConfError(
            "tls.server.clientUser needs verified certificates of clients: set tls.server.certPath, "
            "tls.server.keyPath, tls.server.need.client.auth, tls.server.authClient=true and tls.server.trustCertPath"
        )
    if mode is not TlsMode.DISABLED:
        try:
            if not settings.test_mode:
                _ = settings.server_context  # report a wrong certificate now, not to the first client
            elif settings.ciphers:
                _ = settings.client_context  # and wrong ciphers
        except (OSError, ValueError) as error:
            raise ConfError(f"the TLS settings of the server are invalid: {error}") from None
    return settings


def _user_part(properties: Mapping[str, str]) -> UserPart | None:
    text = properties.get("tls.server.clientUser", "none")
    if text.lower() == "none":
        return None
    for part in UserPart:
        if part.value.lower() == text.lower():
            return part
    words = ", ".join(part.value for part in UserPart)
    raise ConfError(f"tls.server.clientUser={text}: none or one of {words} is expected")


def _protocols(properties: Mapping[str, str]) -> tuple[str, ...]:
    """The supported protocols in tls.protocols."""
    words = [word.strip() for word in properties.get("tls.protocols", "").split(",") if word.strip()]
    found = tuple(word for word in words if word in PROTOCOLS)
    if words and not found:
        raise ConfError(f"tls.protocols={','.join(words)}: {' or '.join(PROTOCOLS)} is expected")
    for word in words:
        if word not in PROTOCOLS:
            log.warning("tls.protocols has %s, which is ignored: use %s", word, ", ".join(PROTOCOLS))
    return found


def _ciphers(properties: Mapping[str, str]) -> str:
    """The ciphers for OpenSSL. Java's names, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, are translated."""
    words = [word.strip() for word in properties.get("tls.ciphers", "").replace(":", ",").split(",") if word.strip()]
    return ":".join(_cipher(word) for word in words)


def _cipher(name: str) -> str:
    if not name.startswith("TLS_") or "_WITH_" not in name:
        return name
    exchange, _, rest = name.removeprefix("TLS_").partition("_WITH_")
    rest = rest.replace("AES_", "AES").replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    words = rest if exchange == "RSA" else f"{exchange}_{rest}"
    return words.replace("_", "-")


def client_tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """The TLS settings of connections that a server opens, from the same sources. Raises ConfError."""
    merged = {**_tls_file(properties), **properties}
    verify = _flag(merged, "tls.client.authServer", default=False)
    settings = TlsSettings(
        test_mode=_flag(merged, "tls.test.mode.enable", default=not verify and "tls.client.certPath" not in merged),
        cert_path=merged.get("tls.client.certPath"),
        key_path=merged.get("tls.client.keyPath"),
        key_password=merged.get("tls.client.keyPassword"),
        verify_peer=verify,
        trust_path=merged.get("tls.client.trustCertPath"),
        protocols=_protocols(merged),
        ciphers=_ciphers(merged),
    )
    try:
        _ = settings.client_context
    except (OSError, ValueError) as error:
        raise ConfError(f"the TLS settings for connections to other servers are invalid: {error}") from None
    return settings


def outgoing_tls_settings(properties: Mapping[str, str], *, wanted: bool) -> TlsSettings | None:
    """The same if `wanted` or tls.enable=true; None: connections are opened in plain text. Raises ConfError."""
    merged = {**_tls_file(properties), **properties}
    return client_tls_settings(properties) if _flag(merged, "tls.enable", default=wanted) else None


def _tls_file(properties: Mapping[str, str]) -> dict[str, str]:
    named = properties.get("tls.config.file")
    path = Path(named or TLS_CONFIG_FILE)
    if named is None and not path.is_file():
        return {}
    return read_conf(path)


def _flag(properties: Mapping[str, str], key: str, *, default: bool) -> bool:
    text = properties.get(key)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ConfError(f"{key}={text}: true or false is expected")
    return text.lower() == "true"
