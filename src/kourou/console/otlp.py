"""The page of a broker's metrics, as Prometheus reads it, in OpenTelemetry's form: OTLP as JSON. Pure.

Names and labels are not changed. Counters and histograms count from the start of the broker.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isfinite
from typing import Any, Final

import msgspec

POINTS_MAX: Final = 2000
"""Points of one request; a page with more becomes several."""
CUMULATIVE: Final = 2
SCOPE: Final = {"name": "kourou"}

_SAMPLE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)(?: -?\d+)?", re.ASCII)
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED: Final = re.compile(r"\\(.)")

Labels = tuple[tuple[str, str], ...]


class Family(msgspec.Struct):
    """One metric: its kind, description and samples."""

    name: str
    kind: str = "gauge"
    text: str = ""
    samples: list[tuple[str, Labels, float]] = []


def families(page: str) -> Iterator[Family]:
    """The metrics of a page in their order. Other lines are skipped."""
    now = Family("")
    for line in page.split("\n"):
        if line.startswith("# "):
            words = line.split(" ", 3)
            if len(words) < 3 or words[1] not in ("HELP", "TYPE"):
                continue
            if words[2] != now.name:
                if now.samples:
                    yield now
                now = Family(words[2])
            if words[1] == "HELP":
                now.text = words[3] if len(words) > 3 else ""
            else:
                now.kind = words[3] if len(words) > 3 else "gauge"
        elif (found := _SAMPLE.fullmatch(line)) is not None:
            if found[1] not in _names(now):
                if now.samples:
                    yield now
                now = Family(found[1])
            value = _number(found[3])
            if value is not None:
                now.samples.append((found[1], _labels(found[2] or ""), value))
    if now.samples:
        yield now


def _names(family: Family) -> tuple[str, ...]:
    name = family.name
    return (f"{name}_bucket", f"{name}_sum", f"{name}_count") if family.kind == "histogram" else (name,)


def _number(text: str) -> float | None:
    """None for numbers that JSON does not have."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _labels(text: str) -> Labels:
    return tuple((name, _ESCAPED.sub(_plain, value)) for name, value in _LABEL.findall(text))


def _plain(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def requests(page: str, resource: Mapping[str, str], start_ms: int, now_ms: int) -> Iterator[bytes]:
    """The bodies of requests to a collector with all metrics of a page."""
    metrics: list[dict[str, Any]] = []
    count = 0
    for family in families(page):
        points = _points(family, f"{start_ms * 1_000_000}", f"{now_ms * 1_000_000}")
        while points:
            part, points = points[: POINTS_MAX - count], points[POINTS_MAX - count :]
            metrics.append(_metric(family, part))
            count += len(part)
            if count >= POINTS_MAX:
                yield _request(metrics, resource)
                metrics, count = [], 0
    if metrics:
        yield _request(metrics, resource)


def _points(family: Family, start: str, now: str) -> list[dict[str, Any]]:
    if family.kind == "histogram":
        return _histograms(family, start, now)
    common = {"timeUnixNano": now, **({"startTimeUnixNano": start} if family.kind == "counter" else {})}
    return [{**common, "attributes": _pairs(labels), "asDouble": value} for _, labels, value in family.samples]


def _histograms(family: Family, start: str, now: str) -> list[dict[str, Any]]:
    """Prometheus counts values below each bound; OTLP counts values between two bounds."""
    found: dict[Labels, dict[str, Any]] = {}
    for name, labels, value in family.samples:
        own = tuple(pair for pair in labels if pair[0] != "le")
        one = found.setdefault(own, {"below": {}, "sum": 0.0, "count": 0.0})
        if name.endswith("_bucket"):
            bound = _number(dict(labels).get("le", ""))
            if bound is not None:  # the last one is the count
                one["below"][bound] = value
        else:
            one[name.rpartition("_")[2]] = value
    points = []
    for labels, one in found.items():
        bounds = sorted(one["below"])
        below = [0.0, *(one["below"][bound] for bound in bounds), one["count"]]
        between = [max(after - before, 0) for before, after in pairwise(below)]
        points.append(
            {
                "startTimeUnixNano": start,
                "timeUnixNano": now,
                "attributes": _pairs(labels),
                "count": f"{one['count']:.0f}",
                "sum": one["sum"],
                "explicitBounds": bounds,
                "bucketCounts": [f"{count:.0f}" for count in between],
            }
        )
    return points


def _metric(family: Family, points: list[dict[str, Any]]) -> dict[str, Any]:
    metric: dict[str, Any] = {"name": family.name, "description": family.text}
    match family.kind:
        case "counter":
            metric["sum"] = {"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": True}
        case "histogram":
            metric["histogram"] = {"dataPoints": points, "aggregationTemporality": CUMULATIVE}
        case _:
            metric["gauge"] = {"dataPoints": points}
    return metric


def _request(metrics: list[dict[str, Any]], resource: Mapping[str, str]) -> bytes:
    one = {
        "resource": {"attributes": _pairs(tuple(resource.items()))},
        "scopeMetrics": [{"scope": SCOPE, "metrics": metrics}],
    }
    return msgspec.json.encode({"resourceMetrics": [one]})


def _pairs(labels: Labels) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in labels]
