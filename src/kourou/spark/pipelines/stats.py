"""The traffic of topics, and the lag of groups. Both only read.

    traffic("orders,payments", namesrv=…, since="2024-05-01")
    traffic(store="/data/rocketmq/store")
    lag("billing", "orders", namesrv=…, every="10s", samples=30)

Traffic is counted by Spark, in one pass: by topic, queue, tags and time. Bodies are not read, because only the counted
columns are. Brokers report the lag; Spark is not started for that.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kourou.protocol.message import MessageQueue
from kourou.spans import Span
from kourou.spark.cluster import Cluster
from kourou.spark.errors import DataLossError, OptionError, SparkError
from kourou.spark.options import Options, canonical
from kourou.spark.pipelines.choice import Choice, Keys, Moment, choice, span_s
from kourou.spark.pipelines.progress import BatchProgress
from kourou.spark.pipelines.report import Cell, Chart, RunReport, Table, span_text, time_text
from kourou.spark.pipelines.running import Run, Runner
from kourou.spark.planning import Range
from kourou.spark.positions import Offsets, to_nested
from kourou.spark.reading_settings import READ_OPTIONS, ReadSettings, read_settings
from kourou.spark.selection import Selection
from kourou.spark.source import Topics, read_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COUNTED: Final = "topic,broker,queue_id,tags,store_timestamp,store_size"
TAGS_MAX: Final = 100
QUEUES_MAX: Final = 10_000
LINES_MAX: Final = 8
"""The most topics or groups with a line of their own in a chart: those with the largest numbers."""

WINDOW: Final = "60s"
POINTS_MAX: Final = 1440
_COARSER_S: Final = (60, 300, 600, 1800, 3600, 21600, 86400)


# ── Traffic ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def traffic(
    topics: str | None = None,
    *,
    namesrv: str | None = None,
    store: str | Path | None = None,
    pattern: bool = False,
    window: Span = WINDOW,
    since: Moment | None = None,
    until: Moment | None = None,
    key: Keys = (),
    where: str | None = None,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> RunReport:
    """The number and sizes of the messages of topics by time: from brokers, or from the files of a `store`.

    Without `topics`, those of all topics of a store. `window` is the length of an interval; charts of long periods are
    coarser. Raises PipelineError.
    """
    asked = {"topics": topics, "namesrv": namesrv, "store": None if store is None else str(store)}
    with (runner or Runner()).run("stats traffic", reads_only=True, **asked, where=where) as run:
        chosen = choice(since=since, until=until, key=key, where=where)
        window_s = round(span_s(window, "window"))
        if window_s < 1:
            raise OptionError(f"the window must be at least a second, not {window}")
        frame = chosen.apply(_messages(run, topics, namesrv, store, pattern, chosen, options or {}))
        _tell_traffic(run, frame, window_s)
    return run.report


def _messages(
    run: Run,
    topics: str | None,
    namesrv: str | None,
    store: str | Path | None,
    pattern: bool,
    chosen: Choice,
    options: Mapping[str, str],
) -> "DataFrame":
    if (store is None) == (namesrv is None and "namesrv" not in canonical(options, ("namesrv",))):
        raise OptionError("give either namesrv or store: traffic is read from brokers or from the files of a store")
    if store is None and topics is None:
        raise OptionError("no topics are given")
    reader = run.spark.read.format("rocketmq" if store is None else "rocketmq-store").options(**options)
    if namesrv is not None:
        reader = reader.option("namesrv", namesrv)
    if topics is not None:
        reader = reader.option("topicPattern" if pattern else "topics", topics)
    for name, bound in (("startingTimestamp", chosen.from_ms), ("endingTimestamp", chosen.to_ms)):
        if bound is not None:
            reader = reader.option(name, str(bound))
    if chosen.keys or chosen.where is not None:
        return reader.load() if store is None else reader.load(str(store))
    reader = reader.option("columns", COUNTED)
    return reader.load() if store is None else reader.load(str(store))


_COUNT: Final = """
    SELECT grouping_id(topic, broker, queue_id, tags, moment) AS kind, topic, broker, queue_id, tags, moment,
        count(*) AS messages, sum(store_size) AS bytes, max(store_size) AS largest,
        percentile_approx(store_size, array(0.5, 0.99), 1000) AS sizes,
        unix_millis(min(store_timestamp)) AS oldest, unix_millis(max(store_timestamp)) AS newest
    FROM (SELECT *, unix_seconds(store_timestamp) div {window} * {window} AS moment FROM {{messages}})
    GROUP BY GROUPING SETS ((topic), (topic, broker, queue_id), (topic, tags), (topic, moment))
    """
_BY_TOPIC, _BY_QUEUE, _BY_TAGS, _BY_TIME = 0b01111, 0b00011, 0b01101, 0b01110
"""The value of grouping_id: a bit for each column that is not grouped by, the first column the highest."""


def _tell_traffic(run: Run, frame: "DataFrame", window_s: int) -> None:
    began = time.monotonic()
    counted = run.spark.sql(_COUNT.format(window=window_s), messages=frame).collect()
    groups: dict[int, list[Any]] = {kind: [] for kind in (_BY_TOPIC, _BY_QUEUE, _BY_TAGS, _BY_TIME)}
    for row in counted:
        groups[row.kind].append(row)
    report, by_topic = run.report, sorted(groups[_BY_TOPIC], key=lambda row: (-row.messages, row.topic))
    rows, size = sum(row.messages for row in by_topic), sum(row.bytes for row in by_topic)
    if by_topic:
        report.from_time = time_text(min(row.oldest for row in by_topic))
        report.to_time = time_text(max(row.newest for row in by_topic))
    skews = {
        row.topic: _skew([one.messages for one in groups[_BY_QUEUE] if one.topic == row.topic]) for row in by_topic
    }
    report.tables += [
        Table(
            "Topics",
            ["topic", "messages", "bytes", "per second", "p50 size", "p99 size", "largest", "skew", "first", "last"],
            [_topic_row(row, skews[row.topic]) for row in by_topic],
        ),
        Table(
            "Queues",
            ["topic", "broker", "queue", "messages", "bytes", "p99 size"],
            [
                [row.topic, row.broker, row.queue_id, row.messages, row.bytes, row.sizes[1]]
                for row in sorted(groups[_BY_QUEUE], key=lambda row: (row.topic, row.broker or "", row.queue_id))
            ][:QUEUES_MAX],
        ),
        Table(
            "Tags",
            ["topic", "tags", "messages", "bytes", "p50 size", "p99 size"],
            [
                [row.topic, row.tags, row.messages, row.bytes, *row.sizes]
                for row in sorted(groups[_BY_TAGS], key=lambda row: (-row.messages, row.topic, row.tags or ""))
            ][:TAGS_MAX],
        ),
    ]
    report.charts += _traffic_charts([row.topic for row in by_topic[:LINES_MAX]], groups[_BY_TIME], window_s)
    run.batch(BatchProgress(batch=0, rows=rows, bytes=size, seconds=time.monotonic() - began, written=0))


def _topic_row(row: Any, skew: float) -> list[Cell]:
    times = (time_text(moment) for moment in (row.oldest, row.newest))
    return [row.topic, row.messages, row.bytes, _rate(row), *row.sizes, row.largest, skew, *times]


def _skew(counts: Sequence[int]) -> float:
    """The ratio of the fullest queue to the average; 1 if all are equal."""
    return round(max(counts) * len(counts) / max(sum(counts), 1), 2) if counts else 0.0


def _rate(row: Any) -> float:
    return round(float(row.messages / max((row.newest - row.oldest) / 1000, 1.0)), 1)


def _traffic_charts(topics: Sequence[str], rows: Sequence[Any], window_s: int) -> list[Chart]:
    if not rows:
        return []
    first, last = min(row.moment for row in rows), max(row.moment for row in rows)
    step = next((each for each in (window_s, *_COARSER_S) if (last - first) / each < POINTS_MAX), _COARSER_S[-1])
    begin = first // step * step
    count = (last - begin) // step + 1
    counts = {topic: [0.0] * count for topic in topics}
    sizes = {topic: [0.0] * count for topic in topics}
    for row in rows:
        if row.topic in counts:
            counts[row.topic][(row.moment - begin) // step] += row.messages / step
            sizes[row.topic][(row.moment - begin) // step] += row.bytes / step / 1e6
    times = [float((begin + number * step) * 1000) for number in range(count)]
    kinds = (("Messages per second", "messages/s", counts), ("Megabytes per second", "MB/s", sizes))
    return [
        Chart(
            title=title,
            kind="lines",
            x=times,
            series={topic: [round(value, 3) for value in values] for topic, values in series.items()},
            unit=unit,
            is_time=True,
        )
        for title, unit, series in kinds
    ]


# ── Lag ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Standing(msgspec.Struct, frozen=True):
    """The progress of a group in one queue."""

    group: str
    queue: MessageQueue
    first: int
    end: int
    committed: int | None
    """None if it has never committed there."""

    @property
    def lag(self) -> int:
        """Messages that it has not consumed yet. Expired messages are not counted."""
        return max(self.end - max(self.committed or 0, self.first), 0)

    @property
    def lost(self) -> int:
        """Messages that were removed before the group consumed them."""
        return max(self.first - self.committed, 0) if self.committed is not None else 0


def lag(
    groups: str | Sequence[str],
    topics: str,
    *,
    namesrv: str | None = None,
    pattern: bool = False,
    every: Span = "10s",
    samples: int = 1,
    options: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    clock: Callable[[], float] = time.time,
) -> RunReport:
    """How many messages groups have not consumed, queue by queue, and how long the oldest of them has waited.

    `samples` samples are taken at the interval `every`; 0 means until the runner is asked to stop. Each sample is a
    batch, with lag and consumed messages by group: groups are never added up. Raises PipelineError.
    """
    groups = groups.replace(",", " ").split() if isinstance(groups, str) else groups
    names = ", ".join(groups)
    with (runner or Runner()).run("stats lag", reads_only=True, groups=names, topics=topics, namesrv=namesrv) as run:
        if not groups:
            raise OptionError("no group is given")
        given = {**(options or {}), "topicPattern" if pattern else "topics": topics}
        if namesrv is not None:
            given["namesrv"] = namesrv
        settings = read_settings(Options(given, READ_OPTIONS), streaming=False)
        _Lag(run, settings, list(dict.fromkeys(groups)), clock).watch(span_s(every, "every"), samples or None)
    return run.report


def standings(cluster: Cluster, groups: Sequence[str], queues: Sequence[MessageQueue]) -> list[Standing]:
    """The current progress of each group in each queue. Raises UnreachableError, RefusedError."""
    committed = {group: cluster.committed(queues, group) for group in groups}
    first, ends = cluster.starts(queues), cluster.ends(queues)
    return [
        Standing(group, queue, first[queue], ends[queue], committed[group][queue])
        for group in groups
        for queue in queues
    ]


class _Lag:
    """The samples of one run."""

    def __init__(self, run: Run, settings: ReadSettings, groups: list[str], clock: Callable[[], float]) -> None:
        self._run = run
        self._settings = settings
        self._groups = groups
        self._clock = clock
        self._topics = Topics(settings)
        self._times: list[float] = []
        self._lags: dict[str, list[float | None]] = {}

    def watch(self, every_s: float, samples: int | None) -> None:
        before: list[Standing] = []
        began = time.monotonic()
        number = 0
        while True:
            standings = self._sample()
            age_s = max((self._age_s(one) or 0.0 for one in standings if one.lag), default=0.0)
            consumed = {group: _consumed(before, standings, group) for group in self._groups}
            lags = {group: sum(one.lag for one in standings if one.group == group) for group in self._groups}
            seconds = time.monotonic() - began
            began = time.monotonic()
            is_one = len(self._groups) == 1
            self._run.batch(
                BatchProgress(
                    batch=number,
                    rows=sum(consumed.values()) if is_one else 0,
                    seconds=seconds,
                    written=0,
                    lag=sum(lags.values()) if is_one else None,
                    age_s=age_s or None,
                    lags=lags,
                    consumed=consumed,
                )
            )
            before = standings
            number += 1
            if number == samples or not self._run.wait(every_s):
                break
        self._tell(before)

    def _sample(self) -> list[Standing]:
        found = standings(self._topics.cluster, self._groups, self._topics.queues())
        self._times.append(self._clock() * 1000)
        for group in self._groups:
            self._lags.setdefault(group, []).append(float(sum(one.lag for one in found if one.group == group)))
        return found

    def _age_s(self, one: Standing) -> float | None:
        """How long the next message of a queue has been waiting; None if that is not known."""
        start = max(one.committed or 0, one.first)
        settings = msgspec.structs.replace(self._settings, columns=("store_timestamp",), fail_on_loss=False)
        try:
            batches = list(read_task((Range(one.queue, start, start + 1),), settings, Selection()))
        except (SparkError, DataLossError):
            return None
        stored = [moment for batch in batches for moment in batch.column(0).to_pylist()]
        return max(self._clock() - stored[0].timestamp(), 0.0) if stored else None

    def _tell(self, standings: list[Standing]) -> None:
        report = self._run.report
        ages = {one: self._age_s(one) for one in standings if one.lag}
        report.facts = [_fact(group, [one for one in standings if one.group == group], ages) for group in self._groups]
        report.tables += [_groups_table(self._groups, standings, ages), _queues_table(standings, ages)]
        report.to_offsets = to_nested(_ends(standings))
        strange = [
            group
            for group in self._groups
            if all(one.committed is None for one in standings if one.group == group) and standings
        ]
        report.notes += [f"group {group} has never committed an offset in these topics" for group in strange]
        report.charts.append(
            Chart(title="Lag by queue", kind="bars", x=_names(standings), series=_bars(standings), unit="messages")
        )
        if len(self._times) > 1:
            report.charts.append(
                Chart(
                    title="Lag by group", kind="lines", x=self._times, series=self._lags, unit="messages", is_time=True
                )
            )


def _consumed(before: Sequence[Standing], after: Sequence[Standing], group: str) -> int:
    known = {one.queue: one.committed or 0 for one in before if one.group == group}
    here = [one for one in after if one.group == group]
    return sum(max((one.committed or 0) - known.get(one.queue, one.committed or 0), 0) for one in here)


def _fact(group: str, here: Sequence[Standing], ages: Mapping[Standing, float | None]) -> tuple[str, str]:
    """The lag of a group, in short."""
    behind = sum(1 for one in here if one.lag)
    oldest = max((ages.get(one) or 0.0 for one in here), default=0.0)
    waits = f", the oldest waits {span_text(oldest)}" if oldest else ""
    return f"{sum(one.lag for one in here):,}", f"messages before {group} in {behind} of {len(here)} queues{waits}"


def _ends(standings: Sequence[Standing]) -> Offsets:
    return {one.queue: one.end for one in standings}


def _groups_table(groups: Sequence[str], standings: Sequence[Standing], ages: Mapping[Standing, float | None]) -> Table:
    rows: list[list[Cell]] = []
    for group in groups:
        for topic in sorted({one.queue.topic for one in standings}):
            here = [one for one in standings if one.group == group and one.queue.topic == topic]
            oldest = max((ages.get(one) or 0.0 for one in here), default=0.0)
            behind = sum(1 for one in here if one.lag)
            rows.append([group, topic, len(here), behind, sum(one.lag for one in here), _span(oldest)])
    return Table("Groups", ["group", "topic", "queues", "behind", "lag", "oldest waits"], rows)


def _queues_table(standings: Sequence[Standing], ages: Mapping[Standing, float | None]) -> Table:
    rows: list[list[Cell]] = []
    for one in sorted(standings, key=lambda one: (-one.lag, one.group, one.queue)):
        place = (one.queue.topic, one.queue.broker_name, one.queue.queue_id)
        waits = _span(ages.get(one) or 0.0)
        rows.append([one.group, *place, one.committed, one.end, one.lag, waits, one.lost or None])
    columns = ["group", "topic", "broker", "queue", "committed", "end", "lag", "oldest waits", "lost"]
    return Table("Queues", columns, rows[:QUEUES_MAX])


def _span(seconds: float) -> str | None:
    return span_text(seconds) if seconds else None


def _names(standings: Sequence[Standing]) -> list[str]:
    queues = sorted({one.queue for one in standings})
    return [f"{queue.topic} {queue.broker_name} {queue.queue_id}" for queue in queues][:POINTS_MAX]


def _bars(standings: Sequence[Standing]) -> dict[str, list[float | None]]:
    queues = sorted({one.queue for one in standings})[:POINTS_MAX]
    lags = {(one.group, one.queue): float(one.lag) for one in standings}
    groups = list(dict.fromkeys(one.group for one in standings))[:LINES_MAX]
    return {group: [lags.get((group, queue)) for queue in queues] for group in groups}
