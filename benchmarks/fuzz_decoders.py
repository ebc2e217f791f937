"""`python -m benchmarks.fuzz_decoders`: decoders get invalid bytes, and may only raise their declared errors.

    samples ─▶ mutate ─▶ decoder ─▶ a value, or one of the decoder's own errors
                                 └▶ anything else, or more than `SLOW_S` seconds: a failure, with the bytes

Decoders take turns. A sample is what the encoder of the same form writes, or what Java wrote. Mutations flip bits, cut,
repeat and join pieces, and put numbers and signs that matter somewhere into the middle. `benchmarks.fuzz` does the same
to frames, with a name server behind them.

The seed is printed, and the same seed and options give the same inputs. Exit code 1 is a failure.
"""

import argparse
import json
import logging
import multiprocessing
import os
import random
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.fuzz import memory_mib
from kourou.access import addresses, plain_acl, policies, sealing
from kourou.access.errors import AccessError, AccessFileError
from kourou.broker import properties as broker_properties, property_values
from kourou.broker.admin import attributes
from kourou.broker.controlled.identity import Identity
from kourou.broker.events import Refused
from kourou.broker.settings import BrokerSettings
from kourou.broker.sql92.compiling import compile_expression
from kourou.broker.sql92.syntax import ExpressionError
from kourou.broker.timers import handles
from kourou.nameserver.configuration import kv_text, read_kv_text
from kourou.net import proxy
from kourou.net.tls import TlsLayer, TlsSettings
from kourou.protocol import (
    batch,
    bodies,
    compression,
    conf_text,
    fastjson,
    frame,
    hosts,
    ids,
    properties,
    record,
    route_limits,
    traces,
)
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, FrameError, HeaderError, KourouError, ProtocolError
from kourou.protocol.headers import REQUESTS
from kourou.protocol.message import Message
from kourou.raft import wire
from kourou.raft.events import HardState
from kourou.replication import epoch_frames, frames
from kourou.replication.records import Assembler, BadCopyError
from kourou.replication.secret import MAGIC, NONCE_SIZE, Greeting
from kourou.server import conf
from kourou.store.checkpoint import Checkpoint
from kourou.store.epochs import Epochs
from kourou.store.settings import SMALL
from kourou.store.timers.layout import TimerCheckpoint

RECORDED: Final = Path(__file__).parents[1] / "tests" / "data" / "java-5.5.0.jsonl"
SLOW_S: Final = 1.0
"""How long one input may take; the machine may be busy with other things."""

GROWN_MIB: Final = 100
SIZE_MAX: Final = 16 * 1024
"""Bytes of an input."""

UNTYPED_MAX, DIALECT_MAX = 64 * 1024, 8 * 1024  # as brokers have them
KEY: Final = bytes(32)


@dataclass(frozen=True)
class Decoder:
    """One of them."""

    name: str
    decode: Callable[[bytes], Any]
    samples: Sequence[bytes]
    errors: tuple[type[Exception], ...] = ()
    share: int = 1
    """How many inputs it gets for one of another decoder."""


# ── The decoders ────────────────────────────────────────────────────────────────────────────────────────────────────


def decoders() -> list[Decoder]:
    """All that reads bytes of others, and files that an operator or a crash may spoil."""
    return [*_protocol(), *_peers(), *_files(), *_texts()]


def _protocol() -> Iterable[Decoder]:
    recorded = _recorded()
    yield Decoder("frames", _frames, _sample_frames(recorded), (), 4)
    yield Decoder("headers", _headers, _sample_frames(recorded), (HeaderError,), 4)
    samples = [b"{}", b'{"a":{1:2},"b":[null,"1",true]}', b'{{"a":1}:{"b":2}}', b'{"$ref":"$.a"}', *recorded["body"]]
    yield Decoder("JSON", partial(fastjson.loads, dialect_max=DIALECT_MAX), samples, (BodyError,), 2)
    for kind in _all_bodies():
        decode = partial(kind.decode, untyped_max=UNTYPED_MAX, dialect_max=DIALECT_MAX)
        yield Decoder(f"body {kind.__name__}", decode, [*_default(kind), *samples[1:4]], (BodyError,))
    yield Decoder("routes", partial(route_limits.decode_route, topic="T"), recorded["body"] or [b"{}"], (BodyError,))
    records = _sample_records(recorded)
    yield Decoder("records", record.decode_records, records, (BodyError,), 4)
    yield Decoder("records with their CRC", partial(record.decode_records, crc=True), records, (BodyError,))
    yield Decoder("properties", properties.decode, [b"KEYS\1a b\2TAGS\1t\2UNIQ_KEY\1x\2"])
    two = batch.encode_batch([Message("T", b"abc", 0, {"x": "1"}), Message("T", b"d")])
    yield Decoder("batches", partial(batch.decode_batch, count_max=1_000), [two, two * 5], (BodyError,), 2)
    trace = traces.encode_trace("Pub", 1, "r", "g", "T", "id", "t", "k", "h", 1, 1, 0, "o", "true")
    yield Decoder("traces", traces.decode_traces, [trace.encode(), (trace * 3).encode()])
    for form in compression.Compression:
        packed = compression.compress(b"abc" * 500, form, 5)
        yield Decoder(f"{form.name} bodies", partial(_decompress, form), [packed], (BodyError,))
    yield Decoder("offset ids", _text(ids.decode_offset_id), [b"7F0000010000277600000000000000FF"], (ProtocolError,))
    yield Decoder("unique ids", _text(ids.decode_unique_id), [b"7F000001000018B4AAC20000000000FF"], (ProtocolError,))
    yield Decoder("hosts", _text(hosts.encode_host), [b"127.0.0.1:10911", b"[::1]:1"], (ProtocolError,))
    yield Decoder("recall handles", _text(handles.decode), [handles.Handle("T", "b", "1", "id").encode().encode()])


def _peers() -> Iterable[Decoder]:
    yield Decoder("HA reports", _whole(frames.Reports), [frames.encode_report(0), frames.encode_report(2**40)])
    batches = [frames.encode_header(0, 3) + b"abc", frames.encode_header(2**40, 0)]
    yield Decoder("HA batches", _whole(frames.Batches), batches, (ValueError,))
    hello = epoch_frames.encode_hello(epoch_frames.Hello(1, False, False))
    words = [hello, hello + epoch_frames.encode_report(7)]
    yield Decoder("HA reports with epochs", _whole(epoch_frames.SlaveWords), words, (ValueError,))
    welcome = epoch_frames.encode_welcome(9, [(1, 0), (2, 5)])
    header = epoch_frames.encode_header(0, 3, 1, 0, 0) + b"abc"
    yield Decoder(
        "HA batches with epochs", _whole(epoch_frames.MasterWords), [welcome, welcome + header], (ValueError,)
    )
    yield Decoder("copies of the log", _assemble, _sample_records(_recorded()), (BadCopyError,), 2)
    yield Decoder("Raft messages", _whole(wire.Decoder), list(_raft_messages()), (ProtocolError,), 4)
    nonce = bytes(NONCE_SIZE)
    yield Decoder("greetings of callers", partial(_greet, False), [MAGIC + nonce, MAGIC + nonce * 2], (ProtocolError,))
    yield Decoder("greetings of listeners", partial(_greet, True), [nonce * 2], (ProtocolError,))
    preambles = [b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n", b"PROXY UNKNOWN\r\n"]
    preambles.append(proxy.V2_SIGNATURE + b"\x21\x11\x00\x0c" + bytes(12))
    yield Decoder("PROXY preambles", proxy.parse, preambles, (FrameError,))
    settings = TlsSettings()
    start = TlsLayer(settings.client_context, server_side=False).start()
    yield Decoder("TLS", partial(_handshake, settings), [start], (ssl.SSLError,))


def _files() -> Iterable[Decoder]:
    yield Decoder("epochFileCheckpoint", Epochs.decode, [Epochs([(1, 0), (4, 300)]).encode()], (ValueError,), 2)
    yield Decoder("checkpoint", Checkpoint.decode, [Checkpoint().encode(), bytes(64)])
    yield Decoder("timercheck", TimerCheckpoint.decode, [bytes(200), b"\0\0\0\0\0\0\0\1" * 25])
    yield Decoder("brokerIdentity", Identity.decode, [Identity("c", "b", 1, "code").encode()], (ValueError,))
    state = msgspec.json.encode({"term": 3, "vote": "n0"})
    hard = partial(msgspec.json.decode, type=HardState)
    yield Decoder("kourou-raft.json", hard, [state], (msgspec.DecodeError, UnicodeDecodeError))
    yield Decoder("kvConfig.json", read_kv_text, [kv_text({"n": {"k": "v"}}).encode()], (BodyError,))
    yield Decoder("plain_acl.yml", _accounts, [_PLAIN_ACL, _PLAIN_ACL + b"\n&a [*a, *a]\n"], (AccessFileError,), 2)
    sealed = sealing.seal(b'{"users":{}}', KEY)
    yield Decoder("access.json, sealed", partial(_unseal, KEY), [sealed, b"{}"], (AccessFileError,))
    yield Decoder("keys", _text(partial(sealing.parse_key, origin="f")), [b"A" * 43 + b"="], (AccessFileError,))


def _texts() -> Iterable[Decoder]:
    yield Decoder(
        "properties files", _text(conf_text.loads), [_CONF, b"a=\\u0041\\\n  b\n#c\n!d\ne f\n"], (BodyError,), 2
    )
    yield Decoder("broker.conf", _text(_configure), [_CONF], (KourouError,), 2)
    yield Decoder("tls.properties", _text(_tls), [_TLS], (KourouError,), 2)
    yield Decoder("attributes", _text(attributes.parse), [b"+message.type=NORMAL,-reserve.time"], (Refused,))
    yield Decoder("resources", _text(policies.parse_resource), [b"Topic:orders-*", b"*", b"Group:g", b"Cluster:*"])
    yield Decoder("networks", _text(_networks), [b"10.0.0.0/8,192.0.2.1", b"::1", b"fd00::/8"], (AccessError,))
    patterns = [b"1.2.3-7.{4,5}", b"*", b"1.2.3.*,1.2.3.4", b"fd00::1-5:*"]
    yield Decoder("address patterns", _text(addresses.AddressPattern), patterns, (AccessFileError,))
    peers = [b"n0-127.0.0.1:1;n1-127.0.0.1:2", b"n0-[::1]:1"]
    yield Decoder("members", _text(property_values.members_of), peers, (ValueError,))
    expressions = [b"a > 1 AND (b = 'x' OR c IS NOT NULL) AND d BETWEEN 1 AND 2", b"NOT a IN ('x','y')", b"a = TRUE"]
    yield Decoder("SQL92", _text(compile_expression), expressions, (ExpressionError,), 4)


_CONF: Final = b"""brokerName=b
flushDiskType=SYNC_FLUSH
haAllowedPeers=10.0.0.0/8
maxTopics=5
aclEnable=false
messageDelayLevel=1s 5s 1m
deleteWhen=04
"""
_TLS: Final = b"""tls.server.mode=permissive
tls.server.need.client.auth=none
tls.protocols=TLSv1.2,TLSv1.3
tls.ciphers=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
tls.server.clientUser=none
"""
_PLAIN_ACL: Final = b"""globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress: 192.168.0.{1,5}
  admin: false
  defaultTopicPerm: DENY
  topicPerms:
  - a=PUB|SUB
"""


def _frames(data: bytes) -> list[Command]:
    found, _, _, error = frame.split_plain(data, frame.FRAME_SIZE_MAX)
    assert error is None or type(error) is FrameError, error
    return found


def _headers(data: bytes) -> None:
    for command in _frames(data):
        entry = REQUESTS.get(command.code)
        if entry is not None and entry.header is not None:
            entry.header.decode(command.ext)


def _text(decode: Callable[[str], Any]) -> Callable[[bytes], Any]:
    return lambda data: decode(data.decode("utf-8", "replace"))


def _whole(made: Callable[[], Any]) -> Callable[[bytes], Any]:
    """Of a decoder that gets a stream: in two pieces."""

    def decode(data: bytes) -> None:
        reader, half = made(), len(data) // 2
        for piece in (data[:half], data[half:]):
            for _ in reader.feed(piece):
                pass

    return decode


def _assemble(data: bytes) -> None:
    assembler = Assembler(0, 1024 * 1024, lambda _, __: None)
    assembler.feed(memoryview(data[: len(data) // 2]))
    assembler.feed(memoryview(data[len(data) // 2 :]))
    assert assembler.pending <= len(data)


def _greet(is_caller: bool, data: bytes) -> None:
    Greeting(b"secret", "HA", bytes(NONCE_SIZE), is_caller=is_caller).receive(data)


def _handshake(settings: TlsSettings, data: bytes) -> None:
    TlsLayer(settings.server_context, server_side=True).receive(data)


def _decompress(kind: compression.Compression, data: bytes) -> None:
    body = compression.decompress(data, compression.with_compression(0, kind), UNTYPED_MAX)
    assert len(body) <= UNTYPED_MAX


def _accounts(data: bytes) -> None:
    plain_acl.parse([("plain_acl.yml", data.decode("utf-8", "replace"))])


def _unseal(key: bytes, data: bytes) -> bytes:
    return sealing.unseal(data, key, "config/access.json")


def _configure(text: str) -> None:
    given = conf_text.loads(text)
    defaults = broker_properties.Configuration(BrokerSettings(), SMALL, broker_properties.ProcessSettings(), {})
    broker_properties.configure(defaults, given)


def _tls(text: str) -> None:
    conf.tls_settings({key: value for key, value in conf_text.loads(text).items() if key != "tls.config.file"})


def _networks(text: str) -> None:
    addresses.parse_networks(text.split(","))


# ── Samples ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _recorded() -> dict[str, list[bytes]]:
    """What Java wrote, by kind."""
    found: dict[str, list[bytes]] = {"body": [], "frame": [], "record": []}
    for line in RECORDED.read_text().splitlines():
        entry = json.loads(line)
        if entry["hex"] and len(entry["hex"]) < 8_000:
            found.setdefault(entry["kind"], []).append(bytes.fromhex(entry["hex"]))
    return found


def _sample_frames(recorded: dict[str, list[bytes]]) -> list[bytes]:
    made = [frame.encode(Command(code, 1, ext={"topic": "T", "a": "1"}, body=b"{}")) for code in REQUESTS]
    return [*recorded["frame"], *made]


def _sample_records(recorded: dict[str, list[bytes]]) -> list[bytes]:
    return recorded["record"] or [bytes(200)]


def _all_bodies() -> list[type[Any]]:
    found = [value for value in vars(bodies).values() if isinstance(value, type) and hasattr(value, "decode")]
    return sorted(set(found), key=lambda kind: kind.__name__)


def _raft_messages() -> Iterable[bytes]:
    """A greeting, and each kind of message with small numbers."""
    greeting = wire.encode(wire.Hello("g", "n0", "n1"))
    yield greeting
    for tag in range(1, 12):
        for size in (4, 6, 8):
            message = msgspec.msgpack.encode([tag, "n0", *range(size)])
            yield greeting + (4 + len(message)).to_bytes(4) + len(message).to_bytes(4) + message


def _default(kind: type[Any]) -> list[bytes]:
    try:
        return [kind().encode()]
    except TypeError:  # it has fields that must be given
        return [b"{}"]


# ── Mutations ───────────────────────────────────────────────────────────────────────────────────────────────────────

_SIGNS: Final = [
    *(b"\0", b"\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\0\0\0\1", b"\1\2"),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u0000", b":", b",", b"null", b"-1", b"1e309", b"9" * 40, b"$ref"),
    *(b"\n", b"\r\n", b"=", b";", b"'", b"(", b")", b"%", b"*", b"-", b"/", b"&a", b"*a", b"!!python/object:os.system"),
    *("é🚀٣²".encode(), b"\xed\xa0\x80", b"\x1b[2J", b"\xc2\x9b", b"../", b"NaN", b" AND ", b" IN ", b" OR NOT "),
]


class Mutator:
    """Makes inputs of samples, by a seed."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)

    def input(self, samples: Sequence[bytes]) -> bytes:
        chance = self._chance
        data = bytearray(chance.choice(samples))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            self._change(data, samples)
        return bytes(data[:SIZE_MAX])

    def _change(self, data: bytearray, samples: Sequence[bytes]) -> None:
        chance = self._chance
        at = chance.randrange(len(data) + 1)
        match chance.randrange(8):
            case 0 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case 1 if data:
                data[at % len(data)] = chance.randrange(256)
            case 2:
                del data[at:]
            case 3:
                del data[at : at + chance.randrange(1, 9)]
            case 4:
                data[at:at] = chance.choice(_SIGNS)
            case 5:
                sign = chance.choice(_SIGNS)
                data[at : at + len(sign)] = sign
            case 6:
                piece = data[at : at + chance.randrange(1, 40)]
                data[at:at] = piece * chance.choice((1, 1, 2, 50))
            case _:
                other = chance.choice(samples)
                data[at:] = other[chance.randrange(len(other) + 1) :]


# ── The run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Outcome:
    """What one process has seen."""

    inputs: int = 0
    seconds: float = 0.0
    refused: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, str] = (0.0, "")
    grown_mib: float = 0.0
    failure: str | None = None

    def add(self, other: "Outcome") -> None:
        self.inputs += other.inputs
        self.seconds = max(self.seconds, other.seconds)
        self.refused += other.refused
        self.slowest = max(self.slowest, other.slowest)
        self.grown_mib = max(self.grown_mib, other.grown_mib)
        self.failure = self.failure or other.failure


def run(seed: int, count: int, number: int, only: str = "", made: Sequence[Decoder] | None = None) -> Outcome:
    """One process's share. `made`: other decoders than all."""
    logger = logging.getLogger("kourou")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return _run(seed, count, number, only, made)
    finally:
        logger.setLevel(level)


def _run(seed: int, count: int, number: int, only: str, made: Sequence[Decoder] | None) -> Outcome:
    mutator, outcome, first_mib = Mutator(f"{seed}/{number}"), Outcome(), 0.0
    turns = [one for one in made or decoders() if only in one.name for _ in range(one.share)]
    began = time.perf_counter()
    for outcome.inputs in range(1, count + 1):
        decoder = turns[outcome.inputs % len(turns)]
        data = mutator.input(decoder.samples)
        started = time.process_time()
        try:
            decoder.decode(data)
        except decoder.errors:
            outcome.refused[decoder.name] += 1
        except Exception as error:
            outcome.failure = f"{decoder.name} raised {error!r} for {data.hex()}"
            break
        took = time.process_time() - started
        if took > outcome.slowest[0]:
            outcome.slowest = took, decoder.name
            if took > SLOW_S:
                outcome.failure = f"{decoder.name} took {took:.1f} s for {data.hex()}"
                break
        if outcome.inputs == count // 5:
            first_mib = memory_mib()
    outcome.grown_mib = memory_mib() - (first_mib or memory_mib())
    if outcome.failure is None and outcome.grown_mib > GROWN_MIB:
        outcome.failure = f"the process grew by {outcome.grown_mib:.0f} MiB"
    outcome.seconds = time.perf_counter() - began
    return outcome


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz_decoders", description="Inputs for all decoders.")
    parser.add_argument("--count", type=int, default=10_000_000, help="inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="for the same inputs again (default: a new one)")
    parser.add_argument("--only", default="", help="a part of the names of decoders")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s")
    options = parser.parse_args(words)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    print(f"fuzz: --seed {seed} --count {options.count} --processes {options.processes}", flush=True)
    share, total = options.count // options.processes, Outcome()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(run, seed, share, number, options.only) for number in range(options.processes)]
        for job in jobs:
            total.add(job.result())
    rate = total.inputs / max(total.seconds, 0.001)
    print(f"{total.inputs} inputs in {total.seconds:.1f} s, {rate:.0f} a second, by {len(decoders())} decoders")
    print(f"  {total.refused.total():9}  refused")
    print(f"  {total.slowest[0] * 1000:9.1f}  ms: the slowest, by {total.slowest[1]}")
    print(f"  {total.grown_mib:9.1f}  MiB that a process grew; {GROWN_MIB} are allowed")
    print("fuzz: nothing but the decoders' own errors" if total.failure is None else f"fuzz: FAILED: {total.failure}")
    return 0 if total.failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
