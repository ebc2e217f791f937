"""`kourou send` and `kourou tail`, against a broker in this process."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from kourou.cli.main import app
from kourou.embedded import EmbeddedThread

runner = CliRunner()


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with EmbeddedThread() as broker:
        yield broker.namesrv


def kourou(namesrv: str, *words: str, stdin: str | None = None) -> Result:
    return runner.invoke(app, list(words), env={"NAMESRV_ADDR": namesrv}, input=stdin)


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_what_is_sent_is_shown(namesrv: str) -> None:
    sent = kourou(namesrv, "send", "shown", "hello", "-t", "paid", "-k", "42", "-p", "colour=red")
    assert sent.exit_code == 0, sent.output
    assert sent.stdout.startswith("OK ")
    (row,) = rows(kourou(namesrv, "tail", "shown", "--from", "first", "--no-follow", "--json"))
    assert row["body"] == "hello"
    assert row["properties"]["colour"] == "red"  # type: ignore[index]
    assert (row["tags"], row["keys"]) == ("paid", ["42"])
    assert isinstance(row["storeTimestamp"], int)


def test_lines_become_messages(namesrv: str) -> None:
    sent = rows(kourou(namesrv, "send", "lines", "--lines", "--json", stdin="one\n\ntwo\n"))
    assert [row["status"] for row in sent] == ["OK", "OK"]
    shown = rows(kourou(namesrv, "tail", "lines", "--from", "5m", "--no-follow", "--json"))
    assert sorted(str(row["body"]) for row in shown) == ["one", "two"]


def test_tail_chooses(namesrv: str) -> None:
    for number in range(4):
        kourou(namesrv, "send", "chosen", f"m{number}", "-t", "ab"[number % 2], "-k", str(number))
    choose = ("tail", "chosen", "--from", "first", "--no-follow", "--json")
    assert sorted(str(r["body"]) for r in rows(kourou(namesrv, *choose, "--tags", "a"))) == ["m0", "m2"]
    assert [r["body"] for r in rows(kourou(namesrv, *choose, "--key", "3"))] == ["m3"]
    assert len(rows(kourou(namesrv, *choose, "--limit", "3"))) == 3


def test_bodies_have_forms_and_harm_no_terminal(namesrv: str) -> None:
    kourou(namesrv, "send", "forms", "\x1b[31m€")
    show = ("tail", "forms", "--from", "first", "--no-follow")
    assert "\\x1b[31m€" in kourou(namesrv, *show).stdout
    assert "1b 5b 33 31 6d e2 82 ac" in kourou(namesrv, *show, "--body", "hex").stdout


def test_json_bodies_stay_as_they_are(namesrv: str) -> None:
    value = {"price": 0.123456789, "big": 2**70, "deep": [[1]], "name": "\u202e"}
    kourou(namesrv, "send", "values", json.dumps(value))
    kourou(namesrv, "send", "values", "[" * 5000)
    shown = rows(kourou(namesrv, "tail", "values", "--from", "first", "--no-follow", "--json", "--body", "json"))
    assert [row["body"] for row in shown if row["body"] != "[" * 5000] == [value]
    assert len(shown) == 2


def test_delay_levels_are_those_of_the_broker(namesrv: str) -> None:
    kourou(namesrv, "send", "delayed", "x")
    assert kourou(namesrv, "send", "delayed", "x", "--delay-level", "18").exit_code == 0
    for level in ("99", "19"):
        refused = kourou(namesrv, "send", "delayed", "x", "--delay-level", level)
        assert refused.exit_code == 1
        assert f"--delay-level {level}: broker broker-a has levels 1 to 18" in refused.stderr
    assert kourou(namesrv, "send", "delayed", "x", "--delay-level", "0").exit_code == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("tail", "nowhere", "--no-follow"), "no route to topic 'nowhere'"),
        (("send", "bad/topic", "x"), "bad/topic"),
        (("send", "orders", "x", "--delay", "soon"), "--delay soon: a time such as 500ms"),
        (("send", "orders", "x", "-p", "novalue"), "KEY=VALUE is expected"),
        (("tail", "orders", "--from", "yesterday"), "--from yesterday: last, first"),
    ],
)
def test_errors_are_one_line_that_says_why(namesrv: str, words: tuple[str, ...], told: str) -> None:
    result = kourou(namesrv, *words)
    assert result.exit_code != 0
    assert told in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.output


def test_no_name_server_is_named() -> None:
    result = runner.invoke(app, ["send", "orders", "x", "-n", "127.0.0.1:1"])
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["send", "orders", "x", "--tag", "caf\udce9"], "--tag 'caf\\xe9'"),
        (["send", "orders", "caf\udce9", "-k", "a", "-k", "caf\udce9"], "-k 'caf\\xe9'"),
        (["send", "orders", "x", "-p", "a=caf\udce9"], "-p 'a=caf\\xe9'"),
        (["send", "orders", "x", "--tag=caf\udce9"], "'--tag=caf\\xe9'"),
        (["send", "orders", "x", "--ordering-key", "caf\udce9"], "--ordering-key 'caf\\xe9'"),
        (["send", "caf\udce9", "x"], "'caf\\xe9'"),
        (["tail", "caf\udce9"], "'caf\\xe9'"),
        (["consume", "orders", "-g", "caf\udce9"], "'caf\\xe9'"),
        (["admin", "topicStatus", "-t", "caf\udce9"], "'caf\\xe9'"),
    ],
)
def test_text_that_is_not_utf_8_is_named_with_the_remedy(
    namesrv: str, words: list[str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system passes such bytes as surrogates. Only a body may have them."""
    monkeypatch.setattr("sys.argv", ["kourou", *words])
    result = runner.invoke(app, [*words, "-n", namesrv])
    assert result.exit_code in (1, 2)
    assert named in result.stderr
    assert "is not UTF-8 text" in result.stderr and "iconv" in result.stderr


def test_a_body_may_be_any_bytes(namesrv: str) -> None:
    assert runner.invoke(app, ["send", "orders", "caf\udce9", "-n", namesrv]).exit_code == 0
