"""What the fast lane costs: from the bytes of a read to the bytes of the answers, in this process, without sockets.

A simulated broker has its files in memory. Sends are measured with their dispatch, in reads of one request and of many.
CPU time depends on the machine and on what else it does; `--instructions` counts instructions with valgrind instead,
which are the same to the last digits on a loaded machine:

    python -m benchmarks lane
    python -m benchmarks.lane --instructions
"""

import argparse
import gc
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.report import ROOT, Result, print_where, table, where
from kourou.access.users import User, UserType
from kourou.broker import lane
from kourou.broker.events import Peer
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, encode
from kourou.protocol.signing import Credentials
from kourou.store.settings import MIB, StoreSettings
from kourou.testing.broker import SimulatedBroker

TOPIC, GROUP = "OrderEvents", "billing"
USER = Credentials("orders-service", "a-secret-of-24-characters")
BODY = bytes(range(128))
BATCH = 32
STORE = StoreSettings(commit_log_file_size=128 * MIB, index_slots=100_000, index_entries=400_000)

ROUNDS, QUICK_ROUNDS = 15, 3
REQUESTS = 1_920  # messages of a round, at least
COUNTED = (1_280, 9_600)  # messages of the two runs of which the difference is counted


@dataclass(frozen=True)
class Load:
    """Requests of a kind. `per_read` of them come in one read, and each is for so many messages."""

    name: str
    per_read: int
    messages: int
    make: Callable[[int], Command]
    signed: bool = False


def _send(number: int, code: int = RequestCode.SEND_MESSAGE_V2, body: bytes = BODY) -> Command:
    properties = f"KEYS\x01order-{1000042 + number}\x02{_own(number)}WAIT\x01true\x02TAGS\x01paid\x02"
    fields = {
        "a": "orders-producer",
        "b": TOPIC,
        "c": "TBW102",
        "d": "4",
        "e": str(number % 4),
        "f": "0",
        "g": str(1_700_000_000_000 + 17 * number),
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "l": "16",
        "m": "true" if code == RequestCode.SEND_BATCH_MESSAGE else "false",
        "n": "broker-a",
    }
    return Command(code, 4711 + number, language="JAVA", ext=fields, body=body)


def _own(number: int) -> str:
    return f"UNIQ_KEY\x017F0000010A2B4B1AC6927C5A{0x3F1E0042 + 31 * number:08X}\x02"


def _batch(number: int) -> Command:
    entries = []
    for index in range(BATCH):
        raw = (_own(number * BATCH + index) + "WAIT\x01true\x02TAGS\x01paid\x02").encode()
        size = (22 + len(BODY) + len(raw)).to_bytes(4)
        entries.append(size + bytes(12) + len(BODY).to_bytes(4) + BODY + len(raw).to_bytes(2) + raw)
    return _send(number, RequestCode.SEND_BATCH_MESSAGE, b"".join(entries))


def _pull(number: int) -> Command:
    fields = {
        "queueId": str(number % 4),
        "maxMsgBytes": "2147483647",
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": str(number),
        "suspendTimeoutMillis": "15000",
        "subscription": "",
        "topic": TOPIC,
        "queueOffset": str(number % 50),
        "expressionType": "TAG",
        "subVersion": "0",
        "consumerGroup": GROUP,
    }
    return Command(RequestCode.PULL_MESSAGE, 4711 + number, language="JAVA", ext=fields)


def _signed(number: int) -> Command:
    command = _send(number)
    USER.sign(command)
    return command


LOADS = (
    Load("sends of 128 B, 1 in a read", 1, 1, _send),
    Load("sends of 128 B, 32 in a read", 32, 1, _send),
    Load(f"batches of {BATCH}, 1 in a read", 1, BATCH, _batch),
    Load("pulls of 32 messages, 1 in a read", 1, 32, _pull),
    Load("signed sends of 128 B, 1 in a read", 1, 1, _signed, signed=True),
    Load("signed sends of 128 B, 32 in a read", 32, 1, _signed, signed=True),
)


class World:
    """A broker with a topic, a group and some messages, with or without access control."""

    def __init__(self, signed: bool) -> None:
        settings = BrokerSettings()
        if signed:
            user = User(name=USER.access_key, password=USER.secret_key, type=UserType.SUPER)
            settings = BrokerSettings(authenticates=True, authorizes=True, first_user=user)
        self.broker = SimulatedBroker(store_settings=STORE, settings=settings)
        client = self.broker.connect()
        for number in range(4 * 90):
            client.ask(_signed(number) if signed else _send(number))
        subscription = bodies.SubscriptionData(topic=TOPIC, sub_string="*")
        consumer = bodies.ConsumerData(group_name=GROUP, subscription_data_set=[subscription])
        heartbeat = bodies.HeartbeatData(client_id="c1", consumer_data_set=[consumer])
        beat = Command(RequestCode.HEART_BEAT, body=heartbeat.encode())
        if signed:
            USER.sign(beat)
        client.ask(beat)
        self._peer: Peer = client.peer

    def serve(self, reads: list[bytes]) -> None:
        """Reads of one connection, which the lane must take to their last byte."""
        lane, peer, now_ms = self.broker.machine.lane, self._peer, self.broker.now_ms
        assert lane is not None
        for data in reads:
            used = lane.serve(peer, data, now_ms)[0]
            assert used == len(data) and lane.dispatch()


def reads_of(load: Load, count: int, first: int = 0) -> list[bytes]:
    frames = [encode(load.make(number)) for number in range(first, first + count)]
    return [b"".join(frames[at : at + load.per_read]) for at in range(0, count, load.per_read)]


def cpu_costs(quick: bool) -> Iterator[tuple[Load, list[float]]]:
    """CPU µs of a request, in each round."""
    for load in LOADS:
        world = World(load.signed)
        count = max(REQUESTS // load.messages, 96)
        costs: list[float] = []
        for number in range(QUICK_ROUNDS if quick else ROUNDS):
            reads = reads_of(load, count, number * count)
            start = time.process_time_ns()
            world.serve(reads)
            costs.append((time.process_time_ns() - start) / count / 1000)
        yield load, costs


def run(quick: bool) -> Result:
    """Measures all loads. No bar applies: the figures are compared with those of another commit."""
    result = Result("The fast lane: CPU time per request")
    if not lane.IS_COMPILED:
        result.text = ["the lane is not compiled"]
        return result
    rows: list[tuple[str, str, str]] = []
    for load, costs in cpu_costs(quick):
        rows.append((load.name, f"{median(costs):.2f} ({min(costs):.2f})", f"{median(costs) / load.messages:.3f}"))
        result.data[load.name] = {"median_us": median(costs), "best_us": min(costs)}
    result.text = [table(("load", "request µs: median (best)", "message µs"), rows)]
    return result


# ── Instructions ────────────────────────────────────────────────────────────────────────────────────────────────────


def instructions(load: int, requests: int) -> int:
    """Instructions of a process that serves so many requests."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={Path(folder) / 'out'}"]
        program = [sys.executable, "-m", "benchmarks.lane", "--only", str(load), "--requests", str(requests)]
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [*valgrind, *program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
    found = re.search(r"I\s+refs:\s+([\d,]+)", done.stderr)
    assert found is not None, done.stderr
    return int(found[1].replace(",", ""))


def count_instructions() -> None:
    """Two runs of each load that differ in the number of requests alone."""
    rows: list[tuple[str, str, str]] = []
    for number, load in enumerate(LOADS):
        few, many = (count // load.messages for count in COUNTED)
        each = (instructions(number, many) - instructions(number, few)) / (many - few)
        rows.append((load.name, f"{each:,.0f}", f"{each / load.messages:,.0f}"))
    print(table(("load", "instructions of a request", "of a message"), rows))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lane")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--instructions", action="store_true", help="count instructions, which needs valgrind")
    parser.add_argument("--only", type=int, choices=range(len(LOADS)), help="serve this load, and measure nothing")
    parser.add_argument("--requests", type=int, default=REQUESTS, help="how many requests of it")
    options = parser.parse_args()
    if options.only is not None:
        load = LOADS[options.only]
        world = World(load.signed)
        # All requests are made, however many are served: the runs that are compared differ in nothing else.
        reads = reads_of(load, COUNTED[1] // load.messages)
        gc.disable()
        world.serve(reads[: options.requests // load.per_read])
        return 0
    print_where(where())
    if options.instructions:
        count_instructions()
    else:
        run(options.quick).print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
