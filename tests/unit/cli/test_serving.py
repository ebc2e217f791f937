"""`kourou namesrv` and `kourou run` as processes: starting, settings, signals, mistakes."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from kourou.cli.main import app
from kourou.net.client import connect
from kourou.net.errors import ConnectionLostError
from kourou.net.tls import TlsSettings
from kourou.protocol import conf_text
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

TIMEOUT = 30.0
KOUROU = [sys.executable, "-m", "kourou"]


class Server:
    """A process, and where it listens."""

    def __init__(self, process: subprocess.Popen[str], ready: dict[str, str], log: Path) -> None:
        self.process = process
        self.ready = ready
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    async def ask(self, code: RequestCode, body: bytes = b"", tls: TlsSettings | None = None, **ext: str) -> Command:
        host, _, port = self.ready["namesrv"].rpartition(":")
        connection = await connect(host.strip("[]"), int(port), tls=tls, timeout=TIMEOUT)
        try:
            return await connection.request(Command(code, ext=ext, body=body), TIMEOUT)
        finally:
            connection.close()

    def put(self, value: str) -> Command:
        return asyncio.run(self.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value=value))

    def get(self) -> str | None:
        answer = asyncio.run(self.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k"))
        return (answer.ext or {}).get("value")

    def settings(self) -> dict[str, str]:
        return conf_text.loads(asyncio.run(self.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode())

    def update(self, text: str) -> Command:
        return asyncio.run(self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode()))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)


Start = Callable[..., Server]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home)}


@pytest.fixture
def start(tmp_path: Path, environment: dict[str, str]) -> Iterator[Start]:
    """Starts `kourou` with these words and waits until it is ready."""
    running: list[tuple[subprocess.Popen[str], IO[str]]] = []

    def start_one(*words: str, program: list[str] = KOUROU) -> Server:
        log, ready = tmp_path / f"{len(running)}.log", tmp_path / f"{len(running)}.ready"
        stderr = log.open("w")
        command = [*program, *words, "--ready-file", str(ready)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment, cwd=tmp_path
        )
        running.append((process, stderr))
        assert process.stdout is not None
        for line in process.stdout:
            if "ready" in line:
                return Server(process, json.loads(ready.read_text()), log)
        raise AssertionError(f"it ended: {log.read_text()}")

    yield start_one
    for process, stderr in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        stderr.close()


@pytest.fixture
def fail(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs `kourou`, inside this process, with words that it can't use: its one line about that."""
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 1, done
        *_, last = done.stderr.splitlines()
        assert "Traceback" not in done.stderr
        assert last.startswith("kourou: ")
        return last

    return run


NAMESRV = ("namesrv", "-p", "0")


# ── Life ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_ready_file_has_pid_and_addresses(start: Start) -> None:
    server = start(*NAMESRV)
    host, _, port = server.ready["namesrv"].rpartition(":")
    assert server.ready == {
        "pid": server.process.pid,
        "namesrv": f"{host}:{port}",
        "broker": None,
        "ha": None,
        "console": None,
        "store": None,
    }
    assert host == "127.0.0.1"
    assert int(port) > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_and_soon(start: Start, number: int) -> None:
    server = start(*NAMESRV)
    server.put("x")
    began = time.monotonic()
    assert server.stop(number) == 0
    assert time.monotonic() - began < 5
    assert "Traceback" not in server.log


def lets_in(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port)).close()
    except ConnectionRefusedError:
        return False
    except ConnectionResetError:
        return True  # it closed between the kernel's yes and ours
    return True


HANGING_DISK = """
import threading
from kourou.server import nameserver
def hang(path, content):
    print("the disk hangs, ready or not", flush=True)
    threading.Event().wait()
nameserver.write_safely = hang
from kourou.cli.main import main
main()
"""


def test_a_second_signal_ends_it_at_once(start: Start) -> None:
    server = start(*NAMESRV, program=[sys.executable, "-c", HANGING_DISK])
    host, _, port = server.ready["namesrv"].rpartition(":")
    with socket.create_connection((host, int(port))) as peer:
        header = b'{"code":100,"extFields":{"namespace":"n","key":"k","value":"v"},"opaque":1}'
        peer.sendall((len(header) + 4).to_bytes(4) + len(header).to_bytes(4) + header)
        assert server.process.stdout is not None
        assert "the disk hangs" in server.process.stdout.readline()
        server.process.send_signal(signal.SIGTERM)
        while lets_in(host, int(port)):
            assert server.process.poll() is None  # it waits for its disk
        assert server.stop() == 128 + signal.SIGTERM  # an end of its own, after the disk, would be 0


def test_kv_config_is_kept_at_home(start: Start, home: Path) -> None:
    server = start(*NAMESRV)
    assert server.put("x").code == ResponseCode.SUCCESS
    assert server.stop() == 0
    assert json.loads((home / "namesrv" / "kvConfig.json").read_text()) == {"configTable": {"n": {"k": "x"}}}
    assert start(*NAMESRV).get() == "x"


def test_ipv6(start: Start) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    server = start(*NAMESRV, "--host", "::1")
    assert server.ready["namesrv"].startswith("[::1]:")
    assert server.put("x").code == ResponseCode.SUCCESS


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_file_is_read_and_written(start: Start, tmp_path: Path) -> None:
    """As with Apache: the file given with -c is where changed settings go, wherever it once was."""
    conf = tmp_path / "namesrv.conf"
    conf.write_text("# mine\nenableTopicList = false\nconfigStorePath=/somewhere/else\nowner=me\n")
    conf.chmod(0o600)
    server = start(*NAMESRV, "-c", str(conf))
    assert server.settings()["enableTopicList"] == "false"
    assert server.settings()["configStorePath"] == str(conf)
    assert "property owner is unknown and ignored" in server.log
    assert server.update("waitSecondsForService=7").code == ResponseCode.SUCCESS
    assert server.stop() == 0
    written = conf_text.loads(conf.read_text())
    assert (written["waitSecondsForService"], written["enableTopicList"], written["owner"]) == ("7", "false", "me")
    assert conf.stat().st_mode & 0o777 == 0o600
    assert conf.with_name("namesrv.conf.bak").read_text().startswith("# mine")
    again = start(*NAMESRV, "-c", str(conf))
    assert again.settings()["waitSecondsForService"] == "7"
    assert "has no effect in Kourou" not in again.log


def test_without_a_file_changes_last_until_the_end(start: Start, home: Path) -> None:
    server = start(*NAMESRV)
    server.update("waitSecondsForService=7")
    assert server.settings()["waitSecondsForService"] == "7"
    assert server.stop() == 0
    assert "waitSecondsForService=7" in (home / "namesrv" / "namesrv.properties").read_text()
    assert start(*NAMESRV).settings()["waitSecondsForService"] == "45"


def test_words_of_the_command_line_come_last(start: Start, tmp_path: Path) -> None:
    conf = tmp_path / "namesrv.conf"
    conf.write_text("listenPort=1\nwaitSecondsForService=1\nproductEnvName=file\n")
    server = start(*NAMESRV, "-c", str(conf), "--set", "waitSecondsForService=2", "--set", "serverWorkerThreads=3")
    settings = server.settings()
    assert (settings["waitSecondsForService"], settings["productEnvName"]) == ("2", "file")
    assert settings["listenPort"] == server.ready["namesrv"].rpartition(":")[2]
    assert "property serverWorkerThreads has no effect in Kourou and is ignored" in server.log


def test_run_remembers_settings_and_nothing_else(start: Start, tmp_path: Path) -> None:
    run = ("run", "--no-console", "--namesrv-port", "0", "--store", str(tmp_path / "store"))
    server = start(*run)
    assert server.ready["store"] == str(tmp_path / "store")
    server.put("x")
    assert server.update("waitSecondsForService=7\nenableTopicList=false").code == ResponseCode.SUCCESS
    assert server.stop() == 0
    kept = tmp_path / "store" / "namesrv" / "namesrv.properties"
    # What no request could have changed is not believed.
    text = kept.read_text().replace("listenPort=", "listenPort=1").replace("bindAddress=127", "bindAddress=9")
    kept.write_text(text.replace("kvConfigPath=", "kvConfigPath=/nowhere") + "\nowner=me\n")
    again = start(*run, "--set", "enableTopicList=true")
    assert again.get() == "x"
    settings = again.settings()
    assert (settings["waitSecondsForService"], settings["enableTopicList"]) == ("7", "true")
    assert settings["kvConfigPath"] == str(tmp_path / "store" / "namesrv" / "kvConfig.json")
    assert again.ready["namesrv"].startswith("127.0.0.1:")


# ── TLS ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that trusts itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    day = datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), *day)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    (tmp_path / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return tmp_path / "cert.pem", tmp_path / "key.pem"


def test_tls_from_the_file(start: Start, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    """Some keys in the file itself, some in the one that it names; they survive a change of settings."""
    cert, key = certificate
    keys = f"tls.server.certPath={cert}\ntls.server.keyPath={key}\ntls.server.keyPassword=secret\n"
    (tmp_path / "tls.properties").write_text(keys)
    conf = tmp_path / "namesrv.conf"
    conf.write_text(f"tls.config.file={tmp_path / 'tls.properties'}\ntls.server.mode=enforcing\ntls.provider=x\n")
    trusting = TlsSettings(test_mode=False, verify_peer=True, trust_path=str(cert))
    body = b"waitSecondsForService=7"
    for _ in range(2):
        server = start(*NAMESRV, "-c", str(conf))
        assert "property tls.provider has no effect in Kourou and is ignored" in server.log
        with pytest.raises(ConnectionLostError):
            server.get()
        answer = asyncio.run(server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body, tls=trusting))
        assert answer.code == ResponseCode.SUCCESS
        assert server.stop() == 0
    assert "waitSecondsForService=7" in conf.read_text()


# ── Mistakes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_port_that_is_taken(environment: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [*KOUROU, "namesrv", "-p", str(port)], env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"kourou: can't listen on 127.0.0.1:{port}")
    assert "-p PORT" in line


def test_a_port_of_run_that_is_taken(environment: dict[str, str], tmp_path: Path) -> None:
    """The remedy is a command of `kourou run` itself, and one for make."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for ports in (("--namesrv-port", str(port), "--port", "0"), ("--namesrv-port", "0", "--port", str(port))):
            command = [*KOUROU, "run", "--no-console", *ports, "--store", str(tmp_path / "store")]
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
            assert done.returncode == 1
            line = done.stderr.splitlines()[-1]
            assert line.startswith(f"kourou: can't listen on 127.0.0.1:{port}: the port is in use.")
            assert "make run ARGS=" in line
            remedy = re.search(r"kourou run --namesrv-port (\d+) --port (\d+) --store", line)
            assert remedy is not None
            assert [other == "0" for other in remedy.groups()] == [before == "0" for before in ports[1::2]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("listenPort=http", "listenPort=http: a whole number is expected"),
        ("enableTopicList=maybe", "enableTopicList=maybe: true or false is expected"),
        ("x=\\u12", "invalid escape \\u12 in properties"),
        ("tls.server.mode=maybe", "tls.server.mode=maybe: disabled, permissive or enforcing is expected"),
        ("tls.config.file=/no/such/file", "/no/such/file can't be read: No such file or directory"),
        ("tls.server.certPath=/no/such/file", "the TLS settings of the server are invalid"),
    ],
)
def test_a_wrong_property_in_the_file(fail: Callable[..., str], tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "namesrv.conf").write_text(text + "\n")
    line = fail(*NAMESRV, "-c", "namesrv.conf")
    assert expected in line
    assert text.startswith("tls") or "namesrv.conf: " in line


@pytest.mark.parametrize(
    "words", [("namesrv", "-p", "70000"), ("broker", "--port", "-1"), ("run", "--port", "99999")], ids=" ".join
)
def test_ports_that_are_none(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "Invalid value for" in done.stderr


def test_other_mistakes(fail: Callable[..., str], tmp_path: Path, home: Path) -> None:
    assert "nothing.conf can't be read: No such file or directory" in fail(*NAMESRV, "-c", "nothing.conf")
    (tmp_path / "binary.conf").write_bytes(b"\xff\xfe")
    assert "binary.conf is not UTF-8 text" in fail(*NAMESRV, "-c", "binary.conf")
    assert "--set listenPort: key=value is expected" in fail(*NAMESRV, "--set", "listenPort")
    assert "listenPort=x: a whole number is expected" in fail(*NAMESRV, "--set", "listenPort=x")
    assert "listenPort=70000: a number from 0 to 65535 is expected" in fail(*NAMESRV, "--set", "listenPort=70000")
    assert "namesrvAddr=a:70000: host:port is expected" in fail("broker", "-n", "a:70000")
    assert "plain_acl.yml does not exist" in fail("broker", "--set", "aclEnable=true")
    assert "can't listen on 192.0.2.1:0" in fail(*NAMESRV, "--host", "192.0.2.1")
    ready = str(tmp_path / "nowhere" / "f")
    assert f"the ready file {ready} can't be written: No such file" in fail(*NAMESRV, "--ready-file", ready)
    (home / "namesrv").mkdir()
    (home / "namesrv" / "kvConfig.json").write_text("broken")
    assert "repair or remove the file" in fail(*NAMESRV)
    kept = tmp_path / "store" / "namesrv" / "namesrv.properties"
    kept.parent.mkdir(parents=True)
    kept.write_text("waitSecondsForService=soon\n")
    line = fail("run", "--namesrv-port", "0", "--store", str(tmp_path / "store"))
    assert f"{kept}: waitSecondsForService=soon: a whole number is expected" in line
