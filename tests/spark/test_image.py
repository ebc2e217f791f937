"""The image for Kubernetes, as far as it can be tried without an engine that builds images: what its file says, and
what its entry point does."""

import os
import re
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pyspark
import pytest
from tests.interop.processes import Process, free_port
from tests.interop.worlds import needed

from kourou.embedded import EmbeddedThread
from kourou.spark.cluster import Cluster

from .brokers import ACCESS, create_topic, send
from .test_scale_out import JOB_S, START_S, Standalone

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "spark"
ENTRY = FOLDER / "entrypoint.sh"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(word, rest) for word, _, rest in (line.strip().partition(" ") for line in lines) if word]


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def test_the_image_has_a_python_that_kourou_runs_on() -> None:
    bases = [rest for word, rest in instructions() if word == "FROM"]
    oldest = version(PROJECT["requires-python"].removeprefix(">="))
    found = [re.match(r"python:(\d+\.\d+)-", base) for base in bases]
    assert found and all(one is not None and version(one[1]) >= oldest for one in found)
    [python] = {one[1] for one in found if one is not None}
    settings = " ".join(rest for word, rest in instructions() if word == "ENV")
    assert f"/lib/python{python}/site-packages/pyspark" in settings


def test_the_image_has_one_pyspark_and_says_which() -> None:
    [pinned] = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG" and "SPARK_VERSION" in rest]
    [oldest] = [one.removeprefix("pyspark>=") for one in PROJECT["optional-dependencies"]["spark"] if "pyspark" in one]
    assert version(pinned)[:2] >= version(oldest)
    installs = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    assert installs and all('"pyspark==${SPARK_VERSION}"' in one for one in installs)


def test_what_the_image_copies_is_there() -> None:
    copied = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    assert copied
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources)
    assert os.access(ENTRY, os.X_OK)


def test_other_words_are_a_command(tmp_path: Path) -> None:
    done = subprocess.run([ENTRY, "printf", "%s|", "a b", "c"], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "a b|c|")


def test_options_of_java_keep_their_blanks(tmp_path: Path) -> None:
    """A java that only prints its arguments."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    done = subprocess.run([ENTRY, "executor"], capture_output=True, text=True, timeout=30, env=executor(tmp_path))
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:4] == ["-Da=1", "-Db=two words", "-Xms512m", "-Xmx512m"]
    assert words[words.index("--app-id") + 1] == "app-1"
    without = {name: value for name, value in executor(tmp_path).items() if name != "SPARK_DRIVER_URL"}
    failed = subprocess.run([ENTRY, "executor"], capture_output=True, text=True, timeout=30, env=without)
    assert failed.returncode != 0 and "SPARK_DRIVER_URL" in failed.stderr


def executor(java_home: Path | None = None, **more: str) -> dict[str, str]:
    """The environment that Spark's scheduler for Kubernetes gives to a pod."""
    home = {} if java_home is None else {"JAVA_HOME": str(java_home)}
    return {
        "PATH": os.environ["PATH"],
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_JAVA_OPT_0": "-Da=1",
        "SPARK_JAVA_OPT_1": "-Db=two words",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "pod-1",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        **home,
        **more,
    }


JOB = """
import sys
from kourou.spark.session import session

master, namesrv, port = sys.argv[1:]
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.port": port, "spark.scheduler.minRegisteredResourcesRatio": "0"}
spark = session("kourou-image", master, settings)
print("OPTIONS", spark.sparkContext.getConf().get("spark.executor.extraJavaOptions"))
print("APP", spark.sparkContext.applicationId, flush=True)
read = spark.read.format("rocketmq").option("namesrv", namesrv).load("imaged")
print("FOUND", read.where("length(body) = 3").count(), flush=True)
spark.stop()
"""


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_executor_of_the_entry_point_does_the_work(tmp_path: Path) -> None:
    """The driver has a master without workers; the only executor is the one that a pod would run."""
    with ExitStack() as at_end, needed():
        standalone = Standalone(tmp_path / "cluster", 0, at_end)
        broker = at_end.enter_context(EmbeddedThread())
        create_topic(broker.namesrv, "imaged")
        send(Cluster((broker.namesrv,), ACCESS), "imaged", [b"one", b"two"] * 20)
        port = str(free_port())
        job = Process(
            [sys.executable, "-c", JOB, standalone.master, broker.namesrv, port],
            tmp_path / "job",
            {"SPARK_LOCAL_IP": "127.0.0.1"},
        )
        at_end.callback(job.kill)
        job.wait_until("the driver", lambda: "APP " in job.said(), START_S)
        application = re.search(r"APP (\S+)", job.said())
        assert application is not None
        options = re.search(r"OPTIONS (.*)", job.said())  # which Spark's scheduler would give to the pod, one by one
        assert options is not None
        numbered = {f"SPARK_JAVA_OPT_{number}": option for number, option in enumerate(options[1].split())}
        url = f"spark://CoarseGrainedScheduler@127.0.0.1:{port}"
        pod = Process(
            [str(ENTRY), "executor"],
            tmp_path / "pod",
            executor(SPARK_DRIVER_URL=url, SPARK_APPLICATION_ID=application[1], SPARK_LOCAL_IP="127.0.0.1", **numbered),
        )
        at_end.callback(pod.kill)
        job.wait_until("the count", lambda: "FOUND " in job.said(), JOB_S)
        assert "FOUND 40" in job.said()
