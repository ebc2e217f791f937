"""`kourou store convert`: what it prints, and real processes that are killed."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.unit.cli.test_store_cli import message, opened, run, send, verified
from tests.waiting import wait_for

from kourou.protocol.record import decode_record
from kourou.store.dledger import looks_like_dledger
from kourou.store.errors import BadStoreError


def filled(root: Path, count: int = 100) -> Path:
    """A plain store."""
    store = opened(root)
    send(store, *(message(number) for number in range(count)))
    store.close(1_700_000_001_000)
    return root


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_there_and_back(tmp_path: Path) -> None:
    source = filled(tmp_path / "store")
    before = files(source)
    code, out, error = run("convert", source, tmp_path / "dledger")
    assert (code, error) == (0, "")
    assert f"100 records from {source} are in {tmp_path}/dledger, in the layout dledger, each compared" in out
    assert looks_like_dledger(tmp_path / "dledger")
    with pytest.raises(BadStoreError, match="kourou store convert"):
        opened(tmp_path / "dledger")
    code, _, error = run("verify", tmp_path / "dledger")
    assert code == 2
    assert "is in DLedger's layout, which only kourou store convert reads" in error
    code, out, _ = run("convert", tmp_path / "dledger", tmp_path / "back", "--json")
    report = json.loads(out)
    assert (code, report["records"], report["to"], report["resumed"]) == (0, 100, "plain", False)
    assert files(source) == before
    assert verified(tmp_path / "back")[1] == []
    store = opened(tmp_path / "back")
    found = store.reader.get("orders", 0, 57, 1).records[0]
    assert bytes(decode_record(found).body).startswith(b"57 ")
    assert (tmp_path / "back" / "commitlog" / ("0" * 20)).read_bytes() == before["commitlog/" + "0" * 20]
    store.close(1_700_000_002_000)


def test_the_member_of_a_group_is_chosen(tmp_path: Path) -> None:
    source = filled(tmp_path / "store", 5)
    assert run("convert", source, tmp_path / "dledger", "--self-id", "n2")[0] == 0
    assert [path.name for path in tmp_path.glob("dledger/dledger-*")] == ["dledger-n2"]
    code, _, error = run("convert", tmp_path / "dledger", tmp_path / "back", "--self-id", "n0")
    assert code == 1
    assert "dledger-n0 has no log of DLedger" in error
    assert run("convert", tmp_path / "dledger", tmp_path / "back", "--self-id", "n2")[0] == 0


def test_wrong_arguments_are_explained(tmp_path: Path) -> None:
    source = filled(tmp_path / "store", 5)
    for arguments, told in (
        ((source, tmp_path / "new", "--to", "plain"), "has the layout plain already; it can become dledger"),
        ((source, tmp_path / "new", "--self-id", "../n0"), "a letter and a number are expected"),
        ((source, source), "it must be a new directory outside of"),
        ((tmp_path / "nothing", tmp_path / "new"), "has no log"),
        ((source, tmp_path), "it must be a new directory outside of"),
    ):
        code, out, error = run("convert", *arguments)
        assert (code, out) == (1, "")
        assert told in error, error
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("mine")
    assert "is not empty" in run("convert", source, tmp_path / "used")[2]


def test_a_store_in_use_is_refused(tmp_path: Path) -> None:
    source = filled(tmp_path / "store", 5)
    store = opened(source)
    code, _, error = run("convert", source, tmp_path / "new")
    assert code == 1
    assert "stop the broker that uses it" in error
    store.abandon()


def _is_there(path: Path, process: subprocess.Popen[bytes]) -> bool:
    return path.exists() or process.poll() is not None


def test_killed_processes_are_continued(tmp_path: Path) -> None:
    source = filled(tmp_path / "store", 4000)
    target = tmp_path / "new"
    command = [sys.executable, "-m", "kourou", "store", "convert", str(source), str(target), "--json"]
    for part in ("kourou-converting.json", "dledger-n0/data/" + "0" * 20, "dledger-n0/data/00000000000000524288"):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(part, partial(_is_there, target / part, process))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["records"] == 4000
    assert run("convert", target, tmp_path / "back")[0] == 0
    assert verified(tmp_path / "back")[0]["records"] == 4000
