"""Configuration files and TLS settings."""

import logging
from pathlib import Path

import pytest
from tests.authority import Authority

from kourou.net.certificates import UserPart
from kourou.net.tls import TlsMode
from kourou.server import conf
from kourou.server.conf import ConfError, outgoing_tls_settings, parse_assignments, read_conf, tls_settings


@pytest.fixture(autouse=True)
def no_file_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The machine that runs the tests may have TLS settings."""
    monkeypatch.setattr(conf, "TLS_CONFIG_FILE", str(tmp_path / "tls.properties"))
    return tmp_path / "tls.properties"


def test_assignments() -> None:
    assert parse_assignments([]) == {}
    assert parse_assignments(["a=1", " b = 2 = 3 ", "c="]) == {"a": "1", "b": "2 = 3", "c": ""}
    for word in ("a", "=1", " =1"):
        with pytest.raises(ConfError, match="key=value is expected"):
            parse_assignments([word])


def test_files(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a = 1\n# b=2\nc:\\u00e9\n", encoding="utf-8")
    assert read_conf(tmp_path / "f") == {"a": "1", "c": "é"}
    (tmp_path / "f").write_bytes("# 集群\na=1\n".encode("gbk"))
    assert read_conf(tmp_path / "f") == {"a": "1"}, "Java does not mind either"
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa=1\r\n")
    assert read_conf(tmp_path / "f") == {"a": "1"}
    with pytest.raises(ConfError, match="can't be read: Is a directory"):
        read_conf(tmp_path)


def test_without_certificates_it_is_test_mode() -> None:
    settings = tls_settings({"listenPort": "1"})
    assert (settings.mode, settings.test_mode) == (TlsMode.PERMISSIVE, True)
    assert tls_settings({"tls.server.mode": "Disabled"}).mode is TlsMode.DISABLED


def test_apaches_own_place_is_looked_at(no_file_of_the_machine: Path) -> None:
    no_file_of_the_machine.write_text("tls.server.mode=disabled\n")
    assert tls_settings({}).mode is TlsMode.DISABLED
    assert tls_settings({"tls.server.mode": "permissive"}).mode is TlsMode.PERMISSIVE


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"tls.server.mode": "on"}, r"tls.server.mode=on: disabled, permissive or enforcing"),
        ({"tls.test.mode.enable": "1"}, r"tls.test.mode.enable=1: true or false"),
        ({"tls.test.mode.enable": "false"}, r"the TLS settings of the server are invalid: .*certPath"),
        (
            {"tls.server.certPath": "/no/cert", "tls.server.keyPath": "/no/key"},
            r"the TLS settings of the server are invalid: .*No such file",
        ),
        ({"tls.config.file": "/no/file"}, r"/no/file can't be read"),
        ({"tls.server.mode": "enforcing"}, r"tls.server.mode=enforcing needs tls.server.certPath"),
        ({"tls.server.mode": "enforcing", "tls.test.mode.enable": "true"}, r"enforcing needs tls.server.certPath"),
        ({"tls.server.need.client.auth": "requre"}, r"need.client.auth=requre: none, optional or require"),
        ({"tls.server.clientUser": "uid"}, r"clientUser=uid: none or one of commonName, dns, uri, email"),
        ({"tls.server.clientUser": "commonName"}, r"clientUser needs verified certificates of clients"),
        ({"tls.protocols": "SSLv3,TLSv1"}, r"tls.protocols=SSLv3,TLSv1: TLSv1.2 or TLSv1.3 is expected"),
        ({"tls.ciphers": "ROT13"}, r"the TLS settings of the server are invalid: .*No cipher can be selected"),
    ],
)
def test_mistakes_are_told_at_the_start(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfError, match=message):
        tls_settings(properties)


def test_tls_keys_without_meaning_here_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tls_settings({"tls.provider": "OPENSSL", "tls.client.certPath": "x", "tls.server.mode": "permissive"})
    assert "property tls.provider has no effect in Kourou and is ignored" in caplog.text
    assert "tls.client" not in caplog.text


def test_versions_and_ciphers_by_javas_names(caplog: pytest.LogCaptureFixture) -> None:
    names = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_RSA_WITH_AES_256_GCM_SHA384,ECDHE-RSA-CHACHA20-POLY1305"
    settings = tls_settings({"tls.protocols": "TLSv1.1,TLSv1.2", "tls.ciphers": names})
    assert settings.protocols == ("TLSv1.2",)
    assert "tls.protocols has TLSv1.1, which is ignored" in caplog.text
    assert settings.ciphers == "ECDHE-RSA-AES128-GCM-SHA256:AES256-GCM-SHA384:ECDHE-RSA-CHACHA20-POLY1305"
    offered = {cipher["name"] for cipher in settings.server_context.get_ciphers() if cipher["protocol"] != "TLSv1.3"}
    assert offered == set(settings.ciphers.split(":"))


def test_the_user_of_a_certificate(tmp_path: Path) -> None:
    properties = Authority(tmp_path / "ca", "ours").server_properties()
    settings = tls_settings({**properties, "tls.server.clientUser": "CommonName", "tls.server.mode": "enforcing"})
    assert settings.user_part is UserPart.COMMON_NAME
    assert tls_settings(properties).user_part is None


def test_connections_that_a_server_opens() -> None:
    assert outgoing_tls_settings({}, wanted=False) is None
    assert outgoing_tls_settings({}, wanted=True) is not None
    assert outgoing_tls_settings({"tls.enable": "true"}, wanted=False) is not None
