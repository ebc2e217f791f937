"""`kourou run` with its console as a child, and what `kourou console` refuses."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.authority import Authority
from tests.unit.console.conftest import CHANGE
from tests.waiting import wait_for
from typer.testing import CliRunner

from kourou.cli.main import app


@pytest.fixture
def run(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    ports = ("--namesrv-port", "0", "--port", "0")
    command = [sys.executable, "-m", "kourou", "run", *ports, "--store", "store", "--ready-file", "ready"]
    with (tmp_path / "out").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


ACCESS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


def test_run_with_access_control_lets_its_users_in(tmp_path: Path) -> None:
    """The console has no key of its own, so a link would show errors only."""
    ports = ("--namesrv-port", "0", "--port", "0")
    given = [word for name, value in ACCESS.items() for word in ("--set", f"{name}={value}")]
    command = [sys.executable, "-m", "kourou", "run", *ports, "--store", "store", "--ready-file", "ready", *given]
    output = tmp_path / "out"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path)
    try:
        wait_for("the address", lambda: "console: http" in output.read_text() or process.poll() is not None)
        assert "sign in with a RocketMQ access key" in output.read_text() and "#token=" not in output.read_text()
        ready: dict[str, Any] = json.loads((tmp_path / "ready").read_text())
        with httpx.Client(base_url=ready["console"], timeout=60) as http:
            for key, status in (("wrong", 401), ("secret-of-root", 200)):
                signed = http.post("/api/session", json={"user": "root", "password": key}, headers=CHANGE)
                assert signed.status_code == status, signed.text
            (broker,) = http.get("/api/overview").json()["brokers"]
            assert (broker["address"], broker["ok"]) == (ready["broker"], True)
    finally:
        process.kill()
        process.wait()


def test_run_in_tls_tells_its_console(tmp_path: Path) -> None:
    """Name server and broker accept no plain text, and no client without a certificate."""
    authority = Authority(tmp_path / "ca", "authority")
    properties = {**authority.server_properties(), **authority.client_properties(), "tls.server.mode": "enforcing"}
    (tmp_path / "broker.conf").write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
    ports = ("--namesrv-port", "0", "--port", "0")
    command = [sys.executable, "-m", "kourou", "run", *ports, "--ready-file", "ready", "-c", "broker.conf"]
    output = tmp_path / "out"
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=tmp_path)
    try:
        wait_for("the link", lambda: "#token=" in output.read_text() or process.poll() is not None)
        url, token = re.findall(r"console: (\S+)#token=(\S+)", output.read_text())[0]
        with httpx.Client(base_url=url, timeout=60) as http:
            assert http.post("/api/session", json={"token": token}, headers=CHANGE).status_code == 200
            (broker,) = http.get("/api/overview").json()["brokers"]
            assert broker["ok"], broker
    finally:
        process.kill()
        process.wait()


def is_gone(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.TransportError:
        return True
    return False


def test_run_starts_a_console_that_ends_with_it(run: "subprocess.Popen[bytes]", tmp_path: Path) -> None:
    output = tmp_path / "out"
    wait_for("the link", lambda: "#token=" in output.read_text() or run.poll() is not None)
    url, token = next(
        line.removeprefix("console: ").split("#token=") for line in output.read_text().splitlines() if "#token=" in line
    )
    ready: dict[str, Any] = json.loads((tmp_path / "ready").read_text())
    assert ready["console"] == url
    with httpx.Client(base_url=url, timeout=30) as http:
        assert http.get("/api/overview").status_code == 401
        signed = http.post("/api/session", json={"token": token}, headers=CHANGE)
        assert signed.json()["name_servers"] == [ready["namesrv"]]
        brokers = http.get("/api/overview").json()["brokers"]
        assert [one["address"] for one in brokers] == [ready["broker"]]
    wait_for("the next link", lambda: "for another browser" in output.read_text())
    os.kill(run.pid, signal.SIGKILL)  # nobody stops the console: its standard input ends
    wait_for("the end of the console", lambda: is_gone(url))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--host", "0.0.0.0"), "not loopback: that needs users"),
        (("--host", "0.0.0.0", "--users", "USERS"), "not loopback: that needs TLS"),
        (("--users", "nothing"), "nothing can't be read"),
        (("--tls-cert", "cert.pem"), "must be given together"),
    ],
)
def test_what_it_refuses(words: tuple[str, ...], text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    added = CliRunner().invoke(
        app, ["console", "--users", "USERS", "--add-user", "anna:see"], input="correct horse\ncorrect horse\n"
    )
    assert added.stdout.splitlines()[-1] == "user anna has the role see"
    done = CliRunner().invoke(app, ["console", "-n", "127.0.0.1:1", *words])
    assert done.exit_code == 1
    assert text in done.stderr


def test_it_refuses_an_invalid_collector() -> None:
    done = CliRunner().invoke(app, ["console", "-n", "127.0.0.1:1", "--otlp", "collector:4318"])
    assert done.exit_code == 2
    assert "is not the address of a collector" in " ".join(done.stderr.replace("│", " ").split())


def test_no_name_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    done = CliRunner().invoke(app, ["console"])
    assert done.exit_code == 1
    assert "no name server is given" in done.stderr
