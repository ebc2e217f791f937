"""What reaches the terminal, and what happens when the reader has gone."""

import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, strategies as st

from kourou.cli.output import cell, json_line, rounded, show_facts, show_table
from kourou.cli.running import log_to_stderr, show_unexpected
from kourou.embedded import EmbeddedThread
from kourou.printable import printable, printable_json, printable_lines
from kourou.spark.pipelines.progress import JsonLines, Lines
from kourou.spark.pipelines.report import RunReport, Table

ESCAPES = "\x1b[2J\x9b31m\x7f\u202e\u2028\r\ud800"
DEADLINE_S = 60.0


@given(st.text())
def test_printable_text_is_printable_and_stays(text: str) -> None:
    assert printable(text).isprintable()
    assert all(line.isprintable() for line in printable_lines(text).replace("\t", "").split("\n"))
    if text.isprintable():
        assert printable(text) == text


@given(st.recursive(st.text() | st.integers() | st.booleans(), lambda inner: st.dictionaries(st.text(), inner)))
def test_json_is_printable_and_the_same_value(value: object) -> None:
    line = json_line(value)
    assert line.isprintable()
    assert json.loads(line) == value


def test_json_escapes_what_encoders_let_pass() -> None:
    assert printable_json('"\x7f\x9b\u202e"') == '"\\u007f\\u009b\\u202e"'


def test_figures_are_rounded() -> None:
    assert cell(0.19996000799840032) == "0.20"
    assert rounded(0.19996000799840032) == 0.2
    assert rounded(float("nan")) is None


def test_tables_and_facts_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([f"#Name{ESCAPES}", "#Number"], [[f"[bold]x{ESCAPES}", 1]])
    show_facts({f"name{ESCAPES}": {ESCAPES: ESCAPES}})
    shown = capsys.readouterr().out
    assert "[bold]x\\x1b[2J" in shown, "not markup"
    assert all(line.isprintable() for line in shown.splitlines())


def test_logs_and_tracebacks_are_printable(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, root.handlers = root.handlers, []
    try:
        log_to_stderr("INFO")
        try:
            raise ValueError(f"said{ESCAPES}")
        except ValueError as error:
            logging.getLogger("kourou.test").warning("failed %s", ESCAPES, exc_info=error)
            show_unexpected(ValueError, error, error.__traceback__)
    finally:
        root.handlers = before
    shown = capsys.readouterr().err
    assert shown.count("said\\x1b[2J") == 2
    assert all(line.isprintable() for line in shown.split("\n"))


def test_what_pipelines_say_is_printable() -> None:
    report = RunReport(
        pipeline=f"p{ESCAPES[:-1]}",
        started="now",
        batches=1,
        skipped={ESCAPES[:-1]: 1},
        notes=[ESCAPES[:-1]],
        errors=[ESCAPES[:-1]],
        tables=[Table(ESCAPES[:-1], [ESCAPES[:-1]], [[ESCAPES[:-1]]])],
    )
    out = io.StringIO()
    for watch in (Lines(out, out), JsonLines(out)):
        watch.note(f"note{ESCAPES}")
        watch.done(report)
    out.write(report.json() + report.text())
    assert all(line.isprintable() for line in out.getvalue().split("\n")), out.getvalue()


# ── Pipes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        yield running


def start(broker: EmbeddedThread, *words: str, **more: object) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv, "COLUMNS": "200"}
    command = [sys.executable, "-m", "kourou", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)  # type: ignore[call-overload, no-any-return]


def test_a_reader_that_goes_ends_a_tail_that_waits(broker: EmbeddedThread) -> None:
    """`kourou tail | head -1`: no further message has to come."""
    sent = start(broker, "send", "piped", "x")
    assert sent.wait(DEADLINE_S) == 0
    sent.communicate()
    tail = start(broker, "tail", "piped", "--from", "first")
    assert tail.stdout is not None and tail.stderr is not None
    assert tail.stdout.readline().rstrip().endswith(b"x")
    tail.stdout.close()
    assert tail.wait(DEADLINE_S) == 0
    assert tail.stderr.read() == b""
    tail.stderr.close()


def test_an_output_that_takes_no_more_is_an_error(broker: EmbeddedThread) -> None:
    environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv}
    command = [sys.executable, "-m", "kourou", "admin", "topicList"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, timeout=DEADLINE_S)
    assert done.returncode == 1
    assert done.stderr == b"kourou: the output can't be written: No space left on device\n"
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    assert subprocess.run(closed, env=environment, stderr=subprocess.PIPE, timeout=DEADLINE_S).returncode == 0


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_closed_pipe_is_not_an_error(broker: EmbeddedThread, form: list[str]) -> None:
    """`kourou admin getBrokerConfig | head` exits 0, however much was written."""
    config = start(broker, "admin", "getBrokerConfig", "-b", broker.address, *form)
    assert config.stdout is not None and config.stderr is not None
    config.stdout.close()
    assert config.wait(DEADLINE_S) == 0
    assert config.stderr.read() == b""
    config.stderr.close()


def test_lines_are_sent_as_they_come(broker: EmbeddedThread) -> None:
    """The loop goes on while a line is awaited: each is sent before the next comes, and Ctrl-C ends it."""
    send = start(broker, "send", "lines-as-they-come", "--lines", stdin=subprocess.PIPE)
    assert send.stdin is not None and send.stdout is not None and send.stderr is not None
    for number in range(3):
        send.stdin.write(b"line %d\n" % number)
        send.stdin.flush()
        assert send.stdout.readline().startswith(b"OK ")
    began = time.monotonic()
    send.send_signal(2)
    assert send.wait(DEADLINE_S) == 130
    assert time.monotonic() - began < DEADLINE_S / 2, "the thread that reads is not waited for"
    for stream in (send.stdin, send.stdout, send.stderr):
        stream.close()
