"""What listens beyond loopback without authentication is said at the start, and again by `kourou doctor`."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.access.plain_acl import parse
from kourou.broker.properties import ProcessSettings
from kourou.broker.settings import BrokerSettings
from kourou.cli.doctor import _health
from kourou.nameserver.settings import Settings
from kourou.net.tls import TlsMode, TlsSettings
from kourou.server import exposure
from kourou.server.nameserver import NameServerProcess

PROCESS = ProcessSettings(store_root="store")
STRICT = TlsSettings(TlsMode.ENFORCING, test_mode=False, verify_peer=True, client_auth="require")


def of_broker(
    settings: BrokerSettings, host: str, process: ProcessSettings = PROCESS, tls: TlsSettings | None = None
) -> list[str]:
    return [port.address for port in exposure.of_broker(settings, process, host, 10909, tls)]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost"])
def test_loopback_is_not_open(host: str) -> None:
    assert of_broker(BrokerSettings(), host) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1", "broker.example"])
def test_all_ports_of_a_broker_are_named(host: str) -> None:
    process = replace(PROCESS, metrics_type="PROM")
    expected = [f"{host}:{port}" for port in (10911, 10909, 10912, 5557)]
    assert of_broker(BrokerSettings(), host, process) == expected


def test_what_is_protected_is_not_named() -> None:
    assert of_broker(BrokerSettings(authenticates=True), "::") == ["[::]:10912"]
    assert of_broker(BrokerSettings(ha_allowed_peers="10.0.0.5"), "::", tls=STRICT) == []
    assert of_broker(BrokerSettings(ha_allowed_peers="10.0.0.5"), "::", tls=TlsSettings()) == [
        "[::]:10911",
        "[::]:10909",
    ]
    process = replace(PROCESS, metrics_type="PROM", metrics_host="127.0.0.1")
    assert of_broker(BrokerSettings(authenticates=True, raft=True), "::", process) == []


@pytest.mark.parametrize(
    ("pattern", "is_open"),
    [
        ("*", True),
        ("*.*.*.*", True),
        ("0-255.*.*.*", True),
        ("10.0.0.1,*", True),
        ("10.*", False),
        ("192.168.0.*", False),
        ("10.0.0.{1,2}", False),
    ],
)
def test_accounts_that_trust_every_address_protect_nothing(pattern: str, is_open: bool) -> None:
    account = "accounts:\n- accessKey: account-1\n  secretKey: 12345678\n"
    accounts = parse([("f", f'globalWhiteRemoteAddresses: ["{pattern}"]\n{account}')])
    settings = BrokerSettings(plain_acl=accounts, ha_allowed_peers="10.0.0.5")
    assert of_broker(settings, "10.0.0.1") == (["10.0.0.1:10911", "10.0.0.1:10909"] if is_open else [])
    name_server = Settings(bind_address="10.0.0.1", acl_enable=True)
    found = exposure.of_name_server(name_server, None, accounts)
    assert [port.remedy for port in found] == ([exposure.TRUST_REMEDY] if is_open else [])


def test_it_is_one_line_with_the_remedies(caplog: pytest.LogCaptureFixture) -> None:
    ports = exposure.of_broker(BrokerSettings(), PROCESS, "0.0.0.0", None, None)
    with caplog.at_level(logging.WARNING):
        text = exposure.warn(ports)
        assert exposure.warn([]) == ""
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("OPEN TO THE NETWORK WITHOUT AUTHENTICATION: 0.0.0.0:10911 (clients and administration)")
    assert "initAuthenticationUser" in line
    assert "haAllowedPeers" in line
    (finding,) = _health("broker a (0)", {"kourouOpenPorts": text})
    assert "0.0.0.0:10911" in finding.text


@pytest.mark.parametrize(("host", "ports"), [("127.0.0.1", []), ("::", ["[::]:9876"])])
def test_name_servers(host: str, ports: list[str]) -> None:
    assert [port.address for port in exposure.of_name_server(Settings(bind_address=host), None)] == ports
    assert exposure.of_name_server(Settings(bind_address=host), STRICT) == []


async def test_a_name_server_says_it_at_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def note(settings: Settings, *_: object) -> list[exposure.OpenPort]:
        asked.append(settings.listen_port)
        return []

    monkeypatch.setattr(exposure, "of_name_server", note)
    settings = Settings(listen_port=0, kv_config_path=str(tmp_path / "kv"), config_store_path=str(tmp_path / "conf"))
    async with NameServerProcess(settings) as process:
        assert asked == [process.listener.port]


def test_controllers() -> None:
    def of(host: str, tls: TlsSettings | None = None, *, authenticates: bool = False) -> list[str]:
        found = exposure.of_controller(f"{host}:9877", host, tls, authenticates=authenticates)
        return [port.address for port in found]

    assert of("0.0.0.0") == ["0.0.0.0:9877"]
    assert of("127.0.0.1") == of("0.0.0.0", STRICT) == of("0.0.0.0", authenticates=True) == []
