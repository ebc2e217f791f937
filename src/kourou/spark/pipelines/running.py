"""A run of a pipeline: its session, its batches, its end.

    def count(topic: str, *, namesrv: str, runner: Runner | None = None) -> RunReport:
        with (runner or Runner()).run("count", topic=topic) as run:
            for number, rows in enumerate(batches(run.spark, namesrv, topic)):
                run.batch(BatchProgress(batch=number, rows=rows, seconds=…, lag=…))
                if run.is_stopping:
                    break
            run.report.tables.append(Table("Messages", ["topic", "rows"], [[topic, run.report.read.rows]]))
        return run.report

A `Runner` has the parts that a caller provides: a session or its settings, an observer, an event that asks to stop. A
`Run` collects the report. Leaving it completes the report, with charts of the batches, and shows it; an exception
becomes a `PipelineError` of one line, with the report so far.

`Run.follow` observes streaming queries of Spark: it reports each batch, and stops between two of them. The function of
a batch has to begin with `run.enter_batch(number)`, which refuses a batch after a stop was requested.

The command line wraps a runner in `stopping_on_signals`. The first Ctrl-C or SIGTERM asks to stop, and the running
batch is finished; the second ends everything at once, which every pipeline survives like a crash. Spark's JVM, and with
it all workers, is started in a session of its own; otherwise the terminal would send them the Ctrl-C as well.
"""

import json
import logging
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from kourou.protocol.errors import KourouError
from kourou.spark.errors import SparkError
from kourou.spark.pipelines.progress import BatchProgress, Silent, Speed, Watch
from kourou.spark.pipelines.report import Chart, RunReport, time_text
from kourou.spark.session import CONNECT, check_installation, prepare, reason, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POINTS_MAX: Final = 500
"""The most batches that a chart shows; if there are more, every second one is omitted, repeatedly."""

LOOK_S: Final = 0.2
"""How often the state of a streaming query is read."""

DEFAULT_MASTER: Final = "local[*]"

SETTINGS: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
"""Settings in addition to those of `session`; those of the caller take precedence."""


class Stopping(Exception):
    """No further batch may begin: the query ends without an error."""


class PipelineError(SparkError):
    """A failed run. `report` has its progress."""

    def __init__(self, text: str, report: RunReport) -> None:
        super().__init__(text)
        self.report = report


class Runner:
    """The parts that a caller provides."""

    def __init__(
        self,
        *,
        spark: "SparkSession | None" = None,
        master: str | None = None,
        settings: Mapping[str, str] | None = None,
        watch: Watch | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """With `spark`, that session is used; without, one is started when it is first needed."""
        self._spark = spark
        self._master = master
        self._settings = settings or {}
        self.watch: Watch = watch or Silent()
        self.stop = stop or threading.Event()
        self.after_start: Callable[[], None] | None = None  # pyspark handles SIGINT itself once it has started

    @property
    def spark(self) -> "SparkSession":
        """Raises SparkError if Spark or Java is missing."""
        if self._spark is None:
            master = self._master or DEFAULT_MASTER
            self.watch.note(f"Spark starts ({master})")
            self._spark = start_session("kourou", master, self._settings)
            if self.after_start is not None:
                self.after_start()
        return self._spark

    def run(self, pipeline: str, *, reads_only: bool = False, **settings: Any) -> "Run":
        """`settings` are for the report: the arguments, without secrets."""
        return Run(self, pipeline, settings, reads_only=reads_only)


class Run:
    """One run. Use it in `with`; afterwards its report is complete."""

    def __init__(self, runner: Runner, pipeline: str, settings: Mapping[str, Any], *, reads_only: bool = False) -> None:
        self._runner = runner
        self._began = time.monotonic()
        self._speed = Speed()
        self._points: list[tuple[float, BatchProgress]] = []
        self._every = 1  # which batches become points
        self._entered = -1  # the newest batch that a query has begun
        self._is_refused = False  # the query ended because no further batch was allowed
        self.report = RunReport(
            pipeline=pipeline,
            started=time_text(time.time() * 1000),
            reads_only=reads_only,
            settings={name: value for name, value in settings.items() if value is not None},
        )

    @property
    def spark(self) -> "SparkSession":
        return self._runner.spark

    @property
    def is_stopping(self) -> bool:
        """A stop was requested: finish the batch, and start no other."""
        return self._runner.stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait until the next batch is due. False if a stop was requested instead."""
        return not self._runner.stop.wait(max(seconds, 0.0))

    def note(self, text: str) -> None:
        """A note for observers; lasting notes belong into `report.notes`."""
        self._runner.watch.note(text)

    def batch(self, progress: BatchProgress) -> None:
        """A batch is done: count it, and report it."""
        report = self.report
        report.batches += 1
        report.read.add(progress.rows, progress.bytes)
        report.written.add(progress.rows if progress.written is None else progress.written)
        progress.eta_s = self._speed.eta_s(progress)
        if report.batches % self._every == 0:
            self._points.append((time.time() * 1000, progress))
            if len(self._points) > POINTS_MAX:
                del self._points[::2]
                self._every *= 2
        self._runner.watch.batch(progress)

    # ── Streaming queries ─────────────────────────────────────────────────────────────────────────────────────────

    def enter_batch(self, batch: int) -> None:
        """To be called first in a function for foreachBatch: raises `Stopping` once a stop was requested.

        Nothing of the batch is done then, and the next run begins with it.
        """
        self._entered = batch  # before the event is checked: a stop request then sees the running batch
        if self._runner.stop.is_set():
            self._entered = -1
            self._is_refused = True
            logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)  # it would print the exception
            raise Stopping

    def follow(self, query: "StreamingQuery", count: Callable[[int], Mapping[str, int]] | None = None) -> None:
        """Wait until the query ends, or a stop is requested and no batch is running.

        `count` returns more about a batch than Spark: bytes, written, newest_ms. Raises the error of the query.
        """
        told = -1
        error: Exception | None = None
        while True:
            stopping = self.is_stopping
            try:
                ended = query.awaitTermination(LOOK_S)  # type: ignore[arg-type]  # takes parts of a second
            except Exception as failure:
                ended, error = True, failure
            for progress in query.recentProgress:
                document = json.loads(progress.json)
                if document["batchId"] > told and "addBatch" in document["durationMs"]:
                    told = document["batchId"]
                    self._tell(document, count(told) if count else {})
            if ended:
                if error is not None and not self._is_refused:
                    raise error
                return
            if stopping and self._entered <= told:
                query.stop()
                return

    def _tell(self, document: Mapping[str, Any], more: Mapping[str, int]) -> None:
        source = document["sources"][0]
        start, end, newest = (source.get(name) or {} for name in ("startOffset", "endOffset", "latestOffset"))
        self.report.to_offsets = end
        if not document["numInputRows"]:
            return  # Spark only cleaned up its state
        if not self.report.batches:
            self.report.from_offsets = start  # none for the very first batch, which begins at the start of the source
        self.batch(
            BatchProgress(
                batch=document["batchId"],
                rows=document["numInputRows"],
                bytes=more.get("bytes", 0),
                seconds=document["durationMs"].get("triggerExecution", 0) / 1000,
                written=more.get("written"),
                lag=distance(end, newest) if newest else None,  # Spark does not report this for a repeated batch
                age_s=None if "newest_ms" not in more else max(time.time() - more["newest_ms"] / 1000, 0.0),
            )
        )

    # ── The end ───────────────────────────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        report = self.report
        report.seconds = round(time.monotonic() - self._began, 3)
        report.rows_per_s = round(report.read.rows / max(report.seconds, 1e-3), 1)
        report.charts += self._charts()
        if self.is_stopping or isinstance(error, KeyboardInterrupt):
            report.stopped = "asked"
        failed = isinstance(error, Exception)
        if failed:
            assert error is not None
            report.stopped = "error"
            report.errors.append(explain(error))
        self._runner.watch.done(report)
        if failed:
            raise PipelineError(report.errors[-1], report) from error

    def _charts(self) -> list[Chart]:
        if len(self._points) < 2 or any(one.lags is not None for _, one in self._points):
            return []  # a run that watches groups has another chart
        times = [moment for moment, _ in self._points]
        batches = [progress for _, progress in self._points]
        charts = [
            Chart(
                title="Messages per second",
                kind="lines",
                x=times,
                series={"read": [round(one.rows_per_s, 1) for one in batches]},
                unit="messages/s",
                is_time=True,
            )
        ]
        if any(one.lag is not None for one in batches):
            lags: list[float | None] = [None if one.lag is None else float(one.lag) for one in batches]
            charts.append(
                Chart(title="Lag", kind="lines", x=times, series={"lag": lags}, unit="messages", is_time=True)
            )
        return charts


def distance(start: Mapping[str, Any], end: Mapping[str, Any]) -> int:
    """Messages between two offsets."""
    return sum(
        max(offset - start.get(topic, {}).get(broker, {}).get(queue, 0), 0)
        for topic, brokers in end.items()
        for broker, queues in brokers.items()
        for queue, offset in queues.items()
    )


def explain(error: BaseException) -> str:
    """The error in one line."""
    if isinstance(error, KourouError | OSError):
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    return reason(error)


# ── Sessions and signals ────────────────────────────────────────────────────────────────────────────────────────────


def start_session(name: str, master: str, settings: Mapping[str, str]) -> "SparkSession":
    """A session whose JVM and workers do not get the terminal's Ctrl-C, and do not write to it.

    Raises SparkError.
    """
    check_installation()
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    if master.startswith(CONNECT):
        try:
            return session(name, master, settings)
        except Exception as error:
            raise SparkError(f"Spark Connect at {master} can't be used: {explain(error)}") from None
    settings = prepare(master, {**SETTINGS, **settings})
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items())).setMaster(master)
        with tempfile.TemporaryFile() as said:
            try:
                gateway = launch_gateway(conf, {"start_new_session": True, "stderr": said, "stdout": said})  # type: ignore[no-untyped-call]
            except PySparkRuntimeError as error:
                said.seek(0)
                lines = [line.strip() for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()]
                raise SparkError(f"Spark does not start: {lines[-1] if lines else error}") from None
        SparkContext._ensure_initialized(gateway=gateway)
    try:
        return session(name, master, settings)
    except Exception as error:
        raise SparkError(f"Spark does not start: {explain(error)}") from None


@contextmanager
def stopping_on_signals(runner: Runner) -> Iterator[None]:
    """SIGINT and SIGTERM ask to stop; a second one raises KeyboardInterrupt. For the main thread of a process."""

    asked = False

    def ask() -> None:
        runner.stop.set()
        runner.watch.note("stopping after this batch; interrupt again to stop at once")

    def handle(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        # In a thread, because the interrupted one may have the locks of the event or of the standard output.
        threading.Thread(target=ask, name="kourou-stopping").start()

    def install() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, handle)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    install()
    runner.after_start = install
    try:
        yield
    finally:
        runner.after_start = None
        for number, handler in before.items():
            signal.signal(number, handler)
