"""Spark Connect: what its API allows. The server is a local one, started by a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster

from .brokers import create_topic, pull_all
from .test_spark import fill

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCRIPT = """
import json, os, sys
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
from pyspark.sql import SparkSession
from kourou.spark.pipelines.archive import archive
from kourou.spark.pipelines.compact import compact
from kourou.spark.pipelines.lake import read_lake
from kourou.spark.pipelines.replay import replay
from kourou.spark.pipelines.running import PipelineError, Runner
from kourou.spark.pipelines.stats import traffic
from kourou.spark.pipelines.tasks import is_connect, parallelism

namesrv, lake, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
found = {"connect": is_connect(spark), "parallelism": parallelism(spark)}
reader = spark.read.format("rocketmq").option("namesrv", namesrv)
found["read"] = reader.load("remote").where("queue_id = 1").count()
frame = reader.load("remote").select("body", "tags")
frame.write.format("rocketmq").mode("append").option("namesrv", namesrv).save("remote-copy")
stream = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("startingOffsets", "earliest")
query = (
    stream.load("remote").writeStream.format("rocketmq").option("namesrv", namesrv).option("topic", "remote-copy")
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination(120)
found["stream"] = str(query.exception())
runner = Runner(spark=spark)
found["archived"] = archive("remote", lake, namesrv=namesrv, batch_rows=30, runner=runner).written.rows
found["compacted"] = compact(lake, runner=runner).written.rows
found["lake"] = read_lake(spark, lake).count()
found["traffic"] = traffic("remote", namesrv=namesrv, runner=runner).read.rows
try:
    replay(lake, "remote-copy", namesrv=namesrv, runner=runner)
except PipelineError as error:
    found["refused"] = str(error)
print(json.dumps(found))
"""


def test_what_spark_connect_allows(broker: EmbeddedThread, cluster: Cluster, tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    fill(broker, cluster, "remote", queues=2, count=50)
    create_topic(broker.namesrv, "remote-copy", queues=2)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, broker.namesrv, str(tmp_path / "lake"), str(tmp_path / "state")],
        capture_output=True,
        text=True,
        timeout=280,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("refused").startswith("sending in a pipeline needs a classic session")
    assert found == {
        "connect": True,
        "parallelism": 2,
        "read": 50,
        "stream": "None",
        "archived": 100,
        "compacted": 100,
        "lake": 100,
        "traffic": 100,
    }
    assert len(pull_all(cluster, "remote-copy")) == 200
