"""`kourou pipeline` as people run it: its help, its mistakes, Ctrl-C and kill -9."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.running import Runner

from .brokers import ACCESS, create_topic, send
from .test_pipelines import live_places, plain_places

VERBS = ["archive", "archive-store", "compact", "replay", "transform", "dedup", "dlq", "stats", "trace"]
QUICK = ("--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def kourou(*words: str, code: str = "pass", **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command; `code` runs before it, in the same interpreter."""
    program = f"import sys; {code}; from kourou.cli.main import main; main()"
    plain = {**os.environ, "TERM": "dumb", "COLUMNS": "200", **environment}
    plain.pop("NAMESRV_ADDR", None)
    return subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=120, env=plain
    )


def test_help_knows_the_verbs() -> None:
    done = kourou("pipeline", "--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert verb in done.stdout
    done = kourou("pipeline", "archive", "--help")
    for option in ("--once", "--every", "--json", "--html", "--master", "--conf", "--option", "--namesrv"):
        assert option in done.stdout


def test_every_option_has_one_meaning() -> None:
    from typer.main import get_command

    from kourou.cli.pipelines_commands import app

    def check(command: Any) -> int:
        names = [name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)]
        assert len(names) == len(set(names)), command.name
        return 1 + sum(check(below) for below in getattr(command, "commands", {}).values())

    assert check(get_command(app)) > len(VERBS)


def test_nothing_of_spark_is_imported_for_help() -> None:
    code = "import kourou.cli.main, kourou.cli.pipelines_commands, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    imported = set(done.stdout.split())
    assert "kourou.cli.pipelines_commands" in imported
    assert not imported & {"pyspark", "pyarrow", "kourou.spark", "msgspec"}


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_without_the_extra(missing: str, tmp_path: Path) -> None:
    done = kourou(
        "pipeline", "archive", "t", str(tmp_path), "-n", "127.0.0.1:1", code=f"sys.modules[{missing!r}] = None"
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [done.stderr.strip()]
    assert done.stderr.startswith("kourou: Spark is not installed")
    assert "pip install 'kourou[spark]'" in done.stderr


def test_without_java(tmp_path: Path) -> None:
    done = kourou("pipeline", "archive", "t", str(tmp_path), "-n", "127.0.0.1:1", PATH="/nowhere", JAVA_HOME="")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "kourou: Java was not found: Spark needs Java 17 or later; install it, or set JAVA_HOME"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "t", "lake"], "no name server is given: use -n HOST:PORT, set NAMESRV_ADDR, or add a profile"),
        (["archive", "t", "lake", "-n", "h:1", "--every", "soon"], "--every soon: a time such as"),
        (["archive", "t", "lake", "-n", "h:1", "--conf", "x"], "--conf x: KEY=VALUE is expected"),
        (
            ["archive", "t", "lake", "-n", "h:1", "--html", "/no/page"],
            "--html /no/page: the directory /no does not exist",
        ),
        (["transform", "a", "b", "--checkpoint", "c", "-n", "h:1"], "give --sql or --sql-file"),
        (
            ["transform", "a", "b", "--checkpoint", "c", "-n", "h:1", "--sql-file", "/no"],
            "--sql-file /no: No such file",
        ),
        (["dlq", "redrive", "g", "-n", "h:1"], "Missing option '--state'"),
    ],
)
def test_mistakes_before_spark_starts(words: list[str], said: str) -> None:
    done = kourou("pipeline", *words)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["archive", "t", "{lake}", "-n", "127.0.0.1:1", "--option", "retryTimeout=1s"], "no name server answers"),
        (
            ["replay", "{lake}", "t", "-n", "127.0.0.1:1", "--since", "soon"],
            "option since must be milliseconds since 1970",
        ),
        (["replay", "{lake}", "t", "-n", "127.0.0.1:1"], "no lake exists at"),
        (["archive-store", "{lake}/none", "{lake}"], "can't be read: No such file"),
        (["archive-store", "{lake}/none", "{lake}", "--format", "orc"], "no format orc: there are parquet, delta"),
        (["compact", "{lake}"], "no lake exists at"),
        (["dlq", "triage", "-n", "127.0.0.1:1"], "no name server answers"),
        (["dedup", "a", "b", "--checkpoint", "{lake}/c", "-n", "127.0.0.1:1"], "no name server answers"),
    ],
)
def test_mistakes_that_need_no_spark(words: list[str], said: str, tmp_path: Path) -> None:
    """One line, and no session is started for it."""
    page = tmp_path / "report.html"
    done = kourou("pipeline", *(word.format(lake=tmp_path) for word in words), "--html", str(page))
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
    assert done.stdout == ""


@contextmanager
def running(*words: str) -> Iterator[subprocess.Popen[str]]:
    """The command in a process group of its own, as a shell starts it."""
    command = [sys.executable, "-m", "kourou", "pipeline", *words, "--json", "--master", "local[1]", *QUICK]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")
def test_ctrl_c_and_kill(spark: SparkSession, broker: EmbeddedThread, tmp_path: Path) -> None:
    """Ctrl-C ends a run between two batches; kill -9 anywhere. A lake that both came over has each message once."""
    cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
    create_topic(broker.namesrv, "killed", queues=4)
    for queue in range(4):
        send(cluster, "killed", [b"%d/%d" % (queue, number) for number in range(3000)], queue=queue)
    lake, page = tmp_path / "lake", tmp_path / "report.html"
    words = [
        "archive",
        "killed",
        str(lake),
        "-n",
        broker.namesrv,
        "--continuous",
        "--every",
        "1h",
        "--batch-rows",
        "700",
    ]
    with running(*words, "--html", str(page)) as process:
        assert process.stdout is not None
        batches = [json.loads(process.stdout.readline()) for _ in range(2)]
        assert [batch["rows"] for batch in batches] == [700, 700]
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    report = json.loads(out.splitlines()[-1])
    assert report["stopped"] == "asked" and report["errors"] == []
    assert len(plain_places(lake)) == report["written"]["rows"] >= 1400
    assert "<svg" in page.read_text()
    with running(*words) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert first["lag"] < batches[-1]["lag"]
        process.kill()
    here = plain_places(lake)
    assert len(here) == len(set(here)) < 12_000
    archive("killed", lake, namesrv=broker.namesrv, runner=Runner(spark=spark))
    assert plain_places(lake) == live_places(cluster, "killed")
    rows = ds.dataset(lake, partitioning="hive").to_table(columns=["queue_id", "queue_offset", "body"]).to_pylist()
    assert all(row["body"] == b"%d/%d" % (row["queue_id"], row["queue_offset"]) for row in rows)
