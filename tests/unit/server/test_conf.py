"""Configuration files and TLS settings."""

import logging
from pathlib import Path

import pytest

from kourou.net.tls import TlsMode
from kourou.server import conf
from kourou.server.conf import ConfError, parse_assignments, read_conf, tls_settings


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
    no_file_of_the_machine.write_text("tls.server.mode=enforcing\n")
    assert tls_settings({}).mode is TlsMode.ENFORCING
    assert tls_settings({"tls.server.mode": "permissive"}).mode is TlsMode.PERMISSIVE


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"tls.server.mode": "on"}, r"tls.server.mode=on: disabled, permissive or enforcing"),
        ({"tls.test.mode.enable": "1"}, r"tls.test.mode.enable=1: true or false"),
        ({"tls.test.mode.enable": "false"}, r"TLS can't be served: .*certPath"),
        ({"tls.server.certPath": "/no/cert", "tls.server.keyPath": "/no/key"}, r"TLS can't be served: .*No such file"),
        ({"tls.config.file": "/no/file"}, r"/no/file can't be read"),
    ],
)
def test_mistakes_are_told_at_the_start(properties: dict[str, str], message: str) -> None:
    with pytest.raises(ConfError, match=message):
        tls_settings(properties)


def test_tls_keys_without_meaning_here_are_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    tls_settings({"tls.protocols": "TLSv1.3", "tls.client.certPath": "x", "tls.server.mode": "permissive"})
    assert "property tls.protocols has no effect in Kourou and is ignored" in caplog.text
    assert "tls.client" not in caplog.text
