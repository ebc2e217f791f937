"""The data sources and the real Apache RocketMQ: its broker read live, written to, and its files scanned."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from tests.interop.servers import ApacheBroker, ApacheNameServer
from tests.interop.worlds import needed

from kourou.spark import wire
from kourou.spark.cluster import Cluster
from kourou.spark.formats import StoreSource
from kourou.spark.messages import Drafts
from kourou.spark.pulling import Patience
from kourou.spark.sending import Sender

from .brokers import ACCESS, create_topic, pull_all, send, wait_for_messages
from .test_sources import batch, offsets, read, source, stream

pytestmark = pytest.mark.interop


class Apache:
    """The data of a broker that the other tests need."""

    def __init__(self, namesrv: str, broker: ApacheBroker) -> None:
        self.namesrv = namesrv
        self.store = broker.home / "store"


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with ExitStack() as at_end, needed():
        homes = tmp_path_factory.mktemp("apache")
        name_server = ApacheNameServer(homes / "namesrv")
        at_end.callback(name_server.kill)
        broker = ApacheBroker(homes / "broker", "broker-a", name_server.address)
        at_end.callback(broker.kill)
        broker.wait_registered(name_server.address)
        yield Apache(name_server.address, broker)
        wire.close_all()


@pytest.fixture
def cluster(apache: Any) -> Cluster:
    return Cluster((apache.namesrv,), ACCESS, 30.0)


def test_live_and_files_give_the_same(apache: Any, cluster: Cluster) -> None:
    create_topic(apache.namesrv, "same", 2)
    for queue in range(2):
        send(cluster, "same", [b"%d/%d" % (queue, number) for number in range(300)], queue=queue, tags=["a", "b"])
    live = batch(source(apache, topics="same", maxRecordsPerPartition=100)).sort_by("commit_log_offset")
    assert live.num_rows == 600
    assert sorted(live["body"].to_pylist()) == sorted(b"%d/%d" % (q, n) for q in range(2) for n in range(300))
    options = {"path": str(apache.store), "topics": "same", "brokerName": "broker-a", "splitSize": "16k"}
    assert batch(StoreSource(options)).equals(live)
    tagged = batch(source(apache, topics="same", tags="b", columns="tags"))
    assert tagged.to_pydict() == {"tags": ["b"] * 300}


def test_a_stream_and_its_group(apache: Any, cluster: Cluster) -> None:
    create_topic(apache.namesrv, "flow")
    send(cluster, "flow", [b"x"] * 40)
    reader = stream(apache, topics="flow", startingOffsets="earliest", maxOffsetsPerTrigger=25, group="spark-flow")
    at = reader.initialOffset()
    end = reader.latestOffset(at, reader.getDefaultReadLimit())
    assert end == offsets("flow", 25)
    assert read(reader, reader.partitions(at, end)).num_rows == 25
    reader.commit(end)
    [stands] = cluster.committed(cluster.route("flow").readable, "spark-flow").values()
    assert stands == 25


def test_a_sink(apache: Any, cluster: Cluster) -> None:
    create_topic(apache.namesrv, "sink", 4)
    rows = [{"body": b"%d" % number, "tags": "t", "flag": number} for number in range(3000)]
    sender = Sender(cluster, "spark-test", Patience(30.0))
    sender.send(Drafts("sink", "job/0").of(pa.RecordBatch.from_pylist(rows)))
    assert sender.sent.messages == 3000
    wait_for_messages(cluster, "sink", 3000)
    found = pull_all(cluster, "sink")
    assert sorted(row["flag"] for row in found) == list(range(3000))
    assert len({row["unique_key"] for row in found}) == 3000
