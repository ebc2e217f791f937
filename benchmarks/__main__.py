"""`python -m benchmarks [codec|nameserver …]`: runs them, prints the figures, fails when a bar is missed."""

import argparse
import sys
from pathlib import Path

from benchmarks import codec, nameserver, report

NAMES = ("codec", "nameserver")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Figures of Kourou, with Apache beside.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of them: {', '.join(NAMES)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="a short run, to try it: too short for the JVM to warm up")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure there")
    nameserver.add_options(parser.add_argument_group("nameserver"))
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")

    facts = report.where()
    report.print_where(facts)
    results: list[report.Result] = []
    for name in options.names or NAMES:
        results.append(codec.run(options.quick) if name == "codec" else nameserver.run(options))
        results[-1].print()
    if options.json:
        report.write_json(options.json, facts, results)
    return 0 if all(result.cleared for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
