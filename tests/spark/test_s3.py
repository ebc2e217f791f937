"""Lakes on S3: one URL for users, Arrow, delta-rs and Spark. The server is moto's, in a process of its own.

Spark itself needs Hadoop's S3 client, 690 MB of jars. The test with it runs where KOUROU_S3A_JARS names them, separated
by commas; everything else runs everywhere.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster
from kourou.spark.errors import OptionError
from kourou.spark.pipelines.folders import open_folder
from kourou.spark.pipelines.lake import read_lake
from kourou.spark.pipelines.object_stores import delta_settings, for_arrow, for_spark, missing_jars, spark_settings
from kourou.spark.pipelines.replay import hours_of, topics_of
from kourou.spark.session import hadoop_version

from .brokers import ACCESS, create_topic, pull_all
from .test_pipelines_lake import WHOLE, archive_once
from .test_spark import fill

QUIET = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning")


# ── Names ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "arrow", "spark"),
    [
        ("s3://b/lake", "s3://b/lake", "s3a://b/lake"),
        ("s3a://b/lake", "s3://b/lake", "s3a://b/lake"),
        ("s3n://b/lake/", "s3://b/lake/", "s3a://b/lake"),
        ("s3://b/l?region=eu-1&scheme=http", "s3://b/l?region=eu-1&scheme=http", "s3a://b/l"),
        ("gs://b/lake", "gs://b/lake", "gs://b/lake"),
        ("hdfs:///lake", "hdfs:///lake", "hdfs:///lake"),
        ("/data/s3://odd", "/data/s3://odd", "/data/s3://odd"),
        ("/data/lake", "/data/lake", "/data/lake"),
    ],
)
def test_one_name_for_all(url: str, arrow: str, spark: str) -> None:
    assert (for_arrow(url), for_spark(url)) == (arrow, spark)


def test_settings_follow_the_url_and_the_environment() -> None:
    url = "s3://b/lake?endpoint_override=127.0.0.1:9000&scheme=http&region=eu-1"
    assert spark_settings(url, {}) == {
        "fs.s3a.bucket.b.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.bucket.b.path.style.access": "true",
        "fs.s3a.bucket.b.connection.ssl.enabled": "false",
        "fs.s3a.bucket.b.endpoint.region": "eu-1",
    }
    assert delta_settings(url, {}) == {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "eu-1",
    }
    given = {"AWS_ENDPOINT_URL": "https://minio:9000"}
    assert spark_settings("s3a://b/lake", given)["fs.s3a.bucket.b.endpoint"] == "https://minio:9000"
    assert delta_settings("s3a://b/lake", given) == {
        "AWS_ENDPOINT_URL": "https://minio:9000",
        "AWS_REGION": "us-east-1",
    }
    assert spark_settings("s3://b/lake", {}) == delta_settings("s3://b/lake", {}) == {}
    assert spark_settings("/data/lake", given) == delta_settings("gs://b/lake", given) == {}


def test_credentials_in_a_url_are_refused() -> None:
    for name in (for_arrow, for_spark, open_folder):
        with pytest.raises(OptionError, match="do not put credentials into the URL"):
            name("s3://key:secret@bucket/lake")


def test_a_spark_without_jars_says_which() -> None:
    told = missing_jars(RuntimeError("Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"), hadoop_version())
    assert told is not None
    assert f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()} " in str(told)
    assert missing_jars(RuntimeError("something else"), None) is None
    assert hadoop_version() is not None


# ── A server ────────────────────────────────────────────────────────────────────────────────────────────────────────


ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_EC2_METADATA_DISABLED": "true",
}


SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """The query that URLs of lakes in the bucket `lakes` have.

    The server can't be in this process: delta-rs does not let other threads of it run while it waits for an answer.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ACCOUNT.items():
            patch.setenv(name, value)
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert server.stdout is not None and server.stdin is not None
            port = int(server.stdout.readline())
            query = f"endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
            system, _ = fs.FileSystem.from_uri(f"s3://lakes?{query}&allow_bucket_creation=true")
            system.create_dir("lakes")
            yield query
        finally:
            server.terminate()
            server.communicate(timeout=30)


def seen(query: str, lake: str) -> list[tuple[str, int, int]]:
    """By a reader that lists the bucket."""
    system, path = fs.FileSystem.from_uri(f"s3://lakes/{lake}?{query}")
    table = ds.dataset(path, filesystem=system, partitioning="hive", format="parquet").to_table()
    return sorted((str(row["topic"]), row["queue_id"], row["queue_offset"]) for row in table.to_pylist())


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_lake_on_s3(bucket: str, scheme: str) -> None:
    url = f"{scheme}://lakes/plain-{scheme}?{bucket}"
    for _ in range(2):  # the second run finds that all is there
        archive_once(open_folder(url))
    assert seen(bucket, f"plain-{scheme}") == WHOLE
    folder = open_folder(url)
    assert topics_of(folder) == ["%c", "a"]
    assert hours_of(folder, "a")


@pytest.mark.slow
def test_a_delta_lake_on_s3(bucket: str) -> None:
    from deltalake import DeltaTable

    url = f"s3a://lakes/delta?{bucket}"
    archive_once(open_folder(url), form="delta")
    archive_once(open_folder(url))
    table = DeltaTable("s3://lakes/delta", storage_options=delta_settings(url, {})).to_pyarrow_table()
    assert sorted((row["topic"], row["queue_id"], row["queue_offset"]) for row in table.to_pylist()) == WHOLE


def pipeline(*words: str) -> dict[str, Any]:
    """Run `kourou pipeline`, whose workers have the account; the report."""
    done = subprocess.run(
        [sys.executable, "-m", "kourou", "pipeline", *words, "--json", "--master", "local[2]"],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, **ACCOUNT},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.spark
def test_topics_go_to_s3(broker: EmbeddedThread, cluster: Cluster, bucket: str) -> None:
    fill(broker, cluster, "to-s3", queues=2, count=30)
    report = pipeline("archive", "to-s3", f"s3a://lakes/spark?{bucket}", "-n", broker.namesrv)
    assert report["written"]["rows"] == 60
    assert seen(bucket, "spark") == sorted(("to-s3", queue, at) for queue in range(2) for at in range(30))


@pytest.mark.spark
@QUIET
def test_a_spark_that_lacks_the_client_says_so(spark: SparkSession, bucket: str) -> None:
    url = f"s3://lakes/lacking?{bucket}"
    archive_once(open_folder(url))
    with pytest.raises(OptionError, match=r"can't read s3://: .*hadoop-aws"):
        read_lake(spark, url)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.skipif("KOUROU_S3A_JARS" not in os.environ, reason="KOUROU_S3A_JARS does not name Hadoop's S3 client")
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_from_s3_and_back_with_the_real_client(broker: EmbeddedThread, bucket: str, form: str) -> None:
    cluster = Cluster((broker.namesrv,), ACCESS, 5.0)
    fill(broker, cluster, f"there-{form}", queues=2, count=50)
    create_topic(broker.namesrv, f"back-{form}", queues=2)
    url = f"s3://lakes/real-{form}?{bucket}"
    common = ["-n", broker.namesrv, "--conf", f"spark.jars={os.environ['KOUROU_S3A_JARS']}"]
    checkpoint = ["--checkpoint", f"s3://lakes/checkpoint-{form}?{bucket}"]
    for words in (
        ["archive", f"there-{form}", url, "--format", form],
        ["replay", url, f"back-{form}"],
        ["transform", f"there-{form}", f"back-{form}", "--sql", "SELECT body FROM messages", *checkpoint],
    ):
        assert pipeline(*words, *common)["written"]["rows"] == 100
    bodies = [row["body"] for row in pull_all(cluster, f"there-{form}")]
    assert sorted(row["body"] for row in pull_all(cluster, f"back-{form}")) == sorted(2 * bodies)
