"""Figures in Prometheus' format: a name, a description, labels, and a value for each set of labels."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from kourou.broker.meters import Histogram

Row: TypeAlias = tuple[tuple[str | None, ...], float | Histogram] | None
"""The values of a figure's own labels, and the figure; None is a pause, in which other requests may be served.

A label without a value is omitted.
"""

COUNTER, HISTOGRAM = "counter", "histogram"


class Figure(NamedTuple):
    name: str
    text: str
    rows: Iterable[Row]
    labels: tuple[str, ...] = ()
    kind: str = "gauge"


def one(name: str, text: str, value: float, kind: str = "gauge") -> Figure:
    """A figure without labels of its own."""
    return Figure(name, text, [((), value)], kind=kind)


class Lines:
    """The lines of figures that have common labels."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels, self._values = list(labels), list(labels.values())

    def of(self, figure: Figure) -> Iterator[str]:
        """A figure, line by line; an empty text is a pause."""
        yield f"# HELP {figure.name} {figure.text}\n# TYPE {figure.name} {figure.kind}\n"
        if figure.kind != HISTOGRAM:
            yield from self._lines(figure.name, figure.labels, figure.rows)
            return
        bucket = self._keys((*figure.labels, "le"))
        other = self._keys(figure.labels)
        for row in figure.rows:
            if row is None:
                yield ""
                continue
            values, found = row
            assert isinstance(found, Histogram), figure.name
            for bound, count in found.cumulative():
                yield self._line(f"{figure.name}_bucket", bucket, (*values, bound), count)
            yield self._line(f"{figure.name}_count", other, values, sum(found.buckets))
            yield self._line(f"{figure.name}_sum", other, values, found.total)

    def _lines(self, name: str, labels: tuple[str, ...], rows: Iterable[Row]) -> Iterator[str]:
        keys = self._keys(labels)
        for row in rows:
            if row is None:
                yield ""
                continue
            assert not isinstance(row[1], Histogram), name
            yield self._line(name, keys, row[0], row[1])

    def _keys(self, labels: tuple[str, ...]) -> list[tuple[int, str]]:
        """The labels in the order of their names, each with the index of its value."""
        names = [*self._labels, *labels]
        return [(at, f'{names[at]}="') for at in sorted(range(len(names)), key=names.__getitem__)]

    def _line(self, name: str, keys: list[tuple[int, str]], own: tuple[str | None, ...], value: float) -> str:
        values = (*self._values, *own)
        shown = ",".join(f'{key}{_escaped(found)}"' for at, key in keys if (found := values[at]) is not None)
        return f"{name}{{{shown}}} {float(value)!r}\n"


def flag(value: object) -> str:
    """A label that is true or false."""
    return str(bool(value)).lower()


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
