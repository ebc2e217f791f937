"""Bytes that are no frames, frames that are no commands, and commands that ask for nothing sensible."""

import random
import re
import socket
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS

from .target import Peer, Probe, Target

GOOD = frame.encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO, 1))


def json_frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4) + len(header).to_bytes(4) + header + body


SENSELESS = {
    "oversized length": (16 * 1024 * 1024 + 1).to_bytes(4) + bytes(100),
    "largest length": b"\x7f\xff\xff\xff" + bytes(100),
    "negative length": b"\xff\xff\xff\xff" + bytes(100),
    "smallest length": b"\x80\x00\x00\x00" + bytes(100),
    "zero length": bytes(4),
    "length below the header's": b"\0\0\0\3" + bytes(100),
    "header longer than the frame": bytes.fromhex("00000010 00ffffff") + bytes(100),
    "header longer by one": bytes.fromhex("00000006 00000003") + b"{}}",
    "unknown header form": bytes.fromhex("00000006 07000002") + b"{}",
    "last header form": bytes.fromhex("00000006 ff000002") + b"{}",
    "garbage header": json_frame(bytes(range(256))),
    "garbage JSON": json_frame(b'{"code":105,"extFields":{"topic"]}'),
    "JSON of another shape": json_frame(b'[{"code":105}]'),
    "JSON cut off": json_frame(b'{"code":105,"extFields":{"topic":"T"}'),
    "nested JSON": json_frame(b'{"x":' + b"[" * 500_000),
    "nested header fields": json_frame(b'{"extFields":{"x":' + b'{"x":' * 100_000),
    "numbers beyond all bounds": json_frame(b'{"code":' + b"9" * 100_000 + b"}"),
    "header of 16 MiB": json_frame(b'{"remark":"' + b"x" * (16 * 1024 * 1024 - 20) + b'"}'),
    "a hundred thousand header fields": json_frame(
        b'{"extFields":{' + b",".join(b'"%x":""' % n for n in range(80_000)) + b"}}"
    ),
    "invalid UTF-8": json_frame(b'{"remark":"\xff\xfe"}'),
    "binary header of nothing": bytes.fromhex("00000004 01000000"),
    "binary header with a negative remark": bytes.fromhex("00000015 01000011 0069000201000000070000000080000000"),
    "binary header with a remark too long": bytes.fromhex("00000015 01000011 006900020100000007000000007fffffff"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "TLS in name only": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 600,
    "PROXY in name only": b"PROXY TCP9 1.2.3.4\r\n",
    "PROXY without an end": b"PROXY " + b"x" * 200,
}


@pytest.mark.parametrize("name", SENSELESS)
def test_senseless_bytes_end_their_connection(name: str, target: Target) -> None:
    with Probe(target) as probe, Peer(target.port) as peer, suppress(ConnectionError):
        peer.send(SENSELESS[name])
        while peer.sock.recv(65536):  # TLS says why
            pass
    assert probe.usual() < 0.5


@pytest.mark.parametrize("name", [name for name in SENSELESS if not name.startswith(("TLS", "PROXY"))])
def test_what_was_asked_before_is_answered(name: str, target: Target) -> None:
    with Peer(target.port) as peer:
        with suppress(ConnectionError):  # it may have enough before all is sent
            peer.send(GOOD + GOOD + SENSELESS[name])
        assert peer.receive().code == 0
        assert peer.receive().code == 0
        assert peer.ended()


def test_half_frames(target: Target) -> None:
    """Cut at every byte; then the peer waits, or goes, or ends its direction."""
    body = frame.encode(Command(RequestCode.REGISTER_BROKER, 1, ext={"brokerName": "b"}, body=bytes(100)))
    files = target.files
    waiting = []
    with Probe(target) as probe:
        for cut in range(1, len(body)):
            for how in ("wait", "go", "end"):
                peer = Peer(target.port)
                peer.send(body[:cut])
                if how == "wait":
                    waiting.append(peer)
                elif how == "go":
                    peer.reset()
                else:
                    peer.sock.shutdown(socket.SHUT_WR)
                    assert peer.ended()
                    peer.sock.close()
        for peer in waiting:
            peer.reset()
    assert probe.usual() < 0.5
    target.check()
    assert target.files <= files + 2


def test_every_code_with_nothing_in_it(target: Target) -> None:
    """Requests of all kinds without header fields or body: each is answered, whatever the answer is."""
    codes = [*REQUESTS, *range(-5, 1100), 32767, -32768, 2**31 - 1, -(2**31)]
    with Peer(target.port) as peer:
        for opaque, code in enumerate(codes):
            answer = peer.ask(Command(code, opaque))
            assert answer.opaque == opaque
            if code not in REQUESTS:
                assert (answer.code, answer.remark) == (3, f" request type {code} not supported")


def test_every_code_with_nonsense_in_it(target: Target) -> None:
    """The right fields with wrong values, in both header forms."""
    chance = random.Random(7)
    odd = [
        "",
        " ",
        "0",
        "-1",
        "true",
        "null",
        "9" * 40,
        "é🚀",
        "\x00\x01\n",
        "../../etc/passwd",
        "{}",
        "a" * 5000,
        "NaN",
    ]
    with Peer(target.port) as peer:
        opaque = 0
        for code, info in REQUESTS.items():
            names = [field.encode_name for field in msgspec.structs.fields(info.header)] if info.header else []
            for binary in (False, True):
                if binary and not -0x8000 <= code <= 0x7FFF:
                    continue
                for body in (b"", b"{}", b"[]", b"null", b"\xff\x00", b'{"table":7}', b"a=b\n", bytes(50)):
                    opaque += 1
                    ext = {name: chance.choice(odd) for name in names}
                    answer = peer.ask(Command(code, opaque, ext=ext, body=body, binary=binary))
                    assert (answer.opaque, answer.binary) == (opaque, binary)


def test_random_bytes(target: Target) -> None:
    chance = random.Random(11)
    with Probe(target) as probe:
        for _ in range(300):
            with Peer(target.port) as peer, suppress(ConnectionError, OSError):
                peer.send(chance.randbytes(chance.randrange(1, 3000)))
                peer.sock.shutdown(socket.SHUT_WR)
                while peer.sock.recv(65536):
                    pass
    assert probe.usual() < 0.5


def test_no_peer_writes_lines_of_the_log(tmp_path: Path) -> None:
    """Reasons for the end of a connection repeat the peer's bytes, but never so that they look like a log line."""
    line = b"\n2026-01-01 00:00:00,000 INFO all is well\n"
    target = Target(tmp_path)
    attempts = [
        b"PROXY TCP6 fe80::1%" + line + b" fe80::2 1 2\r\n" + GOOD,
        b"PROXY TCP4 " + line + b" 192.0.2.1 1 2\r\n",
        json_frame(b'{"extFields":{"' + line + b'":[}}'),
        json_frame(b'{"' + line.replace(b"\n", b"\\n") + b'":1,}'),
        bytes.fromhex("00000033 0100002f 0069 00 0201 00000007 00000000 00000000 0000001a 0020") + line,
        b"GET /" + line,
    ]
    for attempt in attempts:
        with Peer(target.port) as peer, suppress(ConnectionError):
            peer.send(attempt)
            peer.sock.shutdown(socket.SHUT_WR)
            while peer.sock.recv(65536):
                pass
    target.check()
    assert target.stop() == 0
    lines = target.log.split("\n")[:-1]
    assert sum("connection ended" in line for line in lines) >= len(attempts) - 1
    assert [line for line in lines if not re.match(r"\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ kourou\.|kourou ", line)] == []
