"""`python -m benchmarks.fuzz`: a million mutated frames. What goes in is wrong; what comes out must still be right.

    corpus ─▶ mutate ─▶ both codecs ─▶ equal commands, or equal FrameErrors
                    │              └▶ NameServer.step ─▶ answers, never an exception; its tables hold together
                    └─▶ a live server's socket ─▶ answers or the end of that connection; another one is served all along

The corpus has every request that is declared, in both header forms, with plausible values and bodies, answers, and the
frames that Java classes wrote. Half of the mutations change bytes, and mostly fix the lengths afterwards so that the
change gets past the framing; the other half change fields and bodies, so that the frame is whole and only nonsense.

Memory is watched, the seed is printed, and the same seed and options give the same frames. Exit code 1 is a failure,
whose frame is printed.
"""

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from kourou import _backend
from kourou.nameserver.events import (
    Asked,
    Event,
    Gone,
    NotSaved,
    Reply,
    Save,
    Saved,
    Tick,
    Turn,
)
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.net.errors import ConnectFailedError
from kourou.protocol import bodies, command, frame
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, LocalProtocolError
from kourou.protocol.headers import REQUESTS
from kourou.server import nameserver as server_module

_wire: ModuleType | None
try:
    from kourou.protocol import _wire
except ImportError:
    _wire = None

LIVE_SHARE = 10  # one frame in so many goes to a live server
STREAM = 16  # frames to one connection of the live server; all but the last can be cut out of the stream
MACHINE_LIFE = 20_000  # frames for one machine, so that memory means leaks and not brokers
MEMORY_MIB = 150  # how much a process may grow after its first fifth
ANSWER_S = 30.0  # how long the ordinary client waits

RECORDED = Path(__file__).parents[1] / "tests" / "data" / "java-5.5.0.jsonl"


class FailureError(Exception):
    """Something came out that may not: the message says what, `data` is the frame."""

    def __init__(self, what: str, data: bytes) -> None:
        super().__init__(what)
        self.data = data


# ── What is mutated ─────────────────────────────────────────────────────────────────────────────────────────────────

TOPIC = {"topicName": "T", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0, "order": False}
VERSION = {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000}
REGISTRATION = json.dumps(
    {
        "filterServerList": ["127.0.0.1:1"],
        "topicConfigSerializeWrapper": {
            "dataVersion": VERSION,
            "mappingDataVersion": VERSION,
            "topicConfigTable": {name: {**TOPIC, "topicName": name} for name in ("T", "U", "%RETRY%g", "TBW102")},
            "topicQueueMappingInfoMap": {"T": {"topic": "T", "bname": "b", "currIdMap": {"0": 0}, "totalQueues": 1}},
            "topicQueueMappingDetailMap": {},
        },
    }
).encode()
COMPRESSED = bodies.RegisterBrokerBody.decode(REGISTRATION).compress()
ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:1"},"brokerName":"b","cluster":"c"}],'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":4,"writeQueueNums":4}]}'
)
BODIES = [
    b"",
    b"{}",
    REGISTRATION,
    COMPRESSED,
    ROUTE,
    json.dumps(VERSION).encode(),
    b"a=b\nenableTopicList=true\n",
    b"\0" * 64,
]
LIKELY = {
    "brokerName": "b",
    "brokerAddr": "127.0.0.1:1",
    "brokerId": "0",
    "clusterName": "c",
    "cluster": "c",
    "haServerAddr": "127.0.0.1:2",
    "enableActingMaster": "true",
    "heartbeatTimeoutMillis": "1000",
    "compressed": "false",
    "bodyCrc32": "0",
    "topic": "T",
    "namespace": "ORDER_TOPIC_CONFIG",
    "key": "T",
    "value": "b:4",
}
ODD_TEXT = [
    *("", " ", "0", "1", "-1", "true", "TRUE", "null", "NaN", "1e9", "2147483648", "-9223372036854775809", "9" * 60),
    *(
        "é",
        "🚀",
        "\x00",
        "\x01\x02",
        "\n",
        '"',
        "\\",
        "\\u0000",
        "../..",
        "%s",
        "T",
        "b",
        "c",
        "127.0.0.1:1",
        "x" * 300,
    ),
]
ODD_BYTES = [
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'"',
        b"\\",
        b"\\u",
        b"\\ud800",
        b"null",
        b"true",
        b"-",
        b"1e999",
        b"0" * 20,
        b"\xff",
    ),
    *(
        b"\xed\xa0\x80",
        b"\xc0\x80",
        b"\0\0\0\0",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b'{"$ref":"$"}',
        b"{1:2}",
        b"[" * 200,
    ),
]


def corpus() -> list[Command]:
    """Valid commands of all kinds."""
    commands: list[Command] = []
    for code, info in REQUESTS.items():
        names = [each.encode_name for each in msgspec.structs.fields(info.header)] if info.header else []
        ext = {name: LIKELY.get(name, "1") for name in names}
        body = {RequestCode.REGISTER_BROKER: REGISTRATION, RequestCode.REGISTER_TOPIC_IN_NAMESRV: ROUTE}.get(
            info.code, json.dumps(VERSION).encode() if info.code is RequestCode.QUERY_DATA_VERSION else b""
        )
        commands.append(Command(code, 1, ext=ext or None, body=body, version=513, language="JAVA"))
        if code <= 0x7FFF:
            commands.append(msgspec.structs.replace(commands[-1], binary=True))
        if "server" in info.direction.value:  # those that the machine serves, more often
            commands += [commands[-1], commands[-2]] * 10
    commands.append(Command(103, 1, ext=dict(LIKELY, compressed="true"), body=COMPRESSED, version=513))
    hot = b"enableTopicList=true\norderMessageEnable=true\nsupportActingMaster=true\nnotifyMinBrokerIdChanged=true\n"
    commands.append(Command(318, 1, body=hot))
    commands += [Command(0, 1, 1, remark="r", ext={"a": "b"}), Command(105, -1, 2, remark="订单 🚀", binary=True)]
    if RECORDED.exists():
        lines = (json.loads(line) for line in RECORDED.read_text().splitlines())
        frames = [bytes.fromhex(line["hex"]) for line in lines if line["kind"] == "frame"]
        commands += [found for data in frames for found in frame.split_plain(data, frame.FRAME_SIZE_MAX)[0]]
    return commands


class Mutator:
    """Wrong frames without end, all from one seed."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._commands = corpus()
        self._frames = [command.encode(made) for made in self._commands]
        self._bytes_changes: list[Callable[[bytearray], None]] = [
            self._flip_bit,
            self._put_odd_bytes,
            self._cut_out,
            self._repeat,
            self._splice,
            self._change_length,
            self._cut_off,
        ]
        self._field_changes: list[Callable[[Command], None]] = [
            self._odd_value,
            self._odd_value,
            self._odd_field,
            self._lose_field,
            self._other_body,
            self._spoil_body,
            self._other_head,
        ]

    def frame(self, *, whole: bool = False) -> bytes:
        """The next one; with `whole`, one that can be cut out of its stream."""
        chance = self._chance
        if whole or chance.random() < 0.5:
            return self._changed_fields()
        data = bytearray(chance.choice(self._frames))
        for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
            chance.choice(self._bytes_changes)(data)
        if chance.random() < 0.7 and len(data) >= 8:
            _mend_lengths(data, chance)
        return bytes(data)

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """The same bytes as a network might bring them."""
        at = 0
        while at < len(data):
            size = self._chance.choice((1, 3, 4, 7, 50, 1000, 65536))
            yield data[at : at + size]
            at += size

    def now(self, share: int) -> bool:
        """True one time in `share`."""
        return self._chance.randrange(share) == 0

    # ── Bytes

    def _at(self, data: bytearray) -> int:
        return self._chance.randrange(len(data) + 1)

    def _flip_bit(self, data: bytearray) -> None:
        if data:
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)

    def _put_odd_bytes(self, data: bytearray) -> None:
        at, odd = self._at(data), self._chance.choice(ODD_BYTES)
        data[at : at + (len(odd) if self._chance.random() < 0.5 else 0)] = odd

    def _cut_out(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + self._chance.choice((1, 1, 2, 4, 30))]

    def _repeat(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = data[at : at + self._chance.choice((1, 4, 20, 100))] * self._chance.choice((1, 1, 2, 20))

    def _splice(self, data: bytearray) -> None:
        other = self._chance.choice(self._frames)
        data[self._at(data) :] = other[self._chance.randrange(len(other)) :]

    def _change_length(self, data: bytearray) -> None:
        at = self._chance.choice((0, 4, 4, 8))
        value = self._chance.choice(
            (0, 1, 3, 4, 5, len(data), len(data) - 4, len(data) - 8, 1 << 24, 0x7FFFFFFF, 0xFFFFFFFF)
        )
        data[at : at + 4] = (value & 0xFFFFFFFF).to_bytes(4)

    def _cut_off(self, data: bytearray) -> None:
        del data[self._at(data) :]

    # ── Fields

    def _changed_fields(self) -> bytes:
        base = self._chance.choice(self._commands)
        made = msgspec.structs.replace(base, ext=dict(base.ext or {}))
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            self._chance.choice(self._field_changes)(made)
        try:
            return frame.encode(made)
        except LocalProtocolError:
            made.binary = False
            return frame.encode(made)

    def _odd_value(self, made: Command) -> None:
        if made.ext:
            made.ext[self._chance.choice(list(made.ext))] = self._chance.choice(ODD_TEXT)

    def _odd_field(self, made: Command) -> None:
        made.ext = dict(made.ext or {}, **{self._chance.choice([*LIKELY, *ODD_TEXT]): self._chance.choice(ODD_TEXT)})

    def _lose_field(self, made: Command) -> None:
        if made.ext:
            del made.ext[self._chance.choice(list(made.ext))]

    def _other_body(self, made: Command) -> None:
        made.body = self._chance.choice(BODIES)

    def _spoil_body(self, made: Command) -> None:
        data = bytearray(made.body or self._chance.choice(BODIES))
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            self._chance.choice(self._bytes_changes)(data)
        made.body = bytes(data)

    def _other_head(self, made: Command) -> None:
        match self._chance.randrange(6):
            case 0:
                made.code = self._chance.choice((*REQUESTS, 0, -1, 2**31 - 1))
            case 1:
                made.flag = self._chance.choice((0, 1, 2, 3, -1, 2**31 - 1))
            case 2:
                made.version = self._chance.choice((0, 1, 36, 37, 317, 400, 401, 412, 413, 513, -1, 32767))
            case 3:
                made.opaque = self._chance.choice((0, -1, 2**31 - 1, -(2**31)))
            case 4:
                made.language = self._chance.choice(("JAVA", "GO", "CPP", "COBOL", "🚀"))
            case _:
                made.binary = not made.binary


def _mend_lengths(data: bytearray, chance: random.Random) -> None:
    """Make the length fields fit, so that what is wrong lies behind them."""
    data[:4] = (len(data) - 4).to_bytes(4)
    word = int.from_bytes(data[4:8])
    kind, size = word >> 24, word & 0xFFFFFF
    if kind > 1 or size > len(data) - 8:
        kind, size = chance.choice((0, 0, 1)), chance.randrange(len(data) - 7)
        data[4:8] = (kind << 24 | size).to_bytes(4)


# ── What is held to it ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Outcome:
    """What one process has seen."""

    frames: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    grown_mib: float = 0.0
    slowest_s: float = 0.0  # the machine's longest step
    longest_answer_s: float = 0.0  # to the ordinary client of the live server
    failure: str | None = None

    def add(self, other: "Outcome") -> None:
        self.frames += other.frames
        self.seconds = max(self.seconds, other.seconds)
        self.counts += other.counts
        self.grown_mib = max(self.grown_mib, other.grown_mib)
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.longest_answer_s = max(self.longest_answer_s, other.longest_answer_s)
        self.failure = self.failure or other.failure


class Codecs:
    """Both codecs on the same bytes."""

    def __init__(self, outcome: Outcome, mutator: Mutator) -> None:
        self._counts = outcome.counts
        self._mutator = mutator

    def decode(self, data: bytes) -> list[Command]:
        found, used, need, error = self._split(frame.split_plain, data)
        if _wire is not None:
            twin = self._split(_wire.split, data)
            if twin[:3] != (found, used, need) or str(twin[3]) != str(error):
                raise FailureError(f"the codecs differ: {twin} and {(found, used, need, error)}", data)
        self._counts["commands"] += len(found)
        if error is not None:
            self._counts["frame errors"] += 1
        elif used < len(data):
            self._counts["unfinished"] += 1
        if self._mutator.now(10):
            self._in_pieces(data, found, error)
            self._again(found, data)
        return found

    def _split(
        self, split: Callable[[bytes, int], Any], data: bytes
    ) -> tuple[list[Command], int, int, FrameError | None]:
        try:
            found, used, need, error = split(data, frame.FRAME_SIZE_MAX)
        except Exception as fault:
            raise FailureError(f"a decoder raised {fault!r}", data) from fault
        if error is not None and type(error) is not FrameError:
            raise FailureError(f"a decoder gave {error!r}", data)
        return found, used, need, error

    def _in_pieces(self, data: bytes, wanted: list[Command], error: FrameError | None) -> None:
        decoder = frame.Decoder()
        found = [made for piece in self._mutator.pieces(data) for made in decoder.feed(piece)]
        if found != wanted or str(decoder.error) != str(error) or decoder.buffered > len(data):
            raise FailureError("pieces give something else than the whole", data)

    def _again(self, found: list[Command], data: bytes) -> None:
        """What was understood can be sent on, and is understood in the same way."""
        for made in found:
            sent = frame.encode(made)
            if frame.split_plain(sent, len(sent))[0] != [made]:
                raise FailureError(f"{made} is not what is read after it is written", data)


class Machine:
    """A name server's machine that serves all these commands, and the driver's part around it."""

    def __init__(self, outcome: Outcome, mutator: Mutator) -> None:
        self._outcome = outcome
        self._mutator = mutator
        self._now_ms = 1_700_000_000_000
        self._age = 0
        self._machine = self._new()

    def _new(self) -> NameServer:
        return NameServer(Settings(kv_config_path="kv", config_store_path="conf"), {}, self._now_ms)

    def serve(self, commands: list[Command], data: bytes) -> None:
        self._age += 1
        connection = self._age % 50
        events: list[Event] = [Asked(connection, made) for made in commands if not made.is_response]
        if self._mutator.now(50):
            events.append(Gone(connection))
        if self._mutator.now(200):
            self._now_ms += 60_000
            events.append(Tick())
        try:
            self._run(events)
            if self._age >= MACHINE_LIFE:
                self._machine.check()
                self._machine, self._age = self._new(), 0
        except Exception as fault:
            raise FailureError(f"the machine raised {fault!r}", data) from fault

    def _run(self, events: list[Event]) -> None:
        self._now_ms += 1
        while events:
            began = time.perf_counter()
            effects = self._machine.step(events, self._now_ms)
            self._outcome.slowest_s = max(self._outcome.slowest_s, time.perf_counter() - began)
            events = []
            for effect in effects:
                if isinstance(effect, Reply):
                    frame.encode(effect.command)
                    self._outcome.counts[f"answered with {effect.command.code}"] += 1
                elif isinstance(effect, Save):
                    saved = Saved(effect.document, effect.version)
                    events.append(NotSaved(effect.document, effect.version, "full") if self._mutator.now(5) else saved)
                else:
                    self._outcome.counts[f"effect {type(effect).__name__}"] += 1
            if self._machine.is_busy:
                events.append(Turn())


class LiveServer:
    """A name server on a socket of its own, in a thread; no request makes it connect to another address."""

    def __init__(self, outcome: Outcome, *, uvloop: bool) -> None:
        self._outcome = outcome
        self._loop = _new_loop(uvloop=uvloop)
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._port = 0
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(ANSWER_S)
        self._client = self._connect()
        self._opaque = 0

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _, context: self._faults.append(str(context)))
        logging.getLogger("kourou").addHandler(_Faults(self._faults))
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        async def nobody(*_: object, **__: object) -> None:
            raise ConnectFailedError("a fuzz run talks to nobody")

        vars(server_module)["connect"] = nobody
        with tempfile.TemporaryDirectory() as folder:
            settings = Settings(listen_port=0, kv_config_path=f"{folder}/kv.json", config_store_path=f"{folder}/conf")
            async with server_module.NameServerProcess(settings) as process:
                self._port = process.listener.port
                self._ready.set()
                await self._stop.wait()

    def _connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), ANSWER_S)

    def attack(self, data: bytes) -> None:
        """Send a stream on a new connection and read to its end; then the ordinary client must be served."""
        with self._connect() as peer, suppress(ConnectionError, OSError):
            reader = threading.Thread(target=_read_all, args=(peer, self._outcome.counts), daemon=True)
            reader.start()
            try:
                peer.sendall(data)
                peer.shutdown(socket.SHUT_WR)
            finally:
                reader.join(ANSWER_S)
            if reader.is_alive():
                raise FailureError("the live server neither answers nor ends the connection", data)
        self._ask(data)

    def _ask(self, data: bytes) -> None:
        self._opaque += 1
        began = time.perf_counter()
        decoder = frame.Decoder()
        try:
            self._client.sendall(frame.encode(Command(RequestCode.GET_NAMESRV_CONFIG, self._opaque)))
            answers: list[Command] = []
            while not answers:
                received = self._client.recv(65536)
                if not received:
                    raise FailureError("the ordinary client's connection was ended", data)
                answers = decoder.feed(received)
        except OSError as fault:
            raise FailureError(f"the ordinary client was not served: {fault}", data) from fault
        self._outcome.longest_answer_s = max(self._outcome.longest_answer_s, time.perf_counter() - began)
        if (answers[0].code, answers[0].opaque) != (0, self._opaque):
            raise FailureError(f"the ordinary client was answered {answers[0]}", data)
        if self._faults:
            raise FailureError(f"the live server had an accident: {self._faults[0]}", data)

    def close(self) -> None:
        self._client.close()
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(ANSWER_S)


class _Faults(logging.Handler):
    """What the server's thread logs as an error is a failure. To be made in that thread."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._faults = faults
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self._faults.append(self.format(record))


def _read_all(peer: socket.socket, counts: Counter[str]) -> None:
    decoder = frame.Decoder()
    with suppress(OSError):
        while data := peer.recv(65536):
            counts["answers of the live server"] += len(decoder.feed(data))


def _new_loop(*, uvloop: bool) -> asyncio.AbstractEventLoop:
    if uvloop:
        with suppress(ImportError):
            import uvloop as library

            return library.new_event_loop()
    return asyncio.new_event_loop()


# ── The run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def run(seed: int, count: int, number: int) -> Outcome:
    """One process's share."""
    logging.disable(logging.WARNING)
    mutator, outcome = Mutator(f"{seed}/{number}"), Outcome()
    codecs, machine = Codecs(outcome, mutator), Machine(outcome, mutator)
    live = LiveServer(outcome, uvloop=number % 2 == 0)
    began, first_mib, stream = time.perf_counter(), 0.0, bytearray()
    try:
        for outcome.frames in range(1, count + 1):
            if outcome.frames % LIVE_SHARE:
                data = mutator.frame()
                machine.serve(codecs.decode(data), data)
            elif outcome.frames % (LIVE_SHARE * STREAM):
                stream += mutator.frame(whole=True)
            else:
                live.attack(bytes(stream + mutator.frame()))
                stream.clear()
            if outcome.frames == count // 5:
                first_mib = memory_mib()
        outcome.grown_mib = memory_mib() - first_mib
        live.close()
    except FailureError as failure:
        outcome.failure = f"{failure}\nprocess {number}, frame {outcome.frames}: {failure.data[:4096].hex()}"
    outcome.seconds = time.perf_counter() - began
    return outcome


def memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description="Mutated frames, and what they do.")
    parser.add_argument("--count", type=int, default=1_000_000, help="frames (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="for the same frames again (default: a new one)")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="default: %(default)s")
    options = parser.parse_args(words)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    print(
        f"fuzz: --seed {seed} --count {options.count} --processes {options.processes} ({_backend.name()})", flush=True
    )

    share, total = options.count // options.processes, Outcome()
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        for outcome in pool.map(run, *zip(*((seed, share, n) for n in range(options.processes)), strict=True)):
            total.add(outcome)

    rate = total.frames / total.seconds
    print(f"{total.frames} frames in {total.seconds:.1f} s, {rate:.0f} a second")
    for name, count in sorted(total.counts.items()):
        print(f"  {count:9}  {name}")
    print(f"  {total.slowest_s * 1000:9.1f}  ms: the machine's longest step")
    print(f"  {total.longest_answer_s * 1000:9.1f}  ms: the longest wait of the live server's ordinary client")
    print(f"  {total.grown_mib:9.1f}  MiB that a process grew after its first fifth; {MEMORY_MIB} are allowed")
    if total.failure is None and total.grown_mib > MEMORY_MIB:
        total.failure = "memory grows"
    print("fuzz: nothing but the protocol's own errors" if total.failure is None else f"fuzz: FAILED: {total.failure}")
    return 0 if total.failure is None else 1


if __name__ == "__main__":
    sys.exit(main())
