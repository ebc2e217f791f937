"""Brokers that authenticate each other: replication and Raft over TLS, with a secret, and forged peers."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.unit.broker.asking import send
from tests.unit.net.peers import eventually
from tests.unit.server.groups import broker, name_server

from kourou.broker.properties import ProcessSettings
from kourou.net.client import connect
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol.errors import ProtocolError
from kourou.replication.frames import encode_report
from kourou.replication.secret import MAGIC, NONCE_SIZE, Greeting
from kourou.server import ha
from kourou.server.broker import BrokerProcess
from kourou.server.conf import ConfError, tls_settings
from kourou.server.ha_gate import peer_security

PATIENCE = 30.0
SLAVE = {"brokerRole": "SLAVE", "brokerId": 1}
SECRET = "a secret of sixteen bytes or more"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca") / "ours", "ours")


@pytest.fixture(scope="module")
def tls(authority: Authority) -> TlsSettings:
    return tls_settings(authority.server_properties("brokers.example"))


@pytest.fixture
def secret_file(tmp_path: Path) -> str:
    path = tmp_path / "peers.secret"
    path.write_text(f"{SECRET}\n")
    return str(path)


def given(kind: str, secret_file: str) -> dict[str, object]:
    properties: dict[str, object] = {}
    if "tls" in kind:
        properties["haTlsMode"] = "enforcing"
    if "names" in kind:
        properties["haAllowedNames"] = "brokers.example, other.example"
    if "secret" in kind:
        properties["haSecretFile"] = secret_file
    return properties


async def sent(process: BrokerProcess, count: int, size: int = 1_000) -> None:
    connection = await connect("127.0.0.1", process.listener.port)
    try:
        answers = await asyncio.gather(*(connection.request(send(bytes(size)), PATIENCE) for _ in range(count)))
        assert {answer.code for answer in answers} == {0}
    finally:
        connection.close()


# ── Replication ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["tls", "tls names", "secret", "tls secret"])
async def test_a_slave_that_proves_who_it_is(kind: str, tls: TlsSettings, secret_file: str, tmp_path: Path) -> None:
    properties = given(kind, secret_file)
    async with (
        name_server(tmp_path / "n") as names,
        broker(tmp_path / "m", [names.address], tls, **properties) as master,
    ):
        await sent(master, 300, 4_000)
        async with broker(tmp_path / "s", [names.address], tls, **properties, **SLAVE) as slave:
            await eventually(lambda: slave.machine.store.log.end == master.machine.store.log.end > 1_000_000)
            await sent(master, 20)
            await eventually(lambda: slave.machine.store.log.end == master.machine.store.log.end)


async def test_a_master_in_permissive_mode_takes_both(tls: TlsSettings, tmp_path: Path) -> None:
    """So a group is changed one broker after the other."""
    async with (
        name_server(tmp_path / "n") as names,
        broker(tmp_path / "m", [names.address], tls, haTlsMode="permissive") as master,
        broker(tmp_path / "a", [names.address], **SLAVE) as plain,
        broker(tmp_path / "b", [names.address], tls, haTlsMode="enforcing", **{**SLAVE, "brokerId": 2}) as secure,
    ):
        await sent(master, 20)
        for slave in (plain, secure):
            await eventually(lambda: slave.machine.store.log.end == master.machine.store.log.end)  # noqa: B023


async def test_a_slave_that_the_master_refuses_says_why(
    tls: TlsSettings, secret_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "other.secret"
    other.write_text("another secret of many bytes")
    async with (
        name_server(tmp_path / "n") as names,
        broker(tmp_path / "m", [names.address], tls, haSecretFile=secret_file) as master,
        broker(tmp_path / "s", [names.address], tls, haSecretFile=str(other), **SLAVE),
    ):
        await sent(master, 1)
        await eventually(lambda: "it has a different secret: haSecretFile must have the same contents" in caplog.text)
        assert not master.machine.replication.master.slaves  # type: ignore[union-attr]


# ── Forged peers ────────────────────────────────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def master_of(
    kind: str, tls: TlsSettings, secret_file: str, tmp_path: Path
) -> AsyncIterator[tuple[BrokerProcess, int]]:
    async with broker(tmp_path / "m", [], tls, **given(kind, secret_file)) as master:
        yield master, master.settings.ha_port
        assert not master.machine.replication.master.slaves  # type: ignore[union-attr]
        assert not master._ha.proving


async def knocked(port: int, data: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """What the master says to these bytes, until it ends the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE)
        finally:
            writer.close()
    except (ssl.SSLError, ConnectionError):
        return b""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("tls", "it uses plain text, but this broker requires TLS (haTlsMode)"),
        ("secret", "it did not prove that it has the secret: set haSecretFile on both sides"),
    ],
)
@pytest.mark.parametrize("data", [encode_report(0), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 1000])
async def test_peers_of_other_kinds(
    kind: str,
    why: str,
    data: bytes,
    tls: TlsSettings,
    secret_file: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with master_of(kind, tls, secret_file, tmp_path) as (_, port):
        assert await knocked(port, data) == b""
        await eventually(lambda: why in caplog.text)


async def test_tls_where_there_is_none(
    tls: TlsSettings, secret_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with master_of("secret", tls, secret_file, tmp_path) as (_, port):
        assert await knocked(port, b"", TlsSettings().client_context) == b""
        await eventually(lambda: "it uses TLS, which is disabled on this broker (haTlsMode)" in caplog.text)


async def test_strangers_certificates(
    tls: TlsSettings, authority: Authority, secret_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path / "theirs", "theirs")
    async with master_of("tls names", tls, secret_file, tmp_path) as (_, port):
        assert await knocked(port, encode_report(0), TlsSettings().client_context) == b"", "no certificate"
        forged = stranger.settings("brokers.example")
        assert await knocked(port, encode_report(0), forged.client_context) == b""
        await eventually(lambda: "certificate verify failed" in caplog.text)
        client = authority.settings("billing")
        assert await knocked(port, encode_report(0), client.client_context) == b"", "a client's, of the same authority"
        await eventually(lambda: "its certificate has none of the names in haAllowedNames" in caplog.text)


async def test_who_knows_a_greeting_can_not_repeat_it(
    tls: TlsSettings, secret_file: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller's nonce and proof as they were seen, and the listener's own answer sent back to it."""
    caller = Greeting(SECRET.encode(), "HA", bytes(NONCE_SIZE), is_caller=True)
    seen = Greeting(SECRET.encode(), "HA", b"1" * NONCE_SIZE, is_caller=False)
    _, proof = caller.receive(seen.receive(caller.start())[1])
    assert seen.receive(proof) == (b"", b"") and seen.is_over
    async with master_of("secret", tls, secret_file, tmp_path) as (_, port):
        answer = await knocked(port, caller.start() + proof + encode_report(0))
        assert len(answer) in (0, NONCE_SIZE + 32)  # a reset may overtake it
        await eventually(lambda: "it has a different secret" in caplog.text)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(MAGIC + bytes(NONCE_SIZE))
        answer = await reader.readexactly(NONCE_SIZE + 32)
        writer.write(answer[NONCE_SIZE:])
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()


async def test_silent_peers_are_few_and_do_not_stay(
    tls: TlsSettings,
    secret_file: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(ha, "PROVING_MAX", 8)
    monkeypatch.setattr(ha, "PROVING_TIME", 0.3)
    caplog.set_level(logging.WARNING)
    async with master_of("tls secret", tls, secret_file, tmp_path) as (master, port):
        peers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        for reader, writer in peers:
            assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
            writer.close()
        await eventually(lambda: not master._ha.wires)
    refusals = [line for line in caplog.messages if "refused a connection to the HA port" in line]
    assert len(refusals) == 2, "one line for each cause"


# ── A Raft group ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["tls names", "secret", "tls secret"])
async def test_a_raft_group(kind: str, tls: TlsSettings, secret_file: str, tmp_path: Path) -> None:
    bound = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    peers = ";".join(f"n{number}-127.0.0.1:{one.getsockname()[1]}" for number, one in enumerate(bound))
    raft = {"enableDLegerCommitLog": "true", "dLegerGroup": "broker-a", "dLegerPeers": peers}
    async with AsyncExitStack() as stack:
        members: list[BrokerProcess] = []
        for number, one in enumerate(bound):
            own = {**raft, "dLegerSelfId": f"n{number}", **given(kind, secret_file)}
            member = broker(tmp_path / f"n{number}", [], tls, one, **own)
            members.append(await stack.enter_async_context(member))

        def leader() -> BrokerProcess | None:
            return next((one for one in members if one.machine.settings.broker_id == 0), None)

        await eventually(lambda: leader() is not None)
        first = leader()
        assert first is not None
        await sent(first, 50)
        await eventually(lambda: len({one.machine.store.log.end for one in members}) == 1)
        port = bound[members.index(first)].getsockname()[1]
        assert await knocked(port, bytes(64)) == b"", "a forged member"
        assert all(one.machine.faults == 0 for one in members)


# ── What is asked for ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("process", "why"),
    [
        (ProcessSettings(ha_tls_mode="enforcing"), "haTlsMode=enforcing needs tls.server.certPath"),
        (ProcessSettings(ha_allowed_names="a"), "haAllowedNames needs certificates: also set haTlsMode=enforcing"),
        (ProcessSettings(ha_secret_file="/no/file"), "/no/file can't be read"),
        (ProcessSettings(ha_secret_file="short"), "a secret needs at least 16 bytes"),
    ],
)
def test_mistakes_are_told_at_the_start(
    process: ProcessSettings, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short").write_text("short")
    with pytest.raises(ConfError) as told:
        peer_security(process, TlsSettings())
    assert why in str(told.value)


def test_certificates_are_always_demanded(tls: TlsSettings) -> None:
    """Also where clients need none."""
    open_to_clients = TlsSettings(
        test_mode=False, cert_path=tls.cert_path, key_path=tls.key_path, trust_path=tls.trust_path
    )
    security = peer_security(ProcessSettings(ha_tls_mode="enforcing"), open_to_clients)
    assert security.mode is TlsMode.ENFORCING
    assert security.tls is not None and security.outgoing is not None
    assert security.tls.server_context.verify_mode is ssl.CERT_REQUIRED
    assert security.outgoing.client_context.verify_mode is ssl.CERT_REQUIRED
    assert security.outgoing.client_context.check_hostname


# ── The greeting ────────────────────────────────────────────────────────────────────────────────────────────────────


def ends(ours: bytes = b"x", theirs: bytes = b"x", purpose: str = "HA") -> tuple[Greeting, Greeting]:
    caller = Greeting(ours, "HA", b"c" * NONCE_SIZE, is_caller=True)
    return caller, Greeting(theirs, purpose, b"l" * NONCE_SIZE, is_caller=False)


def test_a_greeting_in_single_bytes_and_what_follows() -> None:
    caller, listener = ends()
    passed: list[bytes] = []
    to_listener, to_caller = caller.start(), b""
    while to_listener or to_caller:
        answers = [listener.receive(bytes([byte])) for byte in to_listener]
        passed += [text for text, _ in answers]
        to_caller = b"".join(answer for _, answer in answers)
        answers = [caller.receive(bytes([byte])) for byte in to_caller]
        to_listener = b"".join(answer for _, answer in answers)
        if to_listener:
            to_listener += b"report"
    assert caller.is_over and listener.is_over
    assert b"".join(passed) == b"report"


def test_other_secrets_and_other_ports() -> None:
    for caller, listener in (ends(b"x", b"y"), ends(purpose="Raft")):
        with pytest.raises(ProtocolError, match="a different secret"):
            caller.receive(listener.receive(caller.start())[1])
    _, listener = ends()
    listener.receive(MAGIC + bytes(NONCE_SIZE))
    with pytest.raises(ProtocolError, match="a different secret"):
        listener.receive(bytes(32))
