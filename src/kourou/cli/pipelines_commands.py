"""The verbs of `kourou pipeline`, each with its name."""

from kourou.cli import pipelines_dlq, pipelines_lake, pipelines_streams
from kourou.cli.pipelines import app

app.command()(pipelines_lake.archive)
app.command("archive-store")(pipelines_lake.archive_store)
app.command()(pipelines_lake.replay)
app.add_typer(pipelines_dlq.app, name="dlq")
app.command()(pipelines_streams.transform)
app.command()(pipelines_streams.dedup)

__all__ = ["app"]
