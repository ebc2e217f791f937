"""The table of results, as Markdown and as JSON. `docs/evidence.md` is such a page."""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .proofs import PROJECT, PROOFS, form
from .running import Result

HEAD = ("proof", "trials", "failures", "seconds", "counts", "version")

INTRODUCTION = """\
# Evidence

<!-- Written by python -m tests.soak --page. -->

This page has the results of the last runs of the long tests. `make soak` runs all of them within an hour;
`python -m tests.soak --help` lists the options, and [tests/soak](../tests/soak/proofs.py) has the list of tests.
`make test` runs a sample of each.

A version is a commit, followed by `plain` if the compiled modules were not used, and by `+` if there were uncommitted
changes.
"""


def row(result: Result) -> tuple[str, ...]:
    """The cells of a proof."""
    counts = ", ".join(f"{number:,} {what}" for what, number in sorted(result.counts.items()) if number)
    failures = f"**{len(result.failures)}**" if result.failures else "0"
    if not result.trials:
        return (result.proof.name, "0", "–", "–", f"not run: {result.left_out}", version())
    return (result.proof.name, f"{result.trials:,}", failures, f"{result.seconds:,.0f}", counts, version())


def table(rows: Iterable[Iterable[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (HEAD, ["---"] * len(HEAD), *rows))


def write_page(path: Path, results: list[Result], command: str) -> None:
    """The page with these results; proofs that did not run keep the rows that they have there."""
    rows = rows_of(path.read_text()) if path.exists() else {}
    rows |= {result.proof.name: row(result) for result in results if result.trials or result.proof.name not in rows}
    known = [rows.get(name, (name, "0", "–", "–", "not run yet", "–")) for name in PROOFS]
    about = "".join(
        f"| {proof.name} | {proof.about} | `{proof.command(7)}` | [{proof.sample}](../{proof.sample}) |\n"
        for proof in PROOFS.values()
    )
    path.write_text(
        f"{INTRODUCTION}\nThe last run: `{command}`\n\n{table(known)}\n## The proofs\n\n"
        f"| proof | what each trial checks | command for trial 7 | in `make test` |\n|---|---|---|---|\n{about}"
    )


def rows_of(text: str) -> dict[str, tuple[str, ...]]:
    """The rows of a page, by the name of the proof."""
    lines = re.findall(r"^\| (.+) \|$", text.partition("\n## ")[0], re.M)
    cells = [tuple(cell.strip() for cell in line.split(" | ")) for line in lines]
    return {found[0]: found for found in cells if len(found) == len(HEAD) and found[0] in PROOFS}


def as_json(results: list[Result], command: str) -> str:
    proofs: list[Mapping[str, Any]] = [
        {
            "proof": result.proof.name,
            "trials": result.trials,
            "seconds": round(result.seconds, 1),
            "counts": result.counts,
            "left_out": result.left_out,
            "failures": [
                {"seed": seed, "again": result.proof.command(seed), "reason": reason}
                for seed, reason in result.failures.items()
            ],
        }
        for result in results
    ]
    return json.dumps({"command": command, "version": version(), "proofs": proofs}, indent=2) + "\n"


def version() -> str:
    """Of the sources: the commit, whether there are changes since, and the form of the hot modules."""
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = "+" if _git("status", "--porcelain", "--untracked-files=no", "--", ":!docs/evidence.md") else ""
    return f"{commit}{changed}{' plain' if form() == 'plain' else ''}"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
