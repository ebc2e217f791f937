"""What a benchmark says: where it ran, its tables, and whether the bars are cleared.

A bar is a promise with a figure: `measured` must be at most `limit`. One that is missed makes the command fail.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from kourou import _backend

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Bar:
    """`measured` is None when there was no way to measure it, which clears nothing."""

    name: str
    measured: float | None
    limit: float
    unit: str

    @property
    def cleared(self) -> bool:
        return self.measured is not None and self.measured <= self.limit

    @property
    def figure(self) -> str:
        return "not measured" if self.measured is None else f"{self.measured:.2f} {self.unit}"

    def __str__(self) -> str:
        verdict = "PASS" if self.cleared else "FAIL"
        return f"{verdict}  {self.name}: {self.figure}, at most {self.limit:g} {self.unit}"


@dataclass
class Result:
    """The outcome of one benchmark. `data` has every single figure, for the JSON file.

    `no_verdict` says why its figures prove nothing; its bars are then neither cleared nor missed.
    """

    title: str
    text: list[str] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    data: dict[str, object] = field(default_factory=dict)
    no_verdict: str | None = None

    @property
    def cleared(self) -> bool:
        """No bar is missed."""
        return self.no_verdict is not None or all(bar.cleared for bar in self.bars)

    def print(self) -> None:
        verdicts: list[object] = [*self.bars]
        if self.no_verdict is not None:
            verdicts = [f"No verdict: {self.no_verdict}", *(f"      {bar.name}: {bar.figure}" for bar in self.bars)]
        print(f"\n{self.title}\n{'=' * len(self.title)}", *self.text, "", *verdicts, sep="\n", flush=True)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in columns, the first to the left and the figures to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_line(cells, widths) for cells in lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first = cells[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True))])


def quantile(values: Sequence[int], share: float) -> int:
    """The value that `share` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def middle(values: Iterable[float]) -> float:
    """The median; of no values, not a number."""
    known = list(values)
    return median(known) if known else float("nan")


def where() -> dict[str, str]:
    """What one must know to compare a figure with another."""
    return {
        "machine": f"{_cpu_model()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "load": "{:.2f} {:.2f} {:.2f} (1, 5, 15 minutes, at the start)".format(*os.getloadavg()),
        "commit": _commit(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "backend": _backend.name(),
        "command": shlex.join([Path(sys.executable).name, "-m", "benchmarks", *sys.argv[1:]]),
    }


def print_where(facts: Mapping[str, str]) -> None:
    print("\n".join(f"{name:<8} {fact}" for name, fact in facts.items()), flush=True)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return f"{commit} and changes that are not committed" if _git("status", "--porcelain", "--", "src") else commit


def _git(*arguments: str) -> str:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def write_json(path: Path, facts: Mapping[str, str], results: Sequence[Result]) -> None:
    bars = [
        {"name": bar.name, "measured": bar.measured, "limit": bar.limit, "unit": bar.unit, "cleared": bar.cleared}
        for result in results
        for bar in result.bars
    ]
    content = {
        "where": dict(facts),
        "bars": bars,
        "no_verdict": {result.title: result.no_verdict for result in results if result.no_verdict},
        "results": {result.title: result.data for result in results},
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
