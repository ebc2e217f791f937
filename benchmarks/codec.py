"""What a frame costs: bytes to a command, a command to bytes, and both; plain and compiled, in CPU time.

Decoding is `split` on the bytes of one frame, encoding makes the whole frame again. Each round times a loop of about
fifty milliseconds; the median of the rounds counts, and the best one tells how quiet the machine was.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from statistics import median

from benchmarks.report import Bar, Result, table
from kourou.protocol import command, frame
from kourou.protocol.codes import CommandFlag, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.frame import FRAME_SIZE_MAX

SEND = "SEND_MESSAGE_V2"
SEND_LIMIT_US = 2.0

ROUND_NS = 50_000_000
ROUNDS, QUICK_ROUNDS = 21, 5

Split = Callable[[bytes, int], tuple[list[Command], int, int, object]]
Encode = Callable[[Command], bytes]
Step = Callable[[], object]


# ── The frames, field by field as the Java client and broker write them ─────────────────────────────────────────────

_PROPERTIES = (
    "KEYS\x01order-1000042\x02UNIQ_KEY\x017F0000010A2B4B1AC6927C5A3F1E0042\x02CLUSTER\x01DefaultCluster\x02"
    "WAIT\x01true\x02TAGS\x01paid\x02"
)

_SEND_FIELDS = {
    "a": "orders-producer",
    "b": "OrderEvents",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": _PROPERTIES,
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "false",
    "n": "broker-a",
}

_PULL_FIELDS = {
    "queueId": "3",
    "maxMsgBytes": "2147483647",
    "lo": "false",
    "maxMsgNums": "32",
    "sysFlag": "3",
    "commitOffset": "123456",
    "suspendTimeoutMillis": "15000",
    "subscription": "paid || new",
    "topic": "OrderEvents",
    "queueOffset": "123488",
    "expressionType": "TAG",
    "subVersion": "1700000000000",
    "consumerGroup": "billing",
}

_PULLED_FIELDS = {
    "suggestWhichBrokerId": "0",
    "nextBeginOffset": "123520",
    "maxOffset": "200000",
    "minOffset": "0",
    "topicSysFlag": "0",
    "groupSysFlag": "0",
}


def _frames() -> dict[str, bytes]:
    java = "JAVA"
    send = Command(RequestCode.SEND_MESSAGE_V2, 4711, language=java, ext=_SEND_FIELDS, body=bytes(range(128)))
    pull = Command(RequestCode.PULL_MESSAGE, 4712, language=java, ext=_PULL_FIELDS)
    pulled = Command(
        0, 4712, CommandFlag.RESPONSE, language=java, remark="FOUND", ext=_PULLED_FIELDS, body=bytes(32 * 256)
    )
    route = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 4713, language=java, ext={"topic": "OrderEvents"})
    binary_send = Command(send.code, send.opaque, language=java, ext=_SEND_FIELDS, body=send.body, binary=True)
    return {
        SEND: command.encode(send),
        "PULL_MESSAGE": command.encode(pull),
        "PULL_MESSAGE, answer of 8 KiB": command.encode(pulled),
        "GET_ROUTEINFO_BY_TOPIC": command.encode(route),
        f"{SEND}, binary header": command.encode(binary_send),
    }


# ── Measuring ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Cost:
    """CPU time of one step, in microseconds, over all rounds."""

    rounds: list[float]

    @property
    def usual(self) -> float:
        return median(self.rounds)

    @property
    def best(self) -> float:
        return min(self.rounds)

    def __str__(self) -> str:
        return f"{self.usual:.2f} ({self.best:.2f})"


def _cpu_ns(step: Step, count: int) -> int:
    start = time.process_time_ns()
    for _ in repeat(None, count):
        step()
    return time.process_time_ns() - start


def measure(steps: dict[str, Step], rounds: int, round_ns: int = ROUND_NS) -> dict[str, Cost]:
    """The cost of each step. The steps take turns, so that a slow second of the machine meets them all."""
    counts = {name: max(1, round_ns * 1000 // max(1, _cpu_ns(step, 1000))) for name, step in steps.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            taken[name].append(_cpu_ns(step, counts[name]) / counts[name] / 1000)
    return {name: Cost(costs) for name, costs in taken.items()}


def _steps(data: bytes, split: Split, encode: Encode) -> dict[str, Step]:
    commands, used, _, error = split(data, FRAME_SIZE_MAX)
    assert used == len(data) and error is None, error
    (one,) = commands
    assert encode(one) == data

    def both() -> bytes:
        return encode(split(data, FRAME_SIZE_MAX)[0][0])

    return {
        "decode": lambda: split(data, FRAME_SIZE_MAX),
        "encode": lambda: encode(one),
        "both": both,
    }


def _backends() -> dict[str, tuple[Split, Encode]]:
    backends: dict[str, tuple[Split, Encode]] = {"plain": (frame.split_plain, command.encode)}
    try:
        from kourou.protocol import _wire
    except ImportError:
        return backends
    return {**backends, "compiled": (_wire.split, _wire.encode)}


def run(quick: bool) -> Result:
    """Measures all frames with every backend that is here."""
    result = Result("Codec: CPU time per frame")
    rows: list[list[str]] = []
    compiled_send: float | None = None
    for name, data in _frames().items():
        steps = {
            (backend, what): step
            for backend, (split, encode) in _backends().items()
            for what, step in _steps(data, split, encode).items()
        }
        costs = measure({" ".join(key): step for key, step in steps.items()}, QUICK_ROUNDS if quick else ROUNDS)
        for backend in _backends():
            three = [costs[f"{backend} {what}"] for what in ("decode", "encode", "both")]
            rows.append([name, str(len(data)), backend, *map(str, three)])
            result.data[f"{name}, {backend}"] = {
                what: {"median_us": cost.usual, "best_us": cost.best}
                for what, cost in zip(("decode", "encode", "both"), three, strict=True)
            }
            if (name, backend) == (SEND, "compiled"):
                compiled_send = three[2].usual
    head = ["frame", "bytes", "backend", "decode µs", "encode µs", "both µs"]
    result.text = ["microseconds of CPU: median of the rounds (best)", "", table(head, rows)]
    result.bars = [Bar(f"{SEND}, decode and encode, compiled", compiled_send, SEND_LIMIT_US, "µs")]
    return result
