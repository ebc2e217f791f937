"""The output while a pipeline runs: one line per batch, for people or for programs, or nothing.

batch 12  40,000 rows  52,310/s  54.1 MB/s  lag 380,000  age 3m12s  eta 7s
"""

import sys
from typing import Final, Protocol, TextIO

import msgspec

from kourou.printable import printable, printable_json, printable_lines
from kourou.spark.pipelines.report import RunReport, size_text, span_text

SETTLING: Final = 0.3
"""The weight of the newest batch in the speed for estimates."""


class BatchProgress(msgspec.Struct, kw_only=True):
    """One batch, when it is done."""

    batch: int
    """Counted over all runs: resumed runs continue the numbers."""
    rows: int
    bytes: int = 0
    seconds: float
    written: int | None = None
    """If it differs from `rows`."""
    lag: int | None = None
    """Messages that are stored and not read yet."""
    age_s: float | None = None
    """How long ago the newest message of the batch was stored: how far behind the pipeline is."""
    lags: dict[str, int] | None = None
    """By group, if groups are watched: then nothing is read."""
    consumed: dict[str, int] | None = None
    """By group, since the sample before."""
    eta_s: float | None = None
    """The time until there is no lag, at the present speed. `Run.batch` sets it."""

    @property
    def rows_per_s(self) -> float:
        return self.rows / max(self.seconds, 1e-6)

    def line(self) -> str:
        if self.lags is not None:
            return self._sample_line(self.lags)
        words = [
            f"batch {self.batch}",
            f"{self.rows:,} rows",
            f"{self.rows_per_s:,.0f}/s",
            f"{size_text(self.bytes / max(self.seconds, 1e-6))}/s",
        ]
        if self.written is not None and self.written != self.rows:
            words.append(f"written {self.written:,}")
        if self.lag is not None:
            words.append(f"lag {self.lag:,}")
        if self.age_s is not None:
            words.append(f"age {span_text(self.age_s)}")
        if self.eta_s is not None and self.lag:
            words.append(f"eta {span_text(self.eta_s)}")
        return "  ".join(words)

    def _sample_line(self, lags: dict[str, int]) -> str:
        words = [f"sample {self.batch}"]
        for group, lag in lags.items():
            speed = (self.consumed or {}).get(group, 0) / max(self.seconds, 1e-6)
            words.append(printable(f"{group} lag {lag:,}") + (f" ({speed:,.0f}/s consumed)" if speed else ""))
        if self.age_s is not None:
            words.append(f"oldest waits {span_text(self.age_s)}")
        return "  ".join(words)


class Watch(Protocol):
    """An observer of a run."""

    def batch(self, progress: BatchProgress) -> None: ...

    def note(self, text: str) -> None:
        """An event that is shown in a line: a session starts, a stop was requested."""

    def done(self, report: RunReport) -> None:
        """The end of the run, successful or not."""


class Silent:
    """For callers that only use the report."""

    def batch(self, progress: BatchProgress) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def done(self, report: RunReport) -> None:
        """Nothing."""


class Lines:
    """For people: on a terminal one line that changes, elsewhere a line each. The report goes to standard output."""

    def __init__(self, stream: TextIO | None = None, report_stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._report_stream = report_stream or sys.stdout
        self._is_terminal = self._stream.isatty()
        self._is_open = False  # a line that may be overwritten

    def batch(self, progress: BatchProgress) -> None:
        if self._is_terminal:
            self._stream.write(f"\r\x1b[2K{progress.line()}")
            self._is_open = True
        else:
            self._stream.write(f"{progress.line()}\n")
        self._stream.flush()

    def note(self, text: str) -> None:
        self._close_line()
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()

    def done(self, report: RunReport) -> None:
        self._close_line()
        if report.errors and not report.batches:
            return  # the caller displays the error
        self._report_stream.write(f"{printable_lines(report.text())}\n")
        self._report_stream.flush()

    def _close_line(self) -> None:
        if self._is_open:
            self._stream.write("\n")
            self._is_open = False


class JsonLines:
    """For programs: an object per batch, {"batch": …}, and at the end the report, {"pipeline": …}."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout

    def batch(self, progress: BatchProgress) -> None:
        document = msgspec.to_builtins(progress)
        document["rows_per_s"] = round(progress.rows_per_s, 1)
        self._write(msgspec.json.encode(document))

    def note(self, text: str) -> None:
        """Programs get only numbers."""

    def done(self, report: RunReport) -> None:
        self._write(msgspec.json.encode(report))

    def _write(self, line: bytes) -> None:
        self._stream.write(f"{printable_json(line.decode())}\n")
        self._stream.flush()


class Speed:
    """Rows per second over the last batches, for estimates."""

    def __init__(self) -> None:
        self._rows_per_s: float | None = None

    def eta_s(self, progress: BatchProgress) -> float | None:
        """Take a batch into account. Returns how long the rest of the lag will take."""
        if progress.rows:
            here = progress.rows_per_s
            before = self._rows_per_s
            self._rows_per_s = here if before is None else before + SETTLING * (here - before)
        if progress.lag is None or not self._rows_per_s:
            return None
        return progress.lag / self._rows_per_s
