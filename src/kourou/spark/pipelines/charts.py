"""Charts as SVG, made without a library: a page with them needs no other file and no other host."""

import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import takewhile
from typing import Final

from kourou.spark.pipelines.report import Chart

WIDTH: Final = 720
HEIGHT: Final = 260
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 14, 42
COLOURS: Final = ("#2b6cb0", "#c05621", "#2f855a", "#805ad5", "#b83280", "#4a5568", "#b7791f", "#319795")
BARS_MAX: Final = 40
TICKS: Final = 5


def svg(chart: Chart) -> str:
    """An <svg> element; a line of text if there is nothing to draw."""
    known = [value for values in chart.series.values() for value in values if value is not None]
    if not chart.x or not known:
        return '<p class="empty">nothing to show</p>'
    if chart.kind == "lines" and len(set(chart.x)) == 1:
        chart = _as_bars(chart)
    top = _round_up(max(*known, 0.0, 0.0))
    low = min(*known, 0.0, 0.0)
    parts = [_axes(low, top, chart.unit)]
    parts += _lines(chart, low, top) if chart.kind == "lines" else _bars(chart, low, top)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title, quote=True)}">'
        f"{''.join(parts)}</svg>{_legend(chart)}{_left_out(chart)}"
    )


def _as_bars(chart: Chart) -> Chart:
    """A line with one point is drawn as a bar for each series."""
    last = {
        name: next((one for one in reversed(values) if one is not None), None) for name, values in chart.series.items()
    }
    moment = _time(float(chart.x[0]), 86_400_001) if chart.is_time else _short(float(chart.x[0]))
    return Chart(title=chart.title, kind="bars", x=list(last), series={moment: list(last.values())}, unit=chart.unit)


def _left_out(chart: Chart) -> str:
    if chart.kind == "bars" and len(chart.x) > BARS_MAX:
        return f'<p class="empty">the first {BARS_MAX} of {len(chart.x):,}</p>'
    return ""


def ticks(low: float, high: float, count: int = TICKS) -> list[float]:
    """Round numbers from low to high."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first = math.ceil(low / step) * step
    return [first + step * number for number in range(int((high - first) / step + 1e-9) + 1)]


def _round_up(value: float) -> float:
    """The next round number, so that a chart has some space at the top."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if power * factor >= value * 0.999)


def _y(value: float, low: float, top: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (top - low))


def _axes(low: float, top: float, unit: str) -> str:
    lines = []
    for value in ticks(low, top):
        y = _y(value, low, top)
        lines.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(value)}</text>'
        )
    return "".join(lines) + f'<text x="{LEFT}" y="10" class="unit">{escape(unit)}</text>'


def _lines(chart: Chart, low: float, top: float) -> Iterator[str]:
    xs = [float(value) for value in chart.x]
    first, last = min(xs), max(xs)
    span = (last - first) or 1.0

    def place(x: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (x - first) / span

    for number, values in enumerate(chart.series.values()):
        colour = COLOURS[number % len(COLOURS)]
        for piece in _pieces(xs, values):
            points = " ".join(f"{place(x):.1f},{_y(value, low, top):.1f}" for x, value in piece)
            yield f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{points}"/>'
            if len(piece) == 1 or len(xs) <= 30:
                yield "".join(
                    f'<circle cx="{place(x):.1f}" cy="{_y(value, low, top):.1f}" r="2.4" fill="{colour}"/>'
                    for x, value in piece
                )
    for x, anchor in ((first, "start"), ((first + last) / 2, "middle"), (last, "end")):
        label = _time(x, last - first) if chart.is_time else _short(x)
        yield f'<text x="{place(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}">{label}</text>'


def _pieces(xs: Sequence[float], values: Sequence[float | None]) -> Iterator[list[tuple[float, float]]]:
    """The points between two gaps, in the order of x."""
    piece: list[tuple[float, float]] = []
    for x, value in sorted(zip(xs, values, strict=True), key=lambda pair: pair[0]):
        if value is None:
            if piece:
                yield piece
            piece = []
        else:
            piece.append((x, value))
    if piece:
        yield piece


def _bars(chart: Chart, low: float, top: float) -> Iterator[str]:
    names = [str(name) for name in chart.x[:BARS_MAX]]
    room = (WIDTH - LEFT - RIGHT) / len(names)
    wide = room * 0.8 / len(chart.series)
    base = _y(max(low, 0.0), low, top)
    letters = max(int(room / 6.5), 2)
    labels = _labels(names, letters)
    for at, name in enumerate(names):
        for number, values in enumerate(chart.series.values()):
            value = values[at]
            if value is None:
                continue
            y, x = _y(value, low, top), LEFT + room * at + room * 0.1 + wide * number
            yield (
                f'<rect x="{x:.1f}" y="{min(y, base):.1f}" width="{max(wide - 1, 1):.1f}" '
                f'height="{abs(base - y):.1f}" fill="{COLOURS[number % len(COLOURS)]}">'
                f"<title>{escape(name)}: {_short(value)}</title></rect>"
            )
        yield (
            f'<text x="{LEFT + room * (at + 0.5):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
            f"{escape(labels[at])}</text>"
        )


def _labels(names: Sequence[str], letters: int) -> list[str]:
    """Names shortened to a number of letters: without their common first words, then their beginnings or, if these are
    equal, their ends."""
    if all(len(name) <= letters for name in names):
        return list(names)
    common = _common(names)
    short = [name[len(common) :] for name in names]
    heads = [name if len(name) <= letters else f"{name[: letters - 1]}…" for name in short]
    if len(set(heads)) == len(set(names)):
        return heads
    return [name if len(name) <= letters else f"…{name[1 - letters :]}" for name in short]


def _common(names: Sequence[str]) -> str:
    """The common first words of all names, which do not distinguish them."""
    if len(names) < 2:
        return ""
    low, high = min(names).split(" "), max(names).split(" ")  # all names between these two have the same prefix
    shared = list(takewhile(lambda pair: pair[0] == pair[1], zip(low[:-1], high[:-1], strict=False)))
    return "".join(f"{word} " for word, _ in shared)


def _legend(chart: Chart) -> str:
    if len(chart.series) < 2:
        return ""
    entries = "".join(
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>'
        for number, name in enumerate(chart.series)
    )
    return f'<p class="legend">{entries}</p>'


def _short(value: float) -> str:
    """1234567 -> 1.23M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _time(time_ms: float, span_ms: float) -> str:
    form = "%Y-%m-%d %H:%M" if span_ms > 86_400_000 else "%H:%M:%S"
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime(form)
