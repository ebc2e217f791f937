"""Certificates in a running broker: they are read again when they change, and they name users."""

import asyncio
import errno
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.unit.broker.asking import request, send
from tests.unit.net.peers import eventually
from tests.unit.server.groups import broker

from kourou.net.client import connect
from kourou.net.errors import ConnectFailedError, TransportError
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.signing import Credentials
from kourou.server import certificate_watch
from kourou.server.broker import BrokerProcess
from kourou.server.conf import client_tls_settings, tls_settings

PATIENCE = 30.0
OK, DENIED = 0, 16
ROOT = Credentials("root", "12345678")


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_INTERVAL", 0.02)
    monkeypatch.setattr(certificate_watch, "SETTLE_TIME", 0.02)


def trusting(authority: Authority) -> TlsSettings:
    return TlsSettings(test_mode=False, verify_peer=True, trust_path=authority.path)


async def reaches(process: BrokerProcess, tls: TlsSettings) -> bool:
    try:
        connection = await connect("127.0.0.1", process.listener.port, tls=tls)
    except ConnectFailedError:
        return False
    try:
        return (await connection.request(request(RequestCode.GET_BROKER_RUNTIME_INFO), PATIENCE)).code == OK
    finally:
        connection.close()


async def test_a_certificate_is_replaced_while_the_broker_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="kourou")
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    settings = replace(old.settings("server"), mode=TlsMode.ENFORCING)
    files = {"cert_path": settings.cert_path or "", "key_path": settings.key_path or ""}
    async with broker(tmp_path / "b", [], settings) as process:
        assert await reaches(process, trusting(old))
        Path(files["key_path"]).write_text("no key")
        await eventually(lambda: "invalid certificates; the last valid ones stay in use" in caplog.text)
        assert await reaches(process, trusting(old))
        for name, path in new.issue("server").items():
            Path(path).replace(files[name])
        await eventually(lambda: "certificates reloaded" in caplog.text)
        assert await reaches(process, trusting(new))
        assert not await reaches(process, trusting(old))


async def test_a_certificate_that_could_not_be_opened_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files do not change again when the system recovers."""
    caplog.set_level(logging.INFO, logger="kourou")
    settings = Authority(tmp_path / "old", "old").settings("server")
    tries = 0

    def refuse(_: TlsSettings) -> None:
        nonlocal tries
        tries += 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    watch = certificate_watch.CertificateWatch([settings])
    watch.start()
    with monkeypatch.context() as failing:
        failing.setattr(TlsSettings, "read_again", refuse)
        Path(settings.cert_path or "").touch()
        await eventually(lambda: tries > 3)
    await eventually(lambda: "certificates reloaded" in caplog.text)
    watch.stop()
    assert caplog.text.count("this is retried") == 1


async def test_nothing_is_watched_without_files(tmp_path: Path) -> None:
    async with broker(tmp_path / "b", []) as process:
        assert await reaches(process, TlsSettings())
    watch = certificate_watch.CertificateWatch([None, TlsSettings()])
    watch.start()
    watch.stop()
    assert len(asyncio.all_tasks()) == 1


# ── Users ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def guarded(tmp_path: Path, authority: Authority) -> AsyncIterator[BrokerProcess]:
    tls = tls_settings(
        {**authority.server_properties(), "tls.server.mode": "enforcing", "tls.server.clientUser": "commonName"}
    )
    given: dict[str, Any] = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": '{"username":"root","password":"12345678"}',
    }
    async with broker(tmp_path / "b", [], tls, **given) as process:
        root = client_tls_settings(authority.client_properties("root"))
        user = b'{"username":"billing","password":"never used"}'
        acl = (
            b'{"subject":"User:billing","policies":[{"policyType":"Custom","entries":'
            b'[{"resource":"Topic:orders","actions":["Pub"],"decision":"Allow"}]}]}'
        )
        create = Command(RequestCode.AUTH_CREATE_USER, body=user, ext={"username": "billing"})
        allow = Command(RequestCode.AUTH_CREATE_ACL, body=acl, ext={"subject": "User:billing"})
        assert await asked(process, root, create, allow) == [OK, OK]
        yield process


async def asked(process: BrokerProcess, tls: TlsSettings, *commands: Command) -> list[int]:
    connection = await connect("127.0.0.1", process.listener.port, tls=tls)
    try:
        return [(await connection.request(command, PATIENCE)).code for command in commands]
    finally:
        connection.close()


def signed(command: Command, credentials: Credentials) -> Command:
    credentials.sign(command)
    return command


async def test_a_certificate_is_as_good_as_a_signature(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ours")
    async with guarded(tmp_path, authority) as process:
        billing = client_tls_settings(authority.client_properties("billing"))
        to_orders, to_others = send(b"x"), send(b"x", topic="others")
        assert await asked(process, billing, to_orders, to_orders, to_others) == [OK, OK, DENIED]
        stranger = client_tls_settings(authority.client_properties("stranger"))
        assert await asked(process, stranger, send(b"x")) == [DENIED], "a certificate whose name is no user"
        change = b'{"username":"billing","userStatus":"disable"}'
        disable = Command(RequestCode.AUTH_UPDATE_USER, body=change, ext={"username": "billing"})
        root = client_tls_settings(authority.client_properties("root"))
        connection = await connect("127.0.0.1", process.listener.port, tls=billing)
        assert (await connection.request(send(b"x"), PATIENCE)).code == OK
        assert await asked(process, root, disable) == [OK]
        assert (await connection.request(send(b"x"), PATIENCE)).code == DENIED, "at once, on open connections"
        connection.close()


async def test_a_signature_counts_more_than_a_certificate(tmp_path: Path) -> None:
    """A proxy represents many clients: the signer is the sender, and a certificate does not repair a signature."""
    authority = Authority(tmp_path / "ca", "ours")
    async with guarded(tmp_path, authority) as process:
        billing = client_tls_settings(authority.client_properties("billing"))
        right, wrong = signed(send(b"x", topic="others"), ROOT), signed(send(b"x"), Credentials("root", "87654321"))
        assert await asked(process, billing, right, wrong) == [OK, DENIED]


async def test_without_a_certificate_nobody_is_served(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca", "ours")
    async with guarded(tmp_path, authority) as process:
        assert not await reaches_at_all(process, trusting(authority))
        elsewhere = Authority(tmp_path / "other", "theirs")
        forged = replace(elsewhere.settings("root"), verify_peer=True, trust_path=authority.path)
        assert not await reaches_at_all(process, forged)


async def reaches_at_all(process: BrokerProcess, tls: TlsSettings) -> bool:
    """With TLS 1.3 a client learns only after its own handshake that the server does not want it."""
    try:
        await asked(process, tls, request(RequestCode.GET_BROKER_RUNTIME_INFO))
    except TransportError:
        return False
    return True
