"""`kourou store verify`: prints findings as they come, with a progress bar on a terminal; or one JSON document."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kourou.cli.output import printable, show, show_error, show_json
from kourou.store.dledger import looks_like_dledger
from kourou.store.errors import StoreError
from kourou.store.offline import StoreFiles
from kourou.store.verify import Finding, Progress, Report, Verifier

SOUND, PROBLEMS, NOT_CHECKED = 0, 1, 2


def verify(root: Path, commit_log: Path | None, *, live: bool, as_json: bool) -> int:
    """The exit code."""
    try:
        files = StoreFiles.at(root, commit_log)
        if not files.is_store:
            show_error(f"{root} is not a store: it has neither commitlog/ nor a checkpoint")
            return NOT_CHECKED
        if looks_like_dledger(root, files.disk):
            show_error(f"{root} is in DLedger's layout, which only kourou store convert reads: it checks every record")
            return NOT_CHECKED
        lock = None if live else files.lock()
    except (StoreError, OSError) as error:
        remedy = ". To verify it anyway: --live" if isinstance(error, StoreError) else ""
        show_error(f"{error}{remedy}")
        return NOT_CHECKED
    try:
        report, seconds = _run(files, live, as_json)
    except OSError as error:
        show_error(f"the check could not be completed: {error}")
        return NOT_CHECKED
    finally:
        if lock is not None:
            lock.release()
    if as_json:
        show_json(_document(report, seconds))
    else:
        show(_summary(report, seconds))
    return PROBLEMS if report.problems else SOUND


def _run(files: StoreFiles, live: bool, as_json: bool) -> tuple[Report, float]:
    begin = time.perf_counter()
    with progress_bar(wanted=not as_json) as progress:
        verifier = Verifier(files, live, None if as_json else _print_finding, progress)
        return verifier.run(), time.perf_counter() - begin


def _print_finding(finding: Finding) -> None:
    where = finding.file if finding.offset is None else f"{finding.file} at {finding.offset}"
    show(printable(f"{'problem' if finding.problem else 'note'}: {where}: {finding.text}"))


def _summary(report: Report, seconds: float) -> str:
    speed = report.log_bytes / 1e9 / max(seconds, 1e-9)
    amount = (
        f"{report.records:,} records in the log from {report.log_start} to {report.log_end}, "
        f"{report.entries:,} entries of {report.queues:,} queues, {report.index_entries:,} entries of "
        f"{report.index_files} index files: {report.log_bytes:,} bytes in {seconds:.1f} s ({speed:.2f} GB/s)"
    )
    verdict = f"{len(report.problems)} problems" if report.problems else "sound"
    return f"{amount}\n{verdict}"


def _document(report: Report, seconds: float) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(report)
    document["seconds"] = round(seconds, 3)
    document["gigabytes_per_second"] = round(report.log_bytes / 1e9 / max(seconds, 1e-9), 3)
    document["sound"] = not report.problems
    return document


@contextmanager
def progress_bar(*, wanted: bool) -> Iterator[Progress | None]:
    """A progress bar, if the standard error is a terminal. Findings are printed above it."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")

        def step(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total)

        yield step
