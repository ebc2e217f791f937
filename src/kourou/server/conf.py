"""Configuration files, and the TLS settings in them."""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path

from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol import conf_text
from kourou.protocol.errors import KourouError

log = logging.getLogger(__name__)

TLS_CONFIG_FILE = "/etc/rocketmq/tls.properties"
"""Where Apache looks for TLS settings unless `tls.config.file` says otherwise."""


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
    )
)
"""The TLS properties that mean something here."""


_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class ConfError(KourouError):
    """A configuration that can't be used: the message names file, key and remedy."""


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
    """UTF-8, or else Latin-1, as Java reads it. Raises UnicodeDecodeError for what can't be either.

    Comments in another encoding, beside settings in ASCII, are common.
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
    """What a server does about TLS: from the file that `tls.config.file` names, and the properties themselves.

    Without certificates it is Apache's test mode: a made-up certificate, plain text allowed. Raises ConfError.
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
    settings = TlsSettings(
        mode=mode,
        test_mode=_flag(merged, "tls.test.mode.enable", default=not has_certificate),
        cert_path=merged.get("tls.server.certPath"),
        key_path=merged.get("tls.server.keyPath"),
        key_password=merged.get("tls.server.keyPassword"),
        verify_peer=_flag(merged, "tls.server.authClient", default=False),
        trust_path=merged.get("tls.server.trustCertPath"),
        client_auth=merged.get("tls.server.need.client.auth", "none"),
    )
    if mode is not TlsMode.DISABLED and not settings.test_mode:
        try:
            _ = settings.server_context  # a wrong certificate is told now, not to the first client
        except (OSError, ValueError) as error:
            raise ConfError(f"TLS can't be served: {error}") from None
    return settings


def client_tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """TLS of connections that a server opens, from the same places. Raises ConfError."""
    merged = {**_tls_file(properties), **properties}
    verify = _flag(merged, "tls.client.authServer", default=False)
    settings = TlsSettings(
        test_mode=_flag(merged, "tls.test.mode.enable", default=not verify and "tls.client.certPath" not in merged),
        cert_path=merged.get("tls.client.certPath"),
        key_path=merged.get("tls.client.keyPath"),
        key_password=merged.get("tls.client.keyPassword"),
        verify_peer=verify,
        trust_path=merged.get("tls.client.trustCertPath"),
    )
    try:
        _ = settings.client_context
    except (OSError, ValueError) as error:
        raise ConfError(f"TLS to name servers is not possible: {error}") from None
    return settings


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
