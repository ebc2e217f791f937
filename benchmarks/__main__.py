"""`python -m benchmarks [NAME …]`: runs them and prints the figures.

Exit code 0: no bar is missed; 1: one is; 2: a tool is missing or a server failed, so there is no verdict.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from tests.interop.toolchain import MissingToolError
from tests.waiting import GaveUpError

from benchmarks import (
    broker,
    client,
    codec,
    later,
    nameserver,
    pending,
    raft,
    records,
    recovery,
    replication,
    report,
    spark,
    store,
)
from benchmarks.load import RefusedError

BENCHMARKS: dict[str, Callable[[argparse.Namespace], report.Result]] = {
    "codec": lambda options: codec.run(options.quick),
    "records": lambda options: records.run(options.quick),
    "nameserver": nameserver.run,
    "store": lambda options: store.run_aside(options.quick),
    "broker": broker.run,
    "later": later.run,
    "replication": replication.run,
    "raft": raft.run,
    "pending": pending.run,
    "client": client.run,
    "spark": spark.run,
    "recovery": lambda options: recovery.run(recovery.QUICK_MIB if options.quick else recovery.MIB_WRITTEN),
}


def main() -> int:
    names = ", ".join(BENCHMARKS)
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures of Kourou, with Apache beside.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of them: {names} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a short run, to try it: too short for the JVM to warm up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    nameserver.add_options(parser.add_argument_group("nameserver"))
    spark.add_options(parser.add_argument_group("spark"))
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {names}")

    facts = report.where()
    report.print_where(facts)
    results: list[report.Result] = []
    try:
        for name in options.names or BENCHMARKS:
            results.append(BENCHMARKS[name](options))
            results[-1].print()
    except (MissingToolError, GaveUpError, RefusedError) as fault:
        print(f"benchmarks: {fault}", file=sys.stderr)
        return 2
    if options.json:
        report.write_json(options.json, facts, results)
    return 0 if all(result.cleared for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
