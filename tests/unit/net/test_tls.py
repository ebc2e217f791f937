"""TLS: by the first byte, with made-up and with own certificates, and with peers that get it wrong."""

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.authority import Authority

from kourou.net import tls as tls_module
from kourou.net.background import Background
from kourou.net.certificates import Certificate, UserPart
from kourou.net.client import connect
from kourou.net.errors import ConnectFailedError, ConnectionLostError
from kourou.net.limits import Limits
from kourou.net.tls import TlsLayer, TlsMode, TlsSettings
from kourou.protocol import frame
from kourou.protocol.command import Command

from .conftest import Dial, Knock, Listen
from .peers import BULK, Bulky, Echo, Later, RawPeer, eventually, only_connection, turns

KIB = 1024
MIB = 1024 * KIB
ANY = TlsSettings()  # made-up certificate, nobody is verified


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours", "authority")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "theirs", "stranger")


def own(certificate: dict[str, str], **more: object) -> TlsSettings:
    return TlsSettings(test_mode=False, **certificate, **more)  # type: ignore[arg-type]


# ── By the first byte ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_permissive_serves_both_on_one_port(listen: Listen, dial: Dial) -> None:
    handler = Echo()
    listener = await listen(handler, tls=TlsSettings(mode=TlsMode.PERMISSIVE))
    plain, secret = await dial(listener), await dial(listener, tls=ANY)
    assert (secret.is_tls, plain.is_tls) == (True, False)
    for connection in (plain, secret, plain, secret):
        assert (await connection.request(Command(1, body=b"x"), 5)).body == b"x"
    assert sorted(connection.is_tls for connection in handler.connections) == [False, True]


async def test_enforcing_refuses_plain_text(listen: Listen, dial: Dial, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, tls=TlsSettings(mode=TlsMode.ENFORCING))
    secret = await dial(listener, tls=ANY)
    assert (await secret.request(Command(1, body=b"x"), 5)).body == b"x"
    peer = await knock(listener)
    await peer.send(Command(1))
    assert await peer.ended()
    await eventually(lambda: handler.gone)
    assert "TLS is required" in (handler.gone[0].reason or "")
    assert len(handler.seen) == 1


async def test_disabled_refuses_tls(listen: Listen, dial: Dial) -> None:
    handler = Echo()
    listener = await listen(handler, tls=TlsSettings(mode=TlsMode.DISABLED))
    assert (await (await dial(listener)).request(Command(1, body=b"x"), 5)).body == b"x"
    with pytest.raises(ConnectFailedError, match="no connection to"):
        await dial(listener, tls=ANY)
    await eventually(lambda: handler.gone)
    assert "TLS, which is disabled" in (handler.gone[0].reason or "")


async def test_tls_behind_a_proxy_preamble(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await TlsPeer.open(await knock(listener), b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n")
    await peer.send(Command(1, 7))
    assert (await peer.command()).opaque == 7
    assert handler.connections[0].peer == "192.0.2.1:1"
    assert handler.connections[0].is_tls


class TlsPeer:
    """TLS by hand over a plain socket, so that records can be cut and spoilt."""

    def __init__(self, raw: RawPeer) -> None:
        self.raw = raw
        self.layer = TlsLayer(ANY.client_context, server_side=False)
        self._decoder = frame.Decoder()
        self._commands: list[Command] = []

    @classmethod
    async def open(cls, raw: RawPeer, preamble: bytes = b"", pieces: int | None = None) -> "TlsPeer":
        peer = cls(raw)
        await peer.trickle(preamble + peer.layer.start(), pieces)
        while not peer.layer.ready:
            _, answer = peer.layer.receive(await raw.receive())
            await peer.trickle(answer, pieces)
        return peer

    async def trickle(self, data: bytes, pieces: int | None = None) -> None:
        for at in range(0, len(data), pieces or len(data) or 1):
            await self.raw.send(data[at : at + (pieces or len(data))])

    async def send(self, *commands: Command) -> None:
        await self.raw.send(self.layer.send(b"".join(map(frame.encode, commands))))

    async def command(self) -> Command:
        while not self._commands:
            data = await self.raw.receive()
            if not data or self.layer.closed:
                raise EOFError
            plain, _ = self.layer.receive(data)
            self._commands = self._decoder.feed(plain)
        return self._commands.pop(0)

    async def rest(self) -> list[Command]:
        found: list[Command] = []
        try:
            while True:
                found.append(await self.command())
        except EOFError:
            return found


async def test_a_handshake_and_records_byte_by_byte(listen: Listen, knock: Knock) -> None:
    peer = await TlsPeer.open(await knock(await listen()), pieces=1)
    for byte in peer.layer.send(frame.encode(Command(1, 7))):
        await peer.raw.send(bytes([byte]))
    assert (await peer.command()).opaque == 7


async def test_large_answers_and_many(listen: Listen, dial: Dial) -> None:
    connection = await dial(await listen(), tls=ANY)
    for size in (0, 1, 16 * KIB, 16 * KIB + 1, 5 * MIB):
        assert len((await connection.request(Command(1, body=bytes(size)), 20)).body) == size
    answers = await asyncio.gather(*(connection.request(Command(1, body=b"%d" % n), 20) for n in range(500)))
    assert [answer.body for answer in answers] == [b"%d" % n for n in range(500)]


async def test_back_pressure_holds_in_tls_too(listen: Listen, knock: Knock) -> None:
    handler = Echo(bytes(64 * KIB))
    listener = await listen(handler, limits=Limits(pause_writing=128 * KIB, batch=4))
    peer = await TlsPeer.open(await knock(listener, receive_buffer=16 * KIB))
    server = await only_connection(listener)
    sending = asyncio.create_task(peer.send(*(Command(1, opaque) for opaque in range(300))))
    await eventually(lambda: not server._reading)
    await turns()
    assert server.buffered < 2 * MIB
    assert [(await peer.command()).opaque for _ in range(300)] == list(range(300))
    await sending


# ── Certificates ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_own_certificates_are_verified(listen: Listen, dial: Dial, authority: Authority) -> None:
    listener = await listen(tls=own(authority.issue("server")))
    client = TlsSettings(test_mode=False, verify_peer=True, trust_path=authority.path)
    connection = await dial(listener, tls=client)
    assert (await connection.request(Command(1, body=b"x"), 5)).body == b"x"


@pytest.mark.parametrize(
    ("certificate", "why"),
    [
        (lambda ours, theirs: theirs.issue("server"), "certificate verify failed"),
        (lambda ours, theirs: ours.issue("elsewhere"), "IP address mismatch"),
        (lambda ours, theirs: ours.issue("old", expired=True), "expired"),
    ],
    ids=["of a stranger", "for another host", "expired"],
)
async def test_a_server_with_the_wrong_certificate(
    certificate: Callable[[Authority, Authority], dict[str, str]],
    why: str,
    listen: Listen,
    dial: Dial,
    authority: Authority,
    stranger: Authority,
) -> None:
    handler = Echo()
    listener = await listen(handler, tls=own(certificate(authority, stranger)))
    with pytest.raises(ConnectFailedError, match=why):
        await dial(listener, tls=TlsSettings(test_mode=False, verify_peer=True, trust_path=authority.path))
    await eventually(lambda: handler.gone)
    unverified = await dial(listener, tls=TlsSettings(test_mode=False, verify_peer=False))
    assert (await unverified.request(Command(1), 5)).code == 0


async def test_the_made_up_certificate_proves_nothing(listen: Listen, dial: Dial, authority: Authority) -> None:
    listener = await listen(tls=ANY)
    with pytest.raises(ConnectFailedError, match="certificate verify failed"):
        await dial(listener, tls=TlsSettings(test_mode=False, verify_peer=True, trust_path=authority.path))


async def test_a_key_with_a_password(listen: Listen, dial: Dial, authority: Authority) -> None:
    certificate = authority.issue("locked", password="sesame")
    connection = await dial(await listen(tls=own(certificate, key_password="sesame")), tls=ANY)
    assert (await connection.request(Command(1), 5)).code == 0


async def test_client_certificates_are_demanded(
    listen: Listen, dial: Dial, authority: Authority, stranger: Authority
) -> None:
    settings = own(authority.issue("server"), verify_peer=True, trust_path=authority.path, client_auth="require")
    handler = Echo()
    listener = await listen(handler, tls=settings)
    known = await dial(listener, tls=own(authority.issue("client")))
    assert (await known.request(Command(1), 5)).code == 0
    for certificate in ({}, stranger.issue("client")):
        # With TLS 1.3 a client learns only after its own handshake that the server does not want it.
        with pytest.raises((ConnectFailedError, ConnectionLostError)):
            await (await dial(listener, tls=own(certificate))).request(Command(1), 5)
    assert len(handler.seen) == 1
    await eventually(lambda: len(handler.gone) == 2)


async def test_client_certificates_may_be_optional(
    listen: Listen, dial: Dial, authority: Authority, stranger: Authority
) -> None:
    settings = own(authority.issue("server"), verify_peer=True, trust_path=authority.path, client_auth="optional")
    listener = await listen(tls=settings)
    assert (await (await dial(listener, tls=ANY)).request(Command(1), 5)).code == 0
    with pytest.raises((ConnectFailedError, ConnectionLostError)):
        await (await dial(listener, tls=own(stranger.issue("client")))).request(Command(1), 5)


@pytest.mark.parametrize(
    "settings",
    [
        TlsSettings(test_mode=False),
        TlsSettings(test_mode=False, cert_path="missing.pem", key_path="missing.key"),
        TlsSettings(test_mode=False, cert_path=__file__, key_path=__file__),
    ],
    ids=["no certificate", "missing files", "no certificate in the file"],
)
async def test_a_server_whose_certificates_are_unusable(
    settings: TlsSettings, listen: Listen, dial: Dial, knock: Knock
) -> None:
    """TLS peers are turned away with the reason in our log; plain ones are served."""
    handler = Echo()
    listener = await listen(handler, tls=settings)
    with pytest.raises(ConnectFailedError):
        await dial(listener, tls=ANY)
    await eventually(lambda: handler.gone)
    assert handler.gone[0].reason
    assert (await (await dial(listener)).request(Command(1), 5)).code == 0


# ── Users ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("part", "user"),
    [
        (UserPart.COMMON_NAME, "billing"),
        (UserPart.DNS, "billing.example"),
        (UserPart.URI, "spiffe://example/billing"),
        (UserPart.EMAIL, "billing@example.com"),
        (None, None),
    ],
)
async def test_a_certificate_names_a_user(
    part: UserPart | None, user: str | None, listen: Listen, dial: Dial, authority: Authority
) -> None:
    settings = own(
        authority.issue("server"),
        verify_peer=True,
        trust_path=authority.path,
        client_auth="optional",
        user_part=part,
    )
    handler = Echo()
    listener = await listen(handler, tls=settings)
    names = ["DNS:billing.example", "URI:spiffe://example/billing", "email:billing@example.com"]
    known = await dial(listener, tls=own(authority.issue("billing", names=names)))
    assert (await known.request(Command(1), 5)).code == 0
    assert [connection.intake.user for connection in handler.connections] == [user]
    nobody = await dial(listener, tls=ANY)
    assert (await nobody.request(Command(1), 5)).code == 0
    assert handler.connections[1].intake.user is None
    assert (await (await dial(listener)).request(Command(1), 5)).code == 0
    assert handler.connections[2].intake.user is None


@pytest.mark.parametrize(
    ("described", "part", "user"),
    [
        (None, UserPart.COMMON_NAME, None),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, UserPart.COMMON_NAME, None),
        ({"subject": ((("commonName", "a"),), (("commonName", "a"),))}, UserPart.COMMON_NAME, "a"),
        ({"subjectAltName": (("DNS", "a"), ("DNS", "b"))}, UserPart.DNS, None),
        ({"subjectAltName": (("DNS", "a"), ("URI", "b"))}, UserPart.DNS, "a"),
        ({"subject": ((("commonName", "a\x1b[2J"),),)}, UserPart.COMMON_NAME, None),
        ({"subject": ((("commonName", "a" * 256),),)}, UserPart.COMMON_NAME, None),
        ({"subject": ((("commonName", ""),),)}, UserPart.COMMON_NAME, None),
    ],
)
def test_an_ambiguous_name_names_no_user(described: object, part: UserPart, user: str | None) -> None:
    assert Certificate(described).user(part) == user  # type: ignore[arg-type]


# ── Files that change ───────────────────────────────────────────────────────────────────────────────────────────────


async def test_new_connections_get_the_new_certificate(listen: Listen, dial: Dial, tmp_path: Path) -> None:
    old, new = Authority(tmp_path / "old", "old"), Authority(tmp_path / "new", "new")
    certificate = old.issue("server")
    settings = own(certificate)
    listener = await listen(tls=settings)
    by_old = TlsSettings(test_mode=False, verify_peer=True, trust_path=old.path)
    by_new = TlsSettings(test_mode=False, verify_peer=True, trust_path=new.path)
    before = await dial(listener, tls=by_old)
    for name, path in new.issue("server").items():
        Path(certificate[name]).write_bytes(Path(path).read_bytes())
    settings.read_again()
    assert (await (await dial(listener, tls=by_new)).request(Command(1), 5)).code == 0
    with pytest.raises(ConnectFailedError, match="certificate verify failed"):
        await dial(listener, tls=by_old)
    assert (await before.request(Command(1), 5)).code == 0, "what is open goes on"


async def test_files_that_can_not_be_used_change_nothing(listen: Listen, dial: Dial, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours", "ours")
    certificate = authority.issue("server")
    settings = own(certificate)
    listener = await listen(tls=settings)
    assert settings.server_context
    other = authority.issue("other")
    Path(certificate["key_path"]).write_bytes(Path(other["key_path"]).read_bytes())  # not the certificate's
    with pytest.raises(ssl.SSLError):
        settings.read_again()
    client = TlsSettings(test_mode=False, verify_peer=True, trust_path=authority.path)
    assert (await (await dial(listener, tls=client)).request(Command(1), 5)).code == 0


# ── Versions ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settings", [ANY, TlsSettings(protocols=("TLSv1.2",)), TlsSettings(protocols=("TLSv1.3",))])
async def test_nothing_older_than_tls_1_2(settings: TlsSettings) -> None:
    for context in (settings.server_context, settings.client_context):
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION


async def test_versions_that_are_not_spoken(listen: Listen, dial: Dial) -> None:
    listener = await listen(tls=TlsSettings(protocols=("TLSv1.3",)))
    assert (await dial(listener, tls=ANY)).is_tls
    with pytest.raises(ConnectFailedError):
        await dial(listener, tls=TlsSettings(protocols=("TLSv1.2",)))


async def test_ciphers_are_a_list(listen: Listen, dial: Dial) -> None:
    listener = await listen(tls=TlsSettings(protocols=("TLSv1.2",), ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"))
    assert (await dial(listener, tls=ANY)).is_tls
    with pytest.raises(ConnectFailedError):
        await dial(listener, tls=TlsSettings(ciphers="ECDHE-ECDSA-AES128-GCM-SHA256", protocols=("TLSv1.2",)))


def test_demanding_client_certificates_without_verifying_them_is_refused(authority: Authority) -> None:
    with pytest.raises(ValueError, match="authClient=true"):
        _ = own(authority.issue("server"), client_auth="require").server_context


@pytest.mark.parametrize("trust_path", ["missing.pem", __file__])
async def test_a_client_whose_trust_file_is_unusable(trust_path: str, listen: Listen, dial: Dial) -> None:
    with pytest.raises(ConnectFailedError):
        await dial(await listen(), tls=TlsSettings(test_mode=False, verify_peer=True, trust_path=trust_path))


# ── Peers that get it wrong ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16",
        b"\x16garbage that is no handshake",
        b"\x16\x03\x01\xff\xff" + b"x" * 100,
        b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00",
        b"\x16" + bytes(1000),
    ],
)
async def test_garbage_after_the_first_byte(garbage: bytes, listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler, limits=Limits(frame_time=0.3))
    peer = await knock(listener)
    await peer.send(garbage)
    await peer.ended()  # perhaps after an alert
    peer.close()
    await eventually(lambda: handler.gone)
    assert handler.seen == []


def shaken() -> tuple[TlsLayer, TlsLayer]:
    """A client and a server that have agreed."""
    client = TlsLayer(ANY.client_context, server_side=False)
    server = TlsLayer(ANY.server_context, server_side=True)
    data = client.start()
    while data:
        _, data = server.receive(data)
        _, data = client.receive(data)
    assert client.ready and server.ready
    return client, server


def test_a_handshake_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_module, "HANDSHAKE_MAX", 100)
    start = TlsLayer(ANY.client_context, server_side=False).start()
    server = TlsLayer(ANY.server_context, server_side=True)
    server.receive(start[:100])
    with pytest.raises(ssl.SSLError, match="the TLS handshake does not end"):
        server.receive(start[100:-1])


def test_records_without_text_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those that change keys: half a record is as good here, since it has no text either."""
    client, server = shaken()
    monkeypatch.setattr(tls_module, "WITHOUT_TEXT_MAX", 1_000)
    for _ in range(3):  # text begins the count again
        record = client.send(bytes(900))
        assert server.receive(record[:500]) == (b"", b"")
        assert len(server.receive(record[500:])[0]) == 900
    record = client.send(bytes(2_000))
    with pytest.raises(ssl.SSLError, match="TLS records without plain text"):
        server.receive(record[:1_500])


async def test_a_spoilt_record(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    listener = await listen(handler)
    peer = await TlsPeer.open(await knock(listener))
    await peer.send(Command(1, 1))
    assert (await peer.command()).opaque == 1
    record = bytearray(peer.layer.send(frame.encode(Command(1, 2))))
    record[10] ^= 1
    await peer.raw.send(bytes(record))
    with pytest.raises((EOFError, ConnectionError, ssl.SSLError)):
        await peer.command()
    peer.raw.close()
    await eventually(lambda: handler.gone)
    assert len(handler.seen) == 1


async def test_a_spoilt_record_while_answers_are_owed(listen: Listen, knock: Knock) -> None:
    """The other direction still works: what was taken is answered."""
    handler = Later()
    listener = await listen(handler)
    peer = await TlsPeer.open(await knock(listener))
    await peer.send(Command(1, 1))
    await eventually(lambda: handler.owed)
    await peer.raw.send(b"\x17\x03\x03\x00\x20" + bytes(32))
    server = handler.connections[0]
    await eventually(lambda: server.reason)
    handler.pay()
    peer.raw.close()
    await eventually(lambda: handler.gone)


async def test_a_frame_without_sense_in_tls(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await TlsPeer.open(await knock(await listen(handler)))
    await peer.raw.send(peer.layer.send(frame.encode(Command(1, 1)) + b"\xff" * 8))
    assert [answer.opaque for answer in await peer.rest()] == [1]
    assert peer.layer.closed  # it was told, not cut off


async def test_a_peer_that_dribbles_records(listen: Listen, knock: Knock) -> None:
    """Each byte of a frame in a record of its own, each record in two pieces: the frame's time still runs."""
    listener = await listen()
    peer = await TlsPeer.open(await knock(listener))
    server = await only_connection(listener)
    data = frame.encode(Command(1, 7))
    for count, byte in enumerate(data[:-1], 1):
        record = peer.layer.send(bytes([byte]))
        server._heard = server.output.last_active = 0.0
        await peer.raw.send(record[:7])
        await eventually(lambda: server.last_active)
        await peer.raw.send(record[7:])
        await eventually(lambda: server.intake.decoder.buffered == count)  # noqa: B023
        if count == 1:
            assert server.intake.started is not None
            server.intake.started = 1.0
        assert server.intake.started == 1.0
    await peer.raw.send(peer.layer.send(data[-1:]))
    assert (await peer.command()).opaque == 7
    assert server.intake.started is None


# ── Endings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_peers_goodbye(listen: Listen, knock: Knock) -> None:
    handler = Echo()
    peer = await TlsPeer.open(await knock(await listen(handler)))
    await peer.send(Command(1, 1))
    await peer.raw.send(peer.layer.goodbye())
    assert [answer.opaque for answer in await peer.rest()] == [1]
    await eventually(lambda: handler.gone)


async def test_the_goodbye_of_a_reader_in_bulk(listen: Listen, knock: Knock) -> None:
    handler = Bulky()
    peer = await TlsPeer.open(await knock(await listen(handler, background=Background(lambda: 0.5))))
    await peer.send(Command(BULK, 1))
    assert (await peer.command()).opaque == 1
    await peer.raw.send(peer.layer.goodbye())
    assert await peer.rest() == []
    await eventually(lambda: handler.gone)


async def test_the_peers_goodbye_before_its_answers(listen: Listen, knock: Knock) -> None:
    handler = Later()
    listener = await listen(handler)
    peer = await TlsPeer.open(await knock(listener))
    await peer.send(Command(1, 1), Command(1, 2))
    await peer.raw.send(peer.layer.goodbye())
    await eventually(lambda: len(handler.owed) == 2)
    for _ in range(20):
        await peer.raw.send(bytes(64 * KIB))  # after a goodbye nothing counts, and nothing is kept
    server = handler.connections[0]
    await turns()
    assert server.intake.tls is not None and server.intake.tls._incoming.pending == 0
    handler.pay()
    assert [answer.opaque for answer in await peer.rest()] == [1, 2]
    await eventually(lambda: handler.gone)


async def test_a_half_closed_tls_peer_gets_its_answers(listen: Listen, knock: Knock) -> None:
    handler = Later()
    peer = await TlsPeer.open(await knock(await listen(handler)))
    await peer.send(Command(1, 1))
    peer.raw.half_close()
    await eventually(lambda: handler.owed)
    await turns()
    handler.pay()
    assert [answer.opaque for answer in await peer.rest()] == [1]


async def test_answers_after_our_goodbye_go_nowhere(listen: Listen, knock: Knock) -> None:
    handler = Later(bytes(4 * MIB))
    listener = await listen(handler)
    peer = await TlsPeer.open(await knock(listener, receive_buffer=16 * KIB))
    await peer.send(Command(1, 1), Command(1, 2))
    await eventually(lambda: len(handler.owed) == 2)
    server = handler.connections[0]
    (first, second), handler.owed = handler.owed, []
    Echo.answer(handler, *first)
    server.close()
    assert server.buffered > 0
    Echo.answer(handler, *second)  # the transport is still busy with the first
    await turns()
    assert [answer.opaque for answer in await peer.rest()] == [1]


async def test_shutdown_with_tls(listen: Listen, dial: Dial) -> None:
    handler = Later()
    listener = await listen(handler)
    client = await dial(listener, tls=ANY)
    asking = asyncio.create_task(client.request(Command(1, body=b"x"), 20))
    await eventually(lambda: handler.owed)
    closing = asyncio.create_task(listener.close(20))
    await turns()
    handler.pay()
    assert (await asking).body == b"x"
    await closing
    await client.lost


async def test_a_server_that_never_shakes_hands() -> None:
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectFailedError, match=r"in 0\.1 s"):
        await connect("127.0.0.1", port, tls=ANY, timeout=0.1)
    server.close()


async def test_a_server_that_hangs_up_in_the_handshake() -> None:
    class HangUp(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    server = await asyncio.get_running_loop().create_server(HangUp, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(ConnectFailedError):
        await connect("127.0.0.1", port, tls=ANY)
    server.close()
