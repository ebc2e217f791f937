"""`kourou run --brokers N --slaves M`: a cluster of processes, its ready file, its end, and members that die."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.authority import Authority
from tests.waiting import wait_for
from typer.testing import CliRunner

import kourou
from kourou.cli import run_cluster
from kourou.cli.main import app
from kourou.net.tls import TlsSettings
from kourou.protocol.errors import RefusedError
from kourou.server import members
from kourou.server.conf import ConfError, client_tls_settings
from kourou.server.exposure import OpenPort
from kourou.server.members import MemberProcess
from kourou.server.process import write_ready_file

TIMEOUT = 60.0


class Cluster:
    """A `kourou run` with members."""

    def __init__(self, process: subprocess.Popen[bytes], ready: dict[str, Any], errors: Path) -> None:
        self.process = process
        self.ready = ready
        self._errors = errors

    @property
    def log(self) -> str:
        return self._errors.read_text()

    def member(self, name: str) -> dict[str, Any]:
        [found] = [member for member in self.ready["members"] if member["name"] == name]
        return dict(found)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


Start = Callable[..., Cluster]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[subprocess.Popen[bytes]] = []
    pids: list[int] = []

    def start_one(*words: str) -> Cluster:
        ready, errors = tmp_path / f"{len(running)}.ready", tmp_path / f"{len(running)}.log"
        store = ("--store", str(tmp_path / "store"), "--namesrv-port", "0")
        command = [sys.executable, "-m", "kourou", "run", "--no-console", *store, "--ready-file", str(ready), *words]
        with errors.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path)
        running.append(process)
        wait_for("the cluster", lambda: ready.exists() or process.poll() is not None, TIMEOUT)
        assert process.poll() is None, errors.read_text()
        found = json.loads(ready.read_text())
        pids.extend(member["pid"] for member in found["members"])
        return Cluster(process, found, errors)

    yield start_one
    for process in running:
        process.kill()
        process.wait()
    wait_for("the members to end", lambda: not any(map(is_alive, pids)), TIMEOUT)


async def send(namesrv: str, body: bytes) -> str:
    async with kourou.connect(namesrv) as mq:
        return (await mq.send("orders", body)).queue.broker_name


async def received(namesrv: str, group: str, count: int) -> set[bytes]:
    found: set[bytes] = set()
    async with asyncio.timeout(TIMEOUT), kourou.connect(namesrv) as mq:
        async for message in mq.consume("orders", group=group, start="first"):
            async with message.process():
                found.add(message.body)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_cluster_starts_serves_and_stops_with_all_its_members(start: Start, tmp_path: Path, number: int) -> None:
    cluster = start("--brokers", "2", "--slaves", "1", "--sync")
    ready = cluster.ready
    assert list(ready) == ["pid", "namesrv", "broker", "ha", "console", "store", "members"]
    assert (ready["pid"], ready["store"]) == (cluster.process.pid, str(tmp_path / "store"))
    names = ["namesrv", "broker-a", "broker-b", "broker-a-slave-1", "broker-b-slave-1"]
    assert [member["name"] for member in ready["members"]] == names
    master, slave = cluster.member("broker-a"), cluster.member("broker-a-slave-1")
    assert (ready["broker"], ready["ha"]) == (master["broker"], master["ha"])
    assert (master["role"], master["brokerName"], master["brokerId"]) == ("SYNC_MASTER", "broker-a", 0)
    assert (slave["role"], slave["brokerName"], slave["brokerId"]) == ("SLAVE", "broker-a", 1)
    pids = [member["pid"] for member in ready["members"]]
    assert len({*pids, cluster.process.pid}) == 6
    assert asyncio.run(send(ready["namesrv"], b"hello")) in ("broker-a", "broker-b")
    store = tmp_path / "store"
    files = {store, *store.rglob("*")} - set((store / "members").glob("*.json"))  # the ready files have addresses only
    assert not [path for path in files if path.exists() and path.stat().st_mode & 0o077]
    assert cluster.stop(number) == 0
    assert not any(map(is_alive, pids))
    assert not list((tmp_path / "store").rglob("abort"))
    logs = cluster.log + "".join(Path(member["log"]).read_text() for member in ready["members"])
    assert "Traceback" not in logs
    again = start("--brokers", "2", "--slaves", "1", "--sync")
    assert asyncio.run(received(again.ready["namesrv"], "billing", 1)) == {b"hello"}


def test_a_member_that_dies_is_named_with_its_log_and_the_others_go_on(start: Start) -> None:
    cluster = start("--brokers", "2")
    dead = cluster.member("broker-b")
    os.kill(dead["pid"], signal.SIGKILL)
    line = f"broker-b (pid {dead['pid']}) was killed by SIGKILL; its log is {dead['log']}: "
    wait_for("the report", lambda: line in cluster.log)
    assert asyncio.run(send(cluster.ready["namesrv"], b"hello")) == "broker-a"
    assert cluster.stop() == 0


def test_members_stop_cleanly_when_the_process_that_started_them_is_killed(start: Start, tmp_path: Path) -> None:
    cluster = start("--slaves", "1")
    assert len(cluster.ready["members"]) == 3
    cluster.stop(signal.SIGKILL)
    wait_for("members", lambda: not any(is_alive(member["pid"]) for member in cluster.ready["members"]))
    assert not list((tmp_path / "store").rglob("abort"))


def test_it_ends_when_no_member_is_left(start: Start) -> None:
    cluster = start("--brokers", "1")
    for member in cluster.ready["members"]:
        os.kill(member["pid"], signal.SIGTERM)
    assert cluster.process.wait(TIMEOUT) == 1
    assert "all members of the cluster have ended" in cluster.log


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--brokers", "0"), "0 brokers: a number from 1 to 26 is expected"),
        (("--slaves", "10"), "10 slaves: a number from 0 to 9 is expected"),
        (("--sync",), "needs at least one slave"),
        (("--brokers", "2", "--set", "listenPort=1"), "listenPort: the cluster sets this"),
        (("--brokers", "2", "--set", "flushDiskType=MAYBE"), "flushDiskType=MAYBE"),
        (("--brokers", "2", "--port", "10911"), "the brokers of a cluster have free ports"),
    ],
)
def test_mistakes_are_told_before_a_process_is_started(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    store = tmp_path / "store"
    done = CliRunner().invoke(app, ["run", "--store", str(store), *words])
    assert done.exit_code in (1, 2)
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert not store.exists()


INNER = '{"accessKey":"inner","secretKey":"secret-of-inner"}'
ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
}


@pytest.mark.parametrize("in_file", [True, False])
def test_the_name_server_has_the_access_control_of_the_brokers(start: Start, tmp_path: Path, in_file: bool) -> None:
    properties = {**ACCESS, "innerClientAuthenticationCredentials": INNER}
    if in_file:
        authority = Authority(tmp_path / "ca", "authority")
        properties |= {**authority.server_properties(), **authority.client_properties(), "tls.server.mode": "enforcing"}
        (tmp_path / "broker.conf").write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
        cluster = start("--raft", "1", "-c", "broker.conf")
        tls: bool | TlsSettings = client_tls_settings(properties)
    else:
        words = [word for key, text in properties.items() for word in ("--set", f"{key}={text}")]
        cluster = start("--brokers", "1", *words)
        tls = False
    namesrv = cluster.ready["namesrv"]

    async def brokers(**account: str) -> set[str]:
        async with kourou.connect(namesrv, tls=tls, **account) as mq:  # type: ignore[arg-type]
            return set((await mq.admin.brokers.cluster()).broker_addr_table)

    assert asyncio.run(brokers(access_key="root", secret_key="secret-of-root")) == {"broker-a"}
    for account in ({}, {"access_key": "root", "secret_key": "wrong"}):
        with pytest.raises(RefusedError):
            asyncio.run(brokers(**account))
    assert f"kourou admin createUser -b {namesrv}" in cluster.log


def test_a_name_server_without_access_control_is_reported(start: Start) -> None:
    words = [word for key, text in ACCESS.items() for word in ("--set", f"{key}={text}")]
    log = start("--brokers", "1", *words).log
    assert "THE NAME SERVER HAS NO ACCESS CONTROL" in log
    assert "set innerClientAuthenticationCredentials" in log


async def test_a_member_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    member = MemberProcess("broker-a", ["broker", "--set", "brokerId=many"], tmp_path)
    with pytest.raises(ConfError, match=r"broker-a \(pid \d+\) ended with exit code 1; its log is .*brokerId=many"):
        await member.start()


async def test_a_member_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(members, "STOP_SECONDS", 0.2)
    member = MemberProcess("namesrv", ["namesrv", "-p", "0", "--set", f"kvConfigPath={tmp_path / 'kv'}"], tmp_path)
    await member.start()
    os.kill(member.pid, signal.SIGSTOP)
    await member.stop()
    assert not member.is_running
    assert "namesrv did not stop within 0.2 s and is killed" in caplog.text


async def test_open_ports_of_the_members_are_named_by_the_process_that_started_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their own warnings are in their log files, where nobody looks."""
    ports = {"namesrv": "brokers, clients and administration", "broker-a": "clients and administration"}

    async def start(member: MemberProcess) -> None:
        port = OpenPort(f"{member.label}:9", ports[member.label], "set authenticationEnabled")
        ready = tmp_path / f"{member.label}.json"
        write_ready_file(ready, namesrv="127.0.0.1:1", broker="127.0.0.1:2", ha="127.0.0.1:3", open_ports=[port])
        member.ready = json.loads(ready.read_text())

    async def ended(_: MemberProcess) -> None:
        """It has none."""

    monkeypatch.setattr(MemberProcess, "start", start)
    monkeypatch.setattr(MemberProcess, "ended", ended)
    monkeypatch.setattr(MemberProcess, "pid", 1)
    monkeypatch.setattr(run_cluster, "run_until_stopped", lambda start, *_: start())
    options = run_cluster.ClusterOptions(
        brokers=1,
        slaves=0,
        sync=False,
        raft=0,
        host=None,
        namesrv_port=0,
        store=tmp_path,
        config=None,
        assignments=[],
        ready_file=None,
        log_level="INFO",
    )
    await run_cluster.run_cluster(options)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(
        "OPEN TO THE NETWORK WITHOUT AUTHENTICATION: namesrv:9 (brokers, clients and administration), "
        "broker-a:9 (clients and administration)."
    )
    assert "set authenticationEnabled" in warning
