"""The settings with which a session is started."""

import os
import tempfile
from pathlib import Path

import pytest

from kourou.spark import session

pyspark = pytest.importorskip("pyspark")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("SPARK_HOME", "SPARK_LOCAL_IP", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "")  # so that it is as before when the test is over
        monkeypatch.delenv(name)
    return tmp_path


def test_a_home_without_the_archive(cache: Path) -> None:
    found = session.light_home()
    assert found is not None
    home = Path(found)
    installed = Path(pyspark.__file__).resolve().parent
    assert (home / "jars").resolve() == installed / "jars"
    assert (home / "bin" / "spark-submit").exists()
    assert not (home / "python").exists()
    (home / "jars").unlink()
    (home / "jars").symlink_to("/nowhere")
    assert session.light_home() == found
    assert (home / "jars").resolve() == installed / "jars"


def test_a_home_of_the_user_is_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert session.light_home() is None


def test_a_cache_that_can_t_be_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert session.light_home() is None


def test_settings_of_a_user_win(cache: Path) -> None:
    given = {"spark.driver.extraJavaOptions": "-Xint", "spark.sql.session.timeZone": "Europe/Berlin"}
    found = session.prepare("local[2]", given)
    assert found["spark.driver.extraJavaOptions"] == "-Xint"
    assert found["spark.sql.session.timeZone"] == "Europe/Berlin"
    assert "UseParallelGC" in found["spark.executor.extraJavaOptions"]
    assert os.environ["SPARK_HOME"] == session.light_home()


def test_a_cluster_keeps_its_home(cache: Path) -> None:
    session.prepare("spark://127.0.0.1:7077")
    assert "SPARK_HOME" not in os.environ


@pytest.mark.parametrize(("folder", "is_short"), [("/tmp", True), ("/" + "long/" * 20, False)])
def test_sockets_need_a_short_path(monkeypatch: pytest.MonkeyPatch, folder: str, is_short: bool) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: folder)
    assert ("spark.python.unix.domain.socket.enabled" in session.speed_settings()) is is_short
