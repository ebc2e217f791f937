"""A run report as one HTML file: totals, charts, tables. It loads nothing, so it can be mailed or kept."""

from html import escape
from pathlib import Path
from typing import Final

from kourou.spark.pipelines.charts import svg
from kourou.spark.pipelines.report import Cell, RunReport, Table, count_text, size_text, span_text

_STYLE: Final = """
body{font:14px/1.45 system-ui,sans-serif;color:#1a202c;max-width:1100px;margin:2em auto;padding:0 1em}
h1{font-size:1.4em;margin-bottom:.2em}h2{font-size:1.05em;margin:1.6em 0 .4em}
.facts{display:flex;flex-wrap:wrap;gap:.6em 2em;margin:1em 0}.facts b{display:block;font-size:1.25em}
.facts span{color:#4a5568}svg{width:100%;height:auto;max-width:720px}svg text{font-size:11px;fill:#4a5568}
.grid{stroke:#e2e8f0}table{border-collapse:collapse;max-width:100%}
td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top;border-bottom:1px solid #e2e8f0;
overflow-wrap:anywhere;min-width:3em}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}td.n{white-space:nowrap}
.error{color:#9b2c2c}.legend span{margin-right:1.2em}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}.empty{color:#718096}
"""


def write_page(report: RunReport, path: Path) -> None:
    """Raises OSError."""
    path.write_text(page(report), encoding="utf-8")


def page(report: RunReport) -> str:
    title = f"kourou {report.pipeline}"
    parts = [f"<h1>{escape(title)}</h1><p>{escape(report.started)}, {_ending(report)}</p>", _facts(report)]
    parts += [f'<p class="error">{escape(error)}</p>' for error in report.errors]
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    parts += [f"<h2>{escape(chart.title)}</h2>{svg(chart)}" for chart in report.charts]
    parts += [_table(table) for table in report.tables]
    if report.settings:
        rows: list[list[Cell]] = [[name, str(value)] for name, value in report.settings.items()]
        parts.append(_table(Table("Settings", ["name", "value"], rows)))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<body>{''.join(parts)}</body></html>"
    )


def _ending(report: RunReport) -> str:
    return {"end": "done", "asked": "stopped as asked", "error": "failed"}[report.stopped]


def _facts(report: RunReport) -> str:
    facts = [*report.facts]
    if not facts:
        facts.append((f"{report.read.rows:,}", f"messages read, {size_text(report.read.bytes)}"))
        facts += [] if report.reads_only else [(f"{report.written.rows:,}", "written")]
    facts += [(f"{rows:,}", f"skipped: {reason}") for reason, rows in report.skipped.items()]
    if report.facts:
        facts.append((span_text(report.seconds), count_text(report.batches, "sample", "samples")))
    else:
        facts.append((span_text(report.seconds), count_text(report.batches, "batch", "batches")))
        facts.append((f"{report.rows_per_s:,.0f}", "messages/s"))
    cells = "".join(f"<div><b>{escape(figure)}</b><span>{escape(what)}</span></div>" for figure, what in facts)
    return f'<div class="facts">{cells}</div>'


def _table(table: Table) -> str:
    numeric = [all(isinstance(row[at], int | float | None) for row in table.rows) for at in range(len(table.columns))]
    mark = [' class="n"' if is_number else "" for is_number in numeric]
    head = "".join(f"<th{mark[at]}>{escape(name)}</th>" for at, name in enumerate(table.columns))
    body = "".join(
        f"<tr>{''.join(f'<td{mark[at]}>{_cell(cell)}</td>' for at, cell in enumerate(row))}</tr>" for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>"


def _cell(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, str):
        return escape(cell)
    return f"{cell:,.1f}" if isinstance(cell, float) else f"{cell:,}"
