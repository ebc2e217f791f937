"""A standalone master and two workers, processes of their own on loopback: what `--master spark://…` has to do with."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.interop import toolchain
from tests.interop.processes import Process, accepts, free_port
from tests.interop.worlds import needed

pytest.importorskip("pyspark")
import pyspark

from kourou.embedded import EmbeddedThread
from kourou.spark import wire
from kourou.spark.cluster import Cluster

from .brokers import ACCESS, create_topic, pull_all, send

pytestmark = [pytest.mark.interop, pytest.mark.slow]

START_S = 120
JOB_S = 240
ROOT = Path(__file__).parents[2]

JOB = """
import json, os, sys
from kourou.spark.session import session

master, namesrv, store = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s"}
spark = session("kourou-scale-out", master, settings)
live = spark.read.format("rocketmq").option("namesrv", namesrv).option("topics", "wide")
live = live.option("maxRecordsPerPartition", 100).load()

def where(rows):
    yield os.getcwd(), sum(1 for _ in rows)

scan = spark.read.format("rocketmq-store").option("splitSize", "16k").option("topics", "wide")
found = {
    "rows": sorted([row.queue_id, row.queue_offset, bytes(row.body).decode()] for row in live.collect()),
    "places": sorted({place for place, _ in live.rdd.mapPartitions(where).collect()}),
    "scanned": scan.load(store).count(),
}
live.select("body").write.format("rocketmq").mode("append").option("namesrv", namesrv).save("copied")
spark.stop()
print("FOUND " + json.dumps(found))
"""


class Standalone:
    """A master and its workers, each with a core."""

    def __init__(self, home: Path, workers: int, at_end: ExitStack) -> None:
        toolchain.java()
        spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        settings = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "PYSPARK_PYTHON": sys.executable}
        address = f"127.0.0.1:{free_port()}"
        self.master = f"spark://{address}"
        host, port = address.split(":")
        where = ["--host", host, "--webui-port", "0"]
        master = Process(
            [spark_class, "org.apache.spark.deploy.master.Master", *where, "--port", port], home / "master", settings
        )
        at_end.callback(master.kill)
        master.wait_until("Spark's master", lambda: accepts(address), START_S)
        for number in range(workers):
            folder = home / f"worker-{number}"
            limits = ["--port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
            command = [spark_class, "org.apache.spark.deploy.worker.Worker", *where, *limits, self.master]
            worker = Process(command, folder, settings)
            at_end.callback(worker.kill)
            worker.wait_until("Spark's worker", partial(_is_registered, worker), START_S)


def _is_registered(worker: Process) -> bool:
    return "registered with master" in worker.said()


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    with ExitStack() as at_end, needed():
        yield Standalone(tmp_path_factory.mktemp("standalone"), 2, at_end)


@pytest.mark.timeout(600)
def test_two_workers_share_the_work(standalone: Standalone, tmp_path: Path) -> None:
    with EmbeddedThread(store=tmp_path / "store") as broker:
        cluster = Cluster((broker.namesrv,), ACCESS, 10.0)
        create_topic(broker.namesrv, "wide", 4)
        create_topic(broker.namesrv, "copied", 4)
        for queue in range(4):
            send(cluster, "wide", [b"%d/%d" % (queue, number) for number in range(300)], queue=queue)
        script = tmp_path / "job.py"
        script.write_text(JOB)
        path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, str(script), standalone.master, broker.namesrv, str(tmp_path / "store")]
        job = Process(command, tmp_path / "job", {"PYTHONPATH": path, "SPARK_LOCAL_IP": "127.0.0.1"})
        try:
            said = job.wait_until("the job", lambda: "FOUND " in job.said() or None, JOB_S) and job.said()
        finally:
            job.kill()

        found = json.loads(said.partition("FOUND ")[2].splitlines()[0])
        assert found["rows"] == sorted([queue, n, f"{queue}/{n}"] for queue in range(4) for n in range(300))
        assert found["scanned"] == 1200
        assert len(found["places"]) == 2
        copies = pull_all(cluster, "copied")
        assert sorted(bytes(row["body"]) for row in copies) == sorted(
            b"%d/%d" % (queue, number) for queue in range(4) for number in range(300)
        )
        wire.close_all()
