"""The commands of `kourou pipeline`, by name."""

from kourou.cli import pipelines_dlq, pipelines_lake, pipelines_stats, pipelines_streams
from kourou.cli.pipelines import app

app.command()(pipelines_lake.archive)
app.command("archive-store")(pipelines_lake.archive_store)
app.command()(pipelines_lake.compact)
app.command()(pipelines_lake.replay)
app.add_typer(pipelines_dlq.app, name="dlq")
app.command()(pipelines_streams.transform)
app.command()(pipelines_streams.dedup)
app.add_typer(pipelines_stats.stats_app, name="stats")
app.add_typer(pipelines_stats.trace_app, name="trace")

__all__ = ["app"]
