"""`kourou store convert`: a progress bar on a terminal, then the report; or one JSON document."""

import re
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kourou.cli.output import show, show_error, show_json
from kourou.cli.verifying import progress_bar
from kourou.server.clock import file_time
from kourou.store.convert.conversion import Conversion, Layout, Options, Report, Uncommitted
from kourou.store.convert.source import Source, member_of
from kourou.store.disk import RealDisk
from kourou.store.errors import StoreError
from kourou.store.paths import Paths

DONE, FAILED = 0, 1

_SELF_ID = re.compile(r"[A-Za-z][0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options."""

    to: str | None
    self_id: str | None
    uncommitted: str
    dledger_data: Path | None = None


def convert(root: Path, commit_log: Path | None, target: Path, wanted: Wanted, *, as_json: bool) -> int:
    """The exit code."""
    if wanted.self_id is not None and not _SELF_ID.fullmatch(wanted.self_id):
        show_error(f"--self-id {wanted.self_id}: a letter and a number are expected, as in n0")
        return FAILED
    root, target = root.absolute(), target.absolute()
    begin = time.perf_counter()
    try:
        report = _run(root, commit_log, target, wanted, as_json)
    except StoreError as error:
        show_error(str(error))
        return FAILED
    except OSError as error:
        show_error(f"{error.filename or target}: {error.strerror or error}. Run the command again: it continues")
        return FAILED
    seconds = time.perf_counter() - begin
    if as_json:
        show_json({**msgspec.to_builtins(report), "seconds": round(seconds, 3)})
    else:
        show(_summary(report, seconds))
    return DONE


def _run(root: Path, commit_log: Path | None, target: Path, wanted: Wanted, as_json: bool) -> Report:
    disk = RealDisk(Paths(target).aside)
    lock = disk.lock_for_reading(Paths(root).lock)
    try:
        source = Source(disk, root, commit_log, member_of(root, disk, wanted.self_id), wanted.dledger_data)
        options = Options(wanted.self_id or "n0", Uncommitted(wanted.uncommitted))
        with progress_bar(wanted=not as_json) as bar:
            conversion = Conversion(disk, source, target, options, bar)
            if wanted.to is not None and conversion.to is not Layout(wanted.to):
                raise StoreError(f"{root} has the layout {wanted.to} already; it can become {conversion.to.value}")
            return conversion.run(int(time.time() * 1000), file_time)
    finally:
        if lock is not None:
            lock.release()


def _summary(report: Report, seconds: float) -> str:
    notes = "".join(f"note: {note}\n" for note in report.notes)
    return (
        f"{notes}{report.records:,} records from {report.source} are in {report.target}, in the layout {report.to}, "
        f"each compared with its original ({seconds:.1f} s)"
    )
