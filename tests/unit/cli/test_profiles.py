"""`kourou profile`: clusters by name."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.cli.pipelines import source_options
from kourou.embedded import EmbeddedThread


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("KOUROU_PROFILE", raising=False)
    return tmp_path


def kourou(*words: str, stdin: str | None = None, **environment: str) -> Result:
    return CliRunner().invoke(app, list(words), env=environment, input=stdin)


def listed() -> dict[str, dict[str, object]]:
    rows = [json.loads(line) for line in kourou("profile", "list", "--json").stdout.splitlines()]
    return {row["name"]: row for row in rows}


@pytest.mark.usefixtures("home")
def test_the_first_profile_is_in_use_until_another_is() -> None:
    assert kourou("profile", "add", "one", "-n", "a:9876;b:9876").exit_code == 0
    assert kourou("profile", "add", "two", "-n", "c:9876").exit_code == 0
    assert (listed()["one"]["inUse"], listed()["two"]["inUse"]) == (True, False)
    assert kourou("profile", "use", "two").exit_code == 0
    assert json.loads(kourou("profile", "show", "--json").stdout)["namesrv"] == "c:9876"
    assert kourou("profile", "remove", "two").exit_code == 0
    assert not any(row["inUse"] for row in listed().values())
    assert kourou("profile", "show").exit_code == 1


def test_secrets_are_kept_for_the_owner_and_never_shown(home: Path) -> None:
    added = kourou("profile", "add", "p", "-n", "a:1", "--access-key", "me", stdin="hush\n")
    assert added.exit_code == 0, added.output
    file = home / "kourou" / "profiles.json"
    assert "hush" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in file.parent.iterdir()] == ["profiles.json"]
    for words in (("list",), ("list", "--json"), ("show",), ("show", "--json")):
        result = kourou("profile", *words)
        assert result.exit_code == 0
        assert "hush" not in result.output


@pytest.mark.usefixtures("home")
def test_namesrv_addr_comes_first_and_takes_nothing_from_a_profile() -> None:
    """-n, then NAMESRV_ADDR, then KOUROU_PROFILE, then the profile in use."""
    with EmbeddedThread() as broker:
        kourou("profile", "add", "here", "-n", broker.namesrv, "--use")
        kourou("profile", "add", "nowhere", "-n", "127.0.0.1:1")
        assert kourou("admin", "clusterList").exit_code == 0
        assert kourou("send", "orders", "x").exit_code == 0
        assert kourou("doctor").exit_code == 0
        assert "127.0.0.1:1" in kourou("admin", "clusterList", KOUROU_PROFILE="nowhere").stderr
        assert "127.0.0.1:2" in kourou("admin", "clusterList", NAMESRV_ADDR="127.0.0.1:2").stderr
        assert kourou("admin", "clusterList", "-n", broker.namesrv, NAMESRV_ADDR="127.0.0.1:2").exit_code == 0
        both = {"NAMESRV_ADDR": broker.namesrv, "KOUROU_PROFILE": "nowhere"}
        assert kourou("admin", "clusterList", **both).exit_code == 0


@pytest.mark.usefixtures("home")
def test_pipelines_take_the_profile_in_use() -> None:
    kourou("profile", "add", "p", "-n", "a:1", "--access-key", "me", "--secret-key", "hush", "--tls")
    expected = {"namesrv": "a:1", "accessKey": "me", "secretKey": "hush", "tls": "true"}
    assert source_options(None, None) == expected
    assert source_options("b:2", None) == {"namesrv": "b:2"}


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("profile", "add", "p", "-n", "nonsense"), 2, "host:port is expected"),
        (("profile", "add", "p", "-n", "a:1", "--secret-key", "x"), 2, "--secret-key needs --access-key"),
        (("profile", "use", "p"), 1, "profile 'p' does not exist; there are: none"),
        (("profile", "remove", "p"), 1, "profile 'p' does not exist"),
        (("profile", "use"), 2, "either a name or --none"),
        (("admin", "clusterList"), 1, "no name server is given"),
    ],
)
@pytest.mark.usefixtures("home")
def test_mistakes_are_told(words: tuple[str, ...], code: int, told: str) -> None:
    result = kourou(*words)
    assert result.exit_code == code
    assert told in " ".join(result.stderr.replace("│", " ").split())


def test_a_broken_file_is_named(home: Path) -> None:
    (home / "kourou").mkdir()
    (home / "kourou" / "profiles.json").write_text('{"profiles": {"p": {"wrong": 1}}}')
    for words in (("profile", "list"), ("admin", "clusterList")):
        result = kourou(*words)
        assert result.exit_code == 1
        assert "profiles.json is not a valid profiles file" in result.stderr
