"""Ports that other machines can reach without authentication: one warning at the start, with the remedy.

`kourou run` with several processes repeats the warnings of its members, whose logs are in files. `kourou doctor`
repeats them, too: brokers report these ports in their runtime information, as `kourouOpenPorts`.
"""

import ipaddress
import logging
from collections.abc import Iterable
from typing import NamedTuple

from kourou.access.plain_acl import PlainAcl
from kourou.broker.properties import ProcessSettings
from kourou.broker.settings import BrokerSettings
from kourou.nameserver.settings import Settings as NameServerSettings
from kourou.net.tls import TlsMode, TlsSettings

log = logging.getLogger(__name__)

TRUST_REMEDY = "remove the pattern for all addresses from globalWhiteRemoteAddresses in plain_acl.yml"
ACCESS_REMEDY = "set authenticationEnabled, authorizationEnabled and initAuthenticationUser"


class OpenPort(NamedTuple):
    """A port that other machines can reach without authentication."""

    address: str
    users: str
    """The users of the port."""
    remedy: str


def is_loopback(host: str) -> bool:
    """Can only this machine reach a port that listens on this host?"""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def asks_for_certificates(tls: TlsSettings | None) -> bool:
    """Does every client need a verified certificate?"""
    return (
        tls is not None
        and tls.mode is TlsMode.ENFORCING
        and not tls.test_mode
        and tls.verify_peer
        and tls.client_auth.lower() == "require"
    )


def is_protected(accounts: PlainAcl | None) -> bool:
    """Do the accounts of plain_acl.yml protect a port? Not if they trust every address."""
    return accounts is not None and not accounts.trusts_everybody


def of_broker(
    settings: BrokerSettings, process: ProcessSettings, host: str, fast_port: int | None, tls: TlsSettings | None
) -> list[OpenPort]:
    """The open ports of a broker that listens on `host`."""
    found: list[OpenPort] = []
    if not is_loopback(host):
        accounts = settings.plain_acl
        if not (settings.authenticates or is_protected(accounts) or asks_for_certificates(tls)):
            remedy = ACCESS_REMEDY if accounts is None else TRUST_REMEDY
            found.append(OpenPort(_address(host, settings.port), "clients and administration", remedy))
            if fast_port is not None:
                found.append(OpenPort(_address(host, fast_port), "clients and administration", remedy))
        is_proved = process.ha_secret_file or process.ha_tls_mode == TlsMode.ENFORCING.value
        if not settings.raft and not settings.ha_allowed_peers and not is_proved:
            remedy = "set haAllowedPeers to their addresses, or haSecretFile or haTlsMode=enforcing on all of them"
            found.append(OpenPort(_address(host, settings.ha_port), "slaves", remedy))
    metrics_host = process.metrics_host or host
    if process.metrics_type == "PROM" and not is_loopback(metrics_host):
        remedy = "set metricsPromExporterHost=127.0.0.1"
        found.append(OpenPort(_address(metrics_host, process.metrics_port), "metrics", remedy))
    return found


def of_controller(address: str, host: str, tls: TlsSettings | None, *, authenticates: bool) -> list[OpenPort]:
    """The same of a controller that listens on `host`."""
    if is_loopback(host) or authenticates or asks_for_certificates(tls):
        return []
    remedy = "set authenticationEnabled and innerClientAuthenticationCredentials"
    return [OpenPort(address, "brokers; any machine can influence elections", remedy)]


def of_name_server(
    settings: NameServerSettings, tls: TlsSettings | None, accounts: PlainAcl | None = None
) -> list[OpenPort]:
    """The open port of a name server. `accounts` of plain_acl.yml are used with `aclEnable`."""
    trusts_all = settings.acl_enable and accounts is not None and accounts.trusts_everybody
    is_guarded = settings.authentication_enabled or (settings.acl_enable and not trusts_all)
    if is_loopback(settings.bind_address) or is_guarded or asks_for_certificates(tls):
        return []
    address = _address(settings.bind_address, settings.listen_port)
    return [OpenPort(address, "brokers, clients and administration", TRUST_REMEDY if trusts_all else ACCESS_REMEDY)]


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def warn(ports: Iterable[OpenPort]) -> str:
    """Logs these ports in one line; returns them in the form of `kourouOpenPorts`."""
    found = list(ports)
    text = ", ".join(f"{port.address} ({port.users})" for port in found)
    if found:
        remedies = "; ".join(dict.fromkeys(port.remedy for port in found))
        log.warning(
            "OPEN TO THE NETWORK WITHOUT AUTHENTICATION: %s. Any machine that reaches these ports may use them: %s; or "
            "listen only on 127.0.0.1. See docs/security.md for details",
            text,
            remedies,
        )
    return text
