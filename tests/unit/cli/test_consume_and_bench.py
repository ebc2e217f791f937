"""`kourou consume` and `kourou bench`, against a broker in this process."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

import kourou.sync as kourou_sync
from kourou.cli.main import app
from kourou.cli.measuring import Histogram, cpu_ns, is_local, listening_pid
from kourou.client import Client, Message
from kourou.embedded import EmbeddedThread
from kourou.protocol.codes import SysFlag

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedThread]:
    with EmbeddedThread() as running:
        yield running


def kourou(broker: EmbeddedThread, *words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), env={"NAMESRV_ADDR": broker.namesrv}, input=stdin)


def rows(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# ── consume ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_consumes_each_message_once(broker: EmbeddedThread) -> None:
    kourou(broker, "send", "once", "--lines", stdin="".join(f"m{n}\n" for n in range(6)))
    consume = ("consume", "once", "-g", "once-group", "--from", "first", "--json")
    first = rows(kourou(broker, *consume, "--limit", "4"))
    second = rows(kourou(broker, *consume, "--limit", "2"))
    assert sorted(str(row["body"]) for row in first + second) == [f"m{n}" for n in range(6)]
    summary = rows(kourou(broker, "admin", "consumerProgress", "-g", "once-group", "--json"))[-1]
    assert summary["consumeDiffTotal"] == 0


def test_tags_choose_and_idle_ends(broker: EmbeddedThread) -> None:
    for tag in ("a", "b"):
        kourou(broker, "send", "chosen", f"of {tag}", "-t", tag)
    found = kourou(
        broker, "consume", "chosen", "-g", "tagged", "--from", "first", "--tags", "b", "--idle", "5s", "--json"
    )
    (row,) = rows(found)
    assert (row["body"], row["tags"], row["keys"]) == ("of b", "b", [])


def test_a_message_that_was_not_printed_is_not_acknowledged(broker: EmbeddedThread) -> None:
    kourou(broker, "send", "unread", "x")
    command = [sys.executable, "-m", "kourou", "consume", "unread", "-g", "unread-group", "--from", "first"]
    environment = {**os.environ, "NAMESRV_ADDR": broker.namesrv}
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, env=environment, stdout=writer, stderr=subprocess.PIPE, timeout=DEADLINE_S)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
    (row,) = rows(
        kourou(broker, "consume", "unread", "-g", "unread-group", "--from", "first", "--limit", "1", "--json")
    )
    assert row["reconsumeTimes"] == 0


def test_a_command_consumes_and_its_failure_means_again(broker: EmbeddedThread) -> None:
    kourou(broker, "send", "commanded", "hello", "-t", "paid")
    script = "import os,sys; sys.exit(0 if sys.stdin.read()+os.environ['KOUROU_TAG'] == 'hellopaid' else 1)"
    consume = ("consume", "commanded", "--from", "first", "--limit", "1", "--idle", "20s")
    good = kourou(broker, *consume, "-g", "good", "--exec", f'{sys.executable} -c "{script}"')
    assert (good.exit_code, good.stderr) == (0, "")
    assert not _again(broker, "good")
    bad = kourou(broker, *consume, "-g", "bad", "--exec", f'{sys.executable} -c "raise SystemExit(3)"')
    assert "ended with 3; it will be delivered again" in bad.stderr
    assert _again(broker, "bad")
    unread = kourou(broker, *consume, "-g", "unread-input", "--exec", "true")  # it has ended before it gets its input
    assert (unread.exit_code, unread.output) == (0, "")
    missing = kourou(broker, *consume, "-g", "missing", "--exec", "/no/such/command")
    assert missing.exit_code == 1
    assert "/no/such/command: No such file" in missing.stderr


def test_a_body_that_can_not_be_read_is_a_failed_message(broker: EmbeddedThread) -> None:
    """It used to end the command, and every later one at the same message."""
    with kourou_sync.connect(broker.namesrv) as mq:

        async def send(client: Client) -> None:
            draft = client.producer().draft("damaged", Message(body=b"no zlib"))
            draft.sys_flag = int(SysFlag.COMPRESSED)
            await client.producer().send_draft(draft, None)

        mq.run(send)
    consume = ("consume", "damaged", "--from", "first", "--limit", "1", "--idle", "20s", "-g", "readers")
    done = kourou(broker, *consume, "--exec", "cat")
    assert done.exit_code == 0
    assert "can't be read" in done.stderr
    assert "it will be delivered again" in done.stderr
    assert _again(broker, "readers")


def _again(broker: EmbeddedThread, group: str) -> bool:
    """Is there a message for the group in the delays or in its retry topic?"""
    topic = f"%RETRY%{group}"
    delayed = rows(kourou(broker, "tail", "SCHEDULE_TOPIC_XXXX", "--from", "first", "--no-follow", "--json"))
    return any(row["properties"].get("REAL_TOPIC") == topic for row in delayed)  # type: ignore[attr-defined]


# ── bench ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bench_measures_and_leaves_nothing(broker: EmbeddedThread) -> None:
    words = ("bench", "--time", "500ms", "--warmup", "100ms", "--rate", "200", "--json", "--pid", str(os.getpid()))
    (found,) = rows(kourou(broker, *words))
    assert found["failed"] == 0
    assert 20 < int(str(found["sent"])) < 150, "about 100 at this rate"
    assert int(str(found["consumed"])) > 0
    for name in ("sendP50Ms", "sendP99Ms", "endToEndP50Ms", "brokerCpuUsPerMessage", "clientCpuUsPerMessage"):
        assert float(str(found[name])) > 0, name
    topics = {str(row["topic"]) for row in rows(kourou(broker, "admin", "topicList", "--json"))}
    assert not [name for name in topics if "KOUROU_BENCH" in name]


def test_bench_consumes_what_is_there(broker: EmbeddedThread) -> None:
    kourou(broker, "send", "backlog", "x", "--count", "20")
    (found,) = rows(kourou(broker, "bench", "backlog", "--work", "consume", "--time", "5s", "--json"))
    assert found["consumed"] == 20
    assert "sent" not in found
    nothing = kourou(broker, "bench", "nowhere", "--work", "consume", "--time", "1s")
    assert nothing.exit_code == 1
    assert "no route to topic 'nowhere'" in nothing.stderr


def test_latencies_are_known_within_two_percent() -> None:
    latencies = Histogram()
    for value in range(1, 1_000_001, 7):
        latencies.add(value * 1000)
    for share in (0.5, 0.9, 0.99, 0.999):
        assert latencies.at(share) == pytest.approx(share * 1e9, rel=0.02)
    assert latencies.at(1.0) == latencies.highest
    assert Histogram().at(0.5) == 0


def test_the_process_behind_a_port_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert listening_pid(server.getsockname()[1]) == os.getpid()
    assert cpu_ns(os.getpid()) > 0
    assert is_local("127.0.0.1")
    assert not is_local("192.0.2.1")
