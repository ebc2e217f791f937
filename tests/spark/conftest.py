"""One Spark for all tests here: the first query of a JVM costs many seconds."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster
from kourou.spark.session import session

from .brokers import ACCESS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # quick to start
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stopTimeout": "30s",
    }
    running = session("kourou-tests", "local[2]", settings)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        yield running


@pytest.fixture
def cluster(broker: EmbeddedThread) -> Cluster:
    return Cluster((broker.namesrv,), ACCESS, 5.0)
