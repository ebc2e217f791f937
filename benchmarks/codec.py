"""What a frame costs: bytes to a command, a command to bytes, and both; plain and compiled, in CPU time.

Decoding is `split` on the bytes of one frame, encoding makes the whole frame again. What differs between the requests
of a client (ids, times, queues, offsets) differs here too, so that nothing is cheap only because it was seen a moment
ago. Each round times a loop of about fifty milliseconds; the median of the rounds counts, and the best one tells how
quiet the machine was.
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
VARIANTS = 64

Split = Callable[[bytes, int], tuple[list[Command], int, int, object]]
Encode = Callable[[Command], bytes]
Step = Callable[[], object]


# ── The frames, field by field as the Java client and broker write them ─────────────────────────────────────────────


def _send(n: int, *, binary: bool = False) -> Command:
    unique_id = f"7F0000010A2B4B1AC6927C5A{0x3F1E0042 + 31 * n:08X}"
    properties = {"KEYS": f"order-{1000042 + n}", "UNIQ_KEY": unique_id, "CLUSTER": "DefaultCluster", "WAIT": "true"}
    fields = {
        "a": "orders-producer",
        "b": "OrderEvents",
        "c": "TBW102",
        "d": "4",
        "e": str(n % 8),
        "f": "0",
        "g": str(1_700_000_000_000 + 17 * n),
        "h": "0",
        "i": "".join(f"{key}\x01{value}\x02" for key, value in {**properties, "TAGS": "paid"}.items()),
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "false",
        "n": "broker-a",
    }
    body = bytes(range(n, n + 128))
    return Command(RequestCode.SEND_MESSAGE_V2, 4711 + n, language="JAVA", ext=fields, body=body, binary=binary)


def _pull(n: int) -> Command:
    fields = {
        "queueId": str(n % 8),
        "maxMsgBytes": "2147483647",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": str(123_456 + 32 * n),
        "suspendTimeoutMillis": "15000",
        "subscription": "paid || new",
        "topic": "OrderEvents",
        "queueOffset": str(123_488 + 32 * n),
        "expressionType": "TAG",
        "subVersion": "1700000000000",
        "consumerGroup": "billing",
    }
    return Command(RequestCode.PULL_MESSAGE, 4711 + n, language="JAVA", ext=fields)


def _pulled(n: int) -> Command:
    fields = {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": str(123_520 + 32 * n),
        "maxOffset": str(200_000 + n),
        "minOffset": "0",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    flag = CommandFlag.RESPONSE
    return Command(0, 4711 + n, flag, language="JAVA", remark="FOUND", ext=fields, body=bytes(32 * 256))


def _route(n: int) -> Command:
    fields = {"topic": f"OrderEvents-{n:05d}"}
    return Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 4711 + n, language="JAVA", ext=fields)


KINDS: dict[str, Callable[[int], Command]] = {
    SEND: _send,
    "PULL_MESSAGE": _pull,
    "PULL_MESSAGE, answer of 8 KiB": _pulled,
    "GET_ROUTEINFO_BY_TOPIC": _route,
    f"{SEND}, binary header": lambda n: _send(n, binary=True),
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
    """The cost of each step, which does the same for all `VARIANTS` frames.

    The steps take turns, so that a slow second of the machine meets them all.
    """
    counts = {name: max(1, round_ns * 10 // max(1, _cpu_ns(step, 10))) for name, step in steps.items()}
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            taken[name].append(_cpu_ns(step, counts[name]) / counts[name] / VARIANTS / 1000)
    return {name: Cost(costs) for name, costs in taken.items()}


def _steps(frames: list[bytes], split: Split, encode: Encode) -> dict[str, Step]:
    commands = [_only(split, data) for data in frames]
    assert [encode(one) for one in commands] == frames

    def decode_all() -> None:
        for data in frames:
            split(data, FRAME_SIZE_MAX)

    def encode_all() -> None:
        for one in commands:
            encode(one)

    def do_both() -> None:
        for data in frames:
            encode(split(data, FRAME_SIZE_MAX)[0][0])

    return {"decode": decode_all, "encode": encode_all, "both": do_both}


def _only(split: Split, data: bytes) -> Command:
    commands, used, _, error = split(data, FRAME_SIZE_MAX)
    assert used == len(data) and error is None, error
    (one,) = commands
    return one


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
    for name, make in KINDS.items():
        frames = [command.encode(make(n)) for n in range(VARIANTS)]
        for backend, costs in _costs(frames, QUICK_ROUNDS if quick else ROUNDS).items():
            rows.append([name, str(len(frames[0])), backend, *map(str, costs.values())])
            result.data[f"{name}, {backend}"] = {
                what: {"median_us": cost.usual, "best_us": cost.best} for what, cost in costs.items()
            }
            if (name, backend) == (SEND, "compiled"):
                compiled_send = costs["both"].usual
    head = ["frame", "bytes", "backend", "decode µs", "encode µs", "both µs"]
    result.text = ["microseconds of CPU: median of the rounds (best)", "", table(head, rows)]
    result.bars = [Bar(f"{SEND}, decode and encode, compiled", compiled_send, SEND_LIMIT_US, "µs")]
    return result


def _costs(frames: list[bytes], rounds: int) -> dict[str, dict[str, Cost]]:
    """Backend -> what is done -> its cost."""
    steps = {
        f"{backend} {what}": step
        for backend, (split, encode) in _backends().items()
        for what, step in _steps(frames, split, encode).items()
    }
    costs = measure(steps, rounds)
    return {
        backend: {what: costs[f"{backend} {what}"] for what in ("decode", "encode", "both")} for backend in _backends()
    }
