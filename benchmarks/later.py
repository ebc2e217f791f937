"""Messages that are delivered later, of transactions and with a time, beside Apache's broker in the same run.

The load is that of Apache's own Java client, as in `benchmarks.broker`. A round lasts until all messages are in their
topics, so the CPU time of a message is all that the broker does for it: it stores a half message, ends the transaction
and writes its share of an op record; or it stores a timed message, puts it into the wheel and delivers it.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.broker import BODY, Contender, Figure, Plan, compare, show
from benchmarks.report import Bar, Result

TRANSACTIONS = "transactions, 16 threads, each commits"
TIMERS = "timed messages, 16 threads, 1 to 2 s ahead"
DELAY_MS = 1_000

CPU_LIMIT = 1 / 3
"""What ours may use of Apache's CPU time per message."""


class LaterContender(Contender):
    """A broker under these loads."""

    def loads(self, _flush: str, /) -> dict[str, Callable[[float], Figure]]:
        return {
            TRANSACTIONS: lambda seconds: self.figure("commit", f"transactions 16 {BODY} {seconds}"),
            TIMERS: lambda seconds: self.figure("timed", f"timers 16 {BODY} {seconds} {DELAY_MS}"),
        }


def run(options: argparse.Namespace) -> Result:
    """Raises MissingToolError if Java or Maven is missing, GaveUpError if a server does not start."""
    result = Result("Transactions and timers, beside Apache's")
    with tempfile.TemporaryDirectory(prefix="kourou-bench-") as folder:
        outcomes = compare("ASYNC_FLUSH", Plan.of(options), Path(folder), result, LaterContender)
    result.bars = [
        Bar(f"{outcome.name}: CPU a message", outcome.cpu_ratio(), CPU_LIMIT, "of Apache's") for outcome in outcomes
    ]
    show(outcomes, result)
    if options.quick:
        result.no_verdict = "a quick run is too short for the JVM to warm up"
    return result
