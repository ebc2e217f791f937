"""The latency of messages, from the records of clients in the trace topic.

    latency(namesrv=…, chosen=choice(since="2024-05-01"))

Clients with tracing enabled send messages to RMQ_SYS_TRACE_TOPIC. The body of each is text: records that end with
\\x02, of fields that \\x01 separates (Java: TraceDataEncoder):

    Pub        time region group topic message tags keys store-host size cost type offset-id success [host]
    SubBefore  time region group request message retries keys
    SubAfter   request message cost success keys code [time group]

Times are ms since 1970 by the client's clock, costs are ms. `Pub` is written when a message was sent, with the time
that sending began; `SubBefore` when a consumer is given it, `SubAfter` when it is through. Between the first two lies
the way from end to end, as far as the clocks of both machines agree.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.protocol.system_names import TRACE_TOPIC
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.choice import Keys, Moment, choice
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Cell, Chart, RunReport, Table, time_text
from kourou.spark.pipelines.running import Run, Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

SLOW: Final = 20
ROWS_MAX: Final = 1000
BARS_MAX: Final = 12

PUB: Final = "Pub"
BEFORE: Final = "SubBefore"
AFTER: Final = "SubAfter"

SCHEMA: Final = (
    "kind string, time_ms bigint, client string, topic string, message string, request string, keys string, "
    "cost_ms bigint, retries int, is_success boolean"
)


class Step(msgspec.Struct, frozen=True):
    """One record: a step of a message at a client."""

    kind: str
    time_ms: int | None
    client: str | None
    """Its group."""
    topic: str | None
    message: str
    """Its unique key."""
    request: str | None
    keys: str | None
    cost_ms: int | None
    retries: int | None
    is_success: bool | None


def read_steps(body: bytes) -> tuple[list[Step], int]:
    """The records of a trace message, and how many could not be read. Records of other kinds are skipped."""
    steps: list[Step] = []
    bad = 0
    for line in body.decode("utf-8", "replace").split("\x02"):
        fields = line.split("\x01")
        make = _KINDS.get(fields[0])
        if make is None:
            continue
        try:
            steps.append(make(fields))
        except (IndexError, ValueError):
            bad += 1
    return steps, bad


def _pub(fields: list[str]) -> Step:
    # The oldest clients have no offset id before the success.
    success = fields[13] if len(fields) >= 14 else fields[12]
    return Step(
        kind=PUB,
        time_ms=_number(fields[1]),
        client=_text(fields[3]),
        topic=_text(fields[4]),
        message=fields[5],
        request=None,
        keys=_text(fields[7]),
        cost_ms=_number(fields[10]),
        retries=None,
        is_success=success == "true",
    )


def _before(fields: list[str]) -> Step:
    return Step(
        kind=BEFORE,
        time_ms=_number(fields[1]),
        client=_text(fields[3]),
        topic=None,
        message=fields[5],
        request=fields[4],
        keys=_text(fields[7]),
        cost_ms=None,
        retries=_number(fields[6], 31),
        is_success=None,
    )


def _after(fields: list[str]) -> Step:
    return Step(
        kind=AFTER,
        time_ms=_number(fields[7]) if len(fields) >= 9 else None,
        client=_text(fields[8]) if len(fields) >= 9 else None,
        topic=None,
        message=fields[2],
        request=fields[1],
        keys=_text(fields[5]),
        cost_ms=_number(fields[3]),
        retries=None,
        is_success=fields[4] == "true",
    )


_KINDS: Final = {PUB: _pub, BEFORE: _before, AFTER: _after}


def _text(field: str) -> str | None:
    """Java writes null for missing values."""
    return None if field in ("", "null") else field


def _number(field: str, bits: int = 63) -> int:
    """Raises ValueError, also for values that a column can't represent."""
    number = int(field) if len(field) <= 20 else 1 << bits
    if not -(1 << bits) <= number < 1 << bits:
        raise ValueError(f"{field[:30]} is too large")
    return number


def rows_of(body: bytes | None) -> list[dict[str, Any]]:
    """The records of a trace message as rows; one that can't be read is of kind "bad"."""
    steps, bad = read_steps(bytes(body or b""))
    return [*(msgspec.structs.asdict(step) for step in steps), *({"kind": "bad"} for _ in range(bad))]


# ── The pipeline ────────────────────────────────────────────────────────────────────────────────────────────────────


def latency(
    *,
    namesrv: str | None = None,
    topic: str = TRACE_TOPIC,
    since: Moment | None = None,
    until: Moment | None = None,
    key: Keys = (),
    where: str | None = None,
    slow: int = SLOW,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """Percentiles of send times, end-to-end times and consume times, by topic and group; and the slowest messages.

    Trace messages are chosen by their store time and by key: they have the unique keys and keys of the traced messages.
    Raises PipelineError.
    """
    from pyspark.sql import functions as F  # noqa: N812

    with (runner or Runner()).run("trace latency", reads_only=True, topic=topic, namesrv=namesrv, where=where) as run:
        chosen = choice(since=since, until=until, key=key, where=where)
        given = {**(options or {}), "topics": topic}
        if namesrv is not None:
            given["namesrv"] = namesrv
        if "columns" in {name.lower() for name in given}:
            raise OptionError("the columns are chosen here")
        for name, bound in (("startingTimestamp", chosen.from_ms), ("endingTimestamp", chosen.to_ms)):
            if bound is not None:
                given[name] = str(bound)
        traces = chosen.apply(run.spark.read.format("rocketmq").options(**given).load()).select("body")
        # A plain function: Spark's interface with Arrow batches needs pandas, which is not a dependency.
        read = F.udf(rows_of, f"array<struct<{SCHEMA}>>", useArrow=False)
        steps = traces.select(F.explode(read("body")).alias("step")).select("step.*").persist()
        try:
            _tell(run, steps, slow)
        finally:
            steps.unpersist()
    return run.report


_COUNTS: Final = "SELECT kind, count(*) AS n, min(time_ms) AS first, max(time_ms) AS last FROM {steps} GROUP BY kind"

_SENT: Final = """
    SELECT topic, client, count(*) AS n, count_if(NOT is_success) AS failed,
        percentile_approx(cost_ms, array(0.5, 0.9, 0.99, 0.999)) AS p, max(cost_ms) AS most
    FROM {steps} WHERE kind = 'Pub' GROUP BY topic, client ORDER BY n DESC, topic, client LIMIT 1000
    """

_WAYS: Final = """
    SELECT sent.topic, got.client, got.message, got.retries, sent.keys, sent.time_ms AS sent_ms, got.time_ms AS got_ms,
        got.time_ms - sent.time_ms AS way_ms, done.cost_ms AS consuming_ms, done.is_success
    FROM (SELECT message, min(time_ms) AS time_ms, first(topic) AS topic, first(keys) AS keys
            FROM {steps} WHERE kind = 'Pub' GROUP BY message) AS sent
        JOIN (SELECT * FROM {steps} WHERE kind = 'SubBefore') AS got ON sent.message = got.message
        LEFT JOIN (SELECT request, message, max(cost_ms) AS cost_ms, bool_and(is_success) AS is_success
            FROM {steps} WHERE kind = 'SubAfter' GROUP BY request, message) AS done
        ON got.request = done.request AND got.message = done.message
    """

_CONSUMED: Final = """
    SELECT topic, client, count(*) AS n, count_if(retries > 0) AS again, count_if(NOT is_success) AS failed,
        percentile_approx(CASE WHEN retries = 0 THEN way_ms END, array(0.5, 0.9, 0.99, 0.999)) AS p,
        max(CASE WHEN retries = 0 THEN way_ms END) AS most,
        percentile_approx(consuming_ms, array(0.5, 0.99)) AS c
    FROM {ways} GROUP BY topic, client ORDER BY n DESC, topic, client LIMIT 1000
    """


def _tell(run: Run, steps: "DataFrame", slow: int) -> None:
    began, report, spark = time.monotonic(), run.report, run.spark
    counts = {row.kind: row for row in spark.sql(_COUNTS, steps=steps).collect()}
    known = [row for kind, row in counts.items() if kind != "bad"]
    report.skip("no trace records", counts["bad"].n if "bad" in counts else 0)
    times = [moment for row in known for moment in (row["first"], row["last"]) if moment is not None]
    if times:
        report.from_time, report.to_time = time_text(min(times)), time_text(max(times))
    sent = spark.sql(_SENT, steps=steps).collect()
    ways = spark.sql(_WAYS, steps=steps).persist()
    try:
        consumed = spark.sql(_CONSUMED, ways=ways).collect()
        slowest = ways.orderBy(ways["way_ms"].desc(), "message").limit(slow).collect() if slow else []
    finally:
        ways.unpersist()
    report.tables += [_sent_table(sent), _consumed_table(consumed), _slow_table(slowest)]
    report.charts += [
        _bars("Sending, ms", [f"{row.topic} {row.client}" for row in sent], [row.p for row in sent]),
        _bars("From end to end, ms", [f"{row.topic} → {row.client}" for row in consumed], [row.p for row in consumed]),
    ]
    rows = sum(row.n for row in known)
    if PUB in counts and BEFORE not in counts:
        report.notes.append("no consumer has written traces: only send times are known")
    run.batch(BatchProgress(batch=0, rows=rows, seconds=time.monotonic() - began, written=0))


def _sent_table(rows: "list[Row]") -> Table:
    columns = ["topic", "producer group", "messages", "failed", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"]
    return Table("Sending", columns, [[row.topic, row.client, row.n, row.failed, *row.p, row.most] for row in rows])


def _consumed_table(rows: "list[Row]") -> Table:
    ways = ["p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"]
    columns = ["topic", "group", "deliveries", "again", "failed", *ways, "consuming p50 ms", "consuming p99 ms"]
    nothing = [None] * 4
    return Table(
        "From end to end, first deliveries, and consuming",
        columns,
        [
            [
                row.topic,
                row.client,
                row.n,
                row.again,
                row.failed,
                *(row.p or nothing),
                row.most,
                *(row.c or nothing[:2]),
            ]
            for row in rows
        ],
    )


def _slow_table(rows: "list[Row]") -> Table:
    columns = ["message", "topic", "group", "keys", "sent", "way ms", "consuming ms", "retries"]
    return Table(
        "Slowest",
        columns,
        [[row.message, row.topic, row.client, row["keys"], time_text(row.sent_ms), *_slow(row)] for row in rows],
    )


def _slow(row: "Row") -> list[Cell]:
    return [row.way_ms, row.consuming_ms, row.retries]


def _bars(title: str, names: list[str], values: list[list[int] | None]) -> Chart:
    labels = ("p50", "p90", "p99", "p99.9")
    series: dict[str, list[float | None]] = {
        label: [None if each is None else float(each[at]) for each in values[:BARS_MAX]]
        for at, label in enumerate(labels)
    }
    return Chart(title=title, kind="bars", x=names[:BARS_MAX], series=series, unit="ms")
