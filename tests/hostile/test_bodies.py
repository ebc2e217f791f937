"""Bodies and names that are meant to hurt."""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.protocol import frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command

from .target import MIB, Peer, Probe, Target

LIMIT = frame.FRAME_SIZE_MAX - 1000
COST_S = 5.0
"""CPU time that the worst 16 MiB may cost. While they are read, no other client is served."""


@pytest.fixture
def peer(target: Target) -> Iterator[Peer]:
    with Peer(target.port) as peer:
        yield peer


def registration(body: bytes, **fields: str) -> Command:
    ext = {
        "brokerName": "hostile",
        "brokerAddr": "192.0.2.1:10911",
        "clusterName": "hostile",
        "haServerAddr": "192.0.2.1:10912",
        "brokerId": "0",
        "compressed": "false",
        "bodyCrc32": "0",
        **fields,
    }
    return Command(RequestCode.REGISTER_BROKER, 5, ext=ext, body=body)


def refused(answer: Command) -> bool:
    return answer.code != 0 and answer.opaque == 5 and bool(answer.remark)


# ── Registrations ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_zip_bomb(target: Target, peer: Peer) -> None:
    packer = zlib.compressobj(1)
    bomb = b"".join([packer.compress(bytes(MIB)) for _ in range(500)] + [packer.flush()])
    assert len(bomb) < 4 * MIB
    before, cpu = target.rss, target.cpu
    for _ in range(3):
        assert refused(peer.ask(registration(bomb, compressed="true")))
    assert target.rss - before < 200 * MIB
    assert target.cpu - cpu < 3 * COST_S


def test_a_zip_bomb_of_topics(target: Target, peer: Peer) -> None:
    """It inflates to what a registration looks like: a count of topics, and then far too many."""
    version = b'{"counter":1,"stateVersion":0,"timestamp":1}'
    topics = b"".join(len(line).to_bytes(4) + line for line in (b"t%d 8 8 6 SINGLE_TAG {}" % n for n in range(1000)))
    inflated = len(version).to_bytes(4) + version + (2**31 - 1).to_bytes(4) + topics * 2000
    bomb = zlib.compress(inflated, 9)
    before = target.rss
    assert refused(peer.ask(registration(bomb, compressed="true")))
    assert target.rss - before < 400 * MIB


@pytest.mark.parametrize(
    "body",
    [
        b"[" * LIMIT,
        b'{"a":' * (LIMIT // 5),
        b'{"topicConfigSerializeWrapper":' + b'{"topicConfigTable":' * 100_000,
        b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"t":' + b"[" * 1_000_000,
        b'{"filterServerList":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}",
        b'{"x":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b"{" * LIMIT,
        b"{{" * 100_000 + b"}:1}" * 100_000,
        b'{"$ref":"$"}',
    ],
    ids=lambda body: repr(body[:40]),
)
def test_nested_bodies(body: bytes, target: Target, peer: Peer) -> None:
    before, cpu = target.rss, target.cpu
    assert peer.ask(registration(body)).opaque == 5
    assert target.rss - before < 300 * MIB
    assert target.cpu - cpu < COST_S


@pytest.mark.parametrize(
    "body",
    [
        bytes(LIMIT),
        b"\xff" * LIMIT,
        b'"' + b"x" * (LIMIT - 2) + b'"',
        b"[" + b"0," * (LIMIT // 2 - 2) + b"0]",
        b'{"filterServerList":[' + b'"",' * (LIMIT // 3 - 20) + b'""]}',
        b"1" * LIMIT,
        b" " * LIMIT,
    ],
    ids=lambda body: repr(body[:30]),
)
def test_a_registration_of_16_mib_of_garbage(body: bytes, target: Target, peer: Peer) -> None:
    cpu = target.cpu
    assert peer.ask(registration(body)).opaque == 5
    assert refused(peer.ask(registration(body, compressed="true")))
    assert target.cpu - cpu < COST_S


def test_a_body_that_is_not_what_its_checksum_says(peer: Peer) -> None:
    assert refused(peer.ask(registration(b"{}", bodyCrc32="1")))


# ── Settings that are kept ──────────────────────────────────────────────────────────────────────────────────────────


def kv(code: RequestCode, namespace: str, key: str, value: str | None = None) -> Command:
    ext = {"namespace": namespace, "key": key} | ({} if value is None else {"value": value})
    return Command(code, 5, ext=ext)


def test_huge_kv_values_have_an_end(target: Target, peer: Peer) -> None:
    """One after the other, until the whole would be too large; existing values are kept."""
    before = target.rss
    value = "v" * 1_000_000
    kept = 0
    with Probe(target) as probe:
        while peer.ask(kv(RequestCode.PUT_KV_CONFIG, "huge", f"k{kept}", value)).code == 0:
            kept += 1
            assert kept < 40
        assert kept == 4  # of 1 MB each: KV_MAX is 4 MiB
        for n in range(kept):
            assert (peer.ask(kv(RequestCode.GET_KV_CONFIG, "huge", f"k{n}")).ext or {})["value"] == value
        answer = peer.ask(Command(RequestCode.GET_KVLIST_BY_NAMESPACE, 5, ext={"namespace": "huge"}))
        assert len(json.loads(answer.body)["table"]) == kept
        for n in range(kept):
            assert peer.ask(kv(RequestCode.DELETE_KV_CONFIG, "huge", f"k{n}")).code == 0
    assert target.rss - before < 300 * MIB
    assert probe.usual() < 0.5


def test_a_value_that_grows_when_it_is_written(peer: Peer) -> None:
    """In the binary form a control character is one byte; as JSON it is six."""
    value = "\x01" * 170_000
    answer = peer.ask(
        Command(RequestCode.PUT_KV_CONFIG, 5, ext={"namespace": "n", "key": "k", "value": value}, binary=True)
    )
    assert answer.code == 0
    assert (peer.ask(kv(RequestCode.GET_KV_CONFIG, "n", "k")).ext or {})["value"] == value
    assert peer.ask(kv(RequestCode.DELETE_KV_CONFIG, "n", "k")).code == 0


NAMES = [
    "../../../etc/passwd",
    "..",
    "/etc/passwd",
    "a/../../b",
    "con\x00trol",
    "line\nbreak\r\n",
    "\x1b[31mred",
    "\u202e",
    "~",
    "$HOME",
    "`id`",
    "%s%n",
    "'; --",
    "é🚀",
    " ",
    "",
]


OUR_FILES = {"log.txt", "ready.json", "kvConfig.json", "kvConfig.json.bak", "namesrv", "namesrv.properties"}


def everything_outside(folder: Path) -> set[Path]:
    """All files around the server's own folder."""
    return {path for path in folder.parent.rglob("*") if not path.is_relative_to(folder)}


def test_names_stay_names(target: Target, peer: Peer) -> None:
    """A peer's name never becomes a path, and a value under an unusual name is found under it again."""
    before = everything_outside(target.folder)
    for name in NAMES:
        assert peer.ask(kv(RequestCode.PUT_KV_CONFIG, name, name, name)).code == 0
        assert (peer.ask(kv(RequestCode.GET_KV_CONFIG, name, name)).ext or {})["value"] == name
        assert peer.ask(kv(RequestCode.DELETE_KV_CONFIG, name, name)).code == 0
        table = {name: {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
        body = json.dumps({"topicConfigSerializeWrapper": {"topicConfigTable": table}}).encode()
        command = registration(body, brokerName=name, clusterName=name, brokerAddr=name + ":1")
        assert peer.ask(command).opaque == 5
        answer = peer.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 5, ext={"topic": name}))
        assert answer.code in (0, 17)
        assert peer.ask(Command(RequestCode.DELETE_TOPIC_IN_NAMESRV, 5, ext={"topic": name})).opaque == 5
        for code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER):
            assert peer.ask(Command(code, 5, ext={"brokerName": name})).opaque == 5
        gone = dict(command.ext or {})
        assert peer.ask(Command(RequestCode.UNREGISTER_BROKER, 5, ext=gone)).opaque == 5
    assert everything_outside(target.folder) == before
    assert {path.name for path in target.folder.rglob("*")} <= OUR_FILES


@pytest.mark.parametrize(
    "setting",
    [
        "kvConfigPath=/etc/cron.d/x",
        "configStorePath=../../x",
        "rocketmqHome=/",
        "configBlackList=",
        "bindAddress=0.0.0.0",
        "listenPort=1",
        "unknownKey=1",
        "serverWorkerThreads=many",
        "scanNotActiveBrokerInterval=-1\nkvConfigPath=/x",
        "\\u006bvConfigPath=/x",
        "\\uZZZZ=1",
        "a" * 1_000_000,
    ],
    ids=lambda setting: setting[:30],
)
def test_settings_that_may_not_be_changed(setting: str, target: Target, peer: Peer) -> None:
    before = peer.ask(Command(RequestCode.GET_NAMESRV_CONFIG, 5)).body
    answer = peer.ask(Command(RequestCode.UPDATE_NAMESRV_CONFIG, 5, body=setting.encode()))
    assert refused(answer)
    assert peer.ask(Command(RequestCode.GET_NAMESRV_CONFIG, 5)).body == before
