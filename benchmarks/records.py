"""What a stored record costs to step over, check, dispatch, decode and encode: plain and compiled, in CPU time.

Each figure is the time for one record out of many that lie one behind the other, as in a segment or a pull answer. The
median of the rounds counts, and the best one tells how quiet the machine was.
"""

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from types import ModuleType

import kourou.protocol
from benchmarks.report import Result, print_where, table, where
from kourou.protocol import properties, record
from kourou.protocol.hosts import encode_host

ROUNDS, QUICK_ROUNDS = 21, 5
RECORDS = 2000
BODY_SIZES = (128, 1024)

Work = Callable[[], object]


def backends() -> dict[str, ModuleType]:
    """The record module in the forms that are here: both can live in one process."""
    source = Path(kourou.protocol.__path__[0]) / "record.py"
    if record.__file__ == str(source):
        return {"plain": record}
    spec = importlib.util.spec_from_file_location("plain_record", source)
    assert spec is not None and spec.loader is not None
    plain = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plain)
    return {"plain": plain, "compiled": record}


def records(body_size: int) -> list[bytes]:
    """Records as the Java client and broker make them."""
    host = encode_host("127.0.0.1:10911")
    return [
        record.encode_record(
            topic="OrderEvents",
            body=bytes(body_size),
            queue_id=number % 8,
            queue_offset=number // 8,
            physical_offset=0,
            born_ms=1_700_000_000_000,
            born_host=host,
            stored_ms=1_700_000_000_001,
            store_host=host,
            raw_properties=properties.encode(
                {
                    "KEYS": f"order-{number}",
                    "UNIQ_KEY": f"7F0000010A2B4B1AC6927C5A{number:08X}",
                    "CLUSTER": "DefaultCluster",
                    "WAIT": "true",
                    "TAGS": "paid",
                }
            ).encode(),
        )
        for number in range(RECORDS)
    ]


def works(module: ModuleType, body_size: int) -> dict[str, Work]:
    """What is timed. Each goes over all records once."""
    log = b"".join(records(body_size))
    messages = module.decode_records(log)
    assert b"".join(message.encode() for message in messages) == log

    def dispatch() -> None:
        scanner = module.Scanner(log)
        while scanner.step() == 1:
            scanner.find_keys()

    def read_all() -> None:
        scanner = module.Scanner(log)
        while scanner.step() == 1:
            scanner.find_keys()
            _ = scanner.topic, scanner.queue_id, scanner.queue_offset, scanner.physical_offset, scanner.size
            _ = scanner.tags_hash, scanner.stored_ms, scanner.sys_flag, scanner.keys, scanner.unique_key

    return {
        "step over": lambda: module.Scanner(log).skip_records(),
        "step over, with CRC": lambda: module.Scanner(log, crc=True).skip_records(),
        "step, find tags and keys": dispatch,
        "... and read ten fields": read_all,
        "decode to a value": lambda: module.decode_records(log),
        "encode from a value": lambda: [message.encode() for message in messages],
    }


def measure(work: Work, rounds: int) -> list[float]:
    """Nanoseconds of CPU for one record, in each round."""
    taken = []
    for _ in range(rounds):
        start = time.process_time_ns()
        work()
        taken.append((time.process_time_ns() - start) / RECORDS)
    return taken


def run(quick: bool) -> Result:
    """Measures everything with every backend that is here."""
    result = Result("Records: CPU time per stored record")
    rows = []
    for body_size in BODY_SIZES:
        costs = {
            backend: {
                name: measure(work, QUICK_ROUNDS if quick else ROUNDS)
                for name, work in works(module, body_size).items()
            }
            for backend, module in backends().items()
        }
        for name in costs["plain"]:
            figures = [costs[backend][name] if backend in costs else None for backend in ("plain", "compiled")]
            rows.append([f"{body_size} B: {name}", *(f"{median(c):.0f} ({min(c):.0f})" if c else "-" for c in figures)])
        result.data[f"body of {body_size} bytes"] = {
            backend: {name: {"median_ns": median(c), "best_ns": min(c)} for name, c in named.items()}
            for backend, named in costs.items()
        }
    result.text = ["nanoseconds of CPU: median of the rounds (best)", "", table(["", "plain ns", "compiled ns"], rows)]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a short run, to try it")
    options = parser.parse_args()
    print_where(where())
    run(options.quick).print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
