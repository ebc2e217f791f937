"""plain_acl.yml is read again when it changes, without a restart."""

import asyncio
import errno
import gc
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S, answered, eventually

from kourou.access.errors import AccessFileError
from kourou.access.plain_acl import ACCOUNTS_MAX, RULES_MAX, PlainAcl, parse
from kourou.embedded import Embedded
from kourou.net.client import connect
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.signing import Credentials
from kourou.server import access_files, account_watch
from kourou.server.access_files import read_plain_acl
from kourou.server.account_watch import AccountWatch
from kourou.server.conf import ConfError

SECRET = "secret-of-all"
ATTEMPTS = 5
MANY = 2_000


def accounts(*names: str) -> str:
    lines = (f"- accessKey: {name}\n  secretKey: {SECRET}\n  admin: true\n" for name in names)
    return "accounts:\n" + "".join(lines)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    path.write_text(accounts("account-1"))
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_watch, "LOOK_INTERVAL", 0.02)
    monkeypatch.setattr(account_watch, "SETTLE_TIME", 0.02)


async def _code(address: str, name: str) -> int:
    """The code of the answer to a signed request for the broker's status."""
    command = Command(RequestCode.GET_BROKER_RUNTIME_INFO, ext={})
    Credentials(name, SECRET).sign(command)
    host, _, port = address.rpartition(":")
    connection = await connect(host, int(port))
    try:
        return (await connection.request(command, PATIENCE_S)).code
    finally:
        connection.close()


async def test_a_changed_file_is_in_force_without_a_restart(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the usual intervals: a few seconds."""
    async with Embedded(properties={"aclEnable": "true", "plainAclFile": str(file)}) as embedded:
        assert (await _code(embedded.address, "account-1"), await _code(embedded.address, "account-2")) == (0, 1)
        file.write_text(accounts("account-2"))
        started = time.monotonic()

        async def is_changed() -> bool:
            return await _code(embedded.address, "account-2") == 0

        await answered(is_changed)
        assert time.monotonic() - started < 10
        assert await _code(embedded.address, "account-1") == 1

        file.write_text("accounts: 7")
        await eventually(lambda: "accounts is not a list" in caplog.text)
        assert "the last valid ones stay in force" in caplog.text
        assert await _code(embedded.address, "account-2") == 0
    assert SECRET not in caplog.text


class Watched:
    """The accounts that a watch has read."""

    def __init__(self, file: Path) -> None:
        self.found: list[set[str]] = []
        self.watch = AccountWatch(file, self._use)

    def _use(self, acl: PlainAcl) -> None:
        self.found.append(set(acl.accounts))

    async def __aenter__(self) -> "Watched":
        self.watch.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.watch.stop()


@pytest.mark.usefixtures("quick")
async def test_files_come_change_and_go(file: Path) -> None:
    folder = file.parent / "acl"
    async with Watched(file) as watched:
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "more.yml").write_text(accounts("account-2"))
        await eventually(lambda: watched.found[-1:] == [{"account-1", "account-2"}])
        aside = file.with_suffix(".new")
        aside.write_text(accounts("account-3"))
        os.replace(aside, file)
        await eventually(lambda: watched.found[-1:] == [{"account-3", "account-2"}])
        (folder / "deep" / "more.yml").unlink()
        await eventually(lambda: watched.found[-1:] == [{"account-3"}])


@pytest.mark.usefixtures("quick")
async def test_files_that_are_not_valid_change_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Watched(file) as watched:
        for number, (content, reason) in enumerate(
            (
                (b"a: b: c", "is not valid YAML"),
                (b"\xff", "is not UTF-8 text"),
                (b"#" * (access_files.FILES_SIZE_MAX + 1), "have at most 1048576 bytes"),
            )
        ):
            file.write_bytes(content)
            await eventually(lambda reason=reason: reason in caplog.text)  # type: ignore[misc]
            assert len([one for one in caplog.records if one.levelno == logging.ERROR]) == number + 1
        file.unlink()
        await eventually(lambda: "does not exist" in caplog.text)
        assert watched.found == []
        file.write_text(accounts("account-9"))
        await eventually(lambda: watched.found == [{"account-9"}])


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
async def test_an_account_that_was_removed_while_files_could_not_be_opened(
    number: int, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file does not change again when the system recovers."""
    tries = 0

    def refuse(self: Path, *_: object) -> None:
        nonlocal tries
        tries += 1
        raise OSError(number, os.strerror(number))

    file.write_text(accounts("account-1", "account-2"))
    async with Watched(file) as watched:
        with monkeypatch.context() as failing:
            failing.setattr(Path, "open", refuse)
            aside = os.open(file, os.O_WRONLY | os.O_TRUNC)
            os.write(aside, accounts("account-1").encode())
            os.close(aside)
            await eventually(lambda: tries > 3)
        await eventually(lambda: watched.found == [{"account-1"}])
    logged = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(logged) == 1 and os.strerror(number) in logged[0] and "retried" in logged[0]


@pytest.mark.usefixtures("quick")
async def test_a_system_without_threads_does_not_end_the_watch(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    async def refuse(*_: object) -> None:
        nonlocal tries
        tries += 1
        raise RuntimeError("can't start new thread")

    async with Watched(file) as watched:
        with monkeypatch.context() as failing:
            failing.setattr(asyncio, "to_thread", refuse)
            await eventually(lambda: tries > 3)
        file.write_text(accounts("account-7"))
        await eventually(lambda: watched.found == [{"account-7"}])


@pytest.mark.usefixtures("quick")
async def test_a_large_file_does_not_hold_the_event_loop(file: Path) -> None:
    """Pauses are counted in CPU time of the process, so that other processes on the machine do not make them longer."""
    attempts = [await _longest_pause(file, number) for number in range(ATTEMPTS)]
    assert min(attempts) < 0.02, [f"{pause * 1000:.0f} ms" for pause in attempts]


@pytest.mark.usefixtures("quick")
async def test_no_garbage_is_collected_while_a_large_file_is_read(file: Path) -> None:
    """A collection stops all threads for as long as it takes to visit all objects of the broker."""
    collected_by: set[int] = set()

    def note(*_: object) -> None:
        collected_by.add(threading.get_ident())

    gc.callbacks.append(note)
    try:
        await _longest_pause(file, 0)
    finally:
        gc.callbacks.remove(note)
    assert collected_by <= {threading.get_ident()}
    assert gc.isenabled()


async def _longest_pause(file: Path, attempt: int) -> float:
    """CPU seconds between two turns of the loop while a large file is read, at most."""
    async with Watched(file) as watched:
        file.write_text(accounts(*(f"account-{attempt}-{number}" for number in range(MANY))))
        longest, last = 0.0, time.process_time()
        while not watched.found:
            await asyncio.sleep(0.001)
            now = time.process_time()
            longest, last = max(longest, now - last), now
        assert len(watched.found[0]) == MANY
        return longest


def test_limits_of_the_files(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = file.parent / "acl"
    folder.mkdir()
    (folder / "a.yml").write_text(accounts("account-2"))
    monkeypatch.setattr(access_files, "FILES_SIZE_MAX", len(file.read_bytes()) + 10)
    with pytest.raises(ConfError, match=r"a\.yml: files of accounts or a key may have at most"):
        read_plain_acl(file)
    monkeypatch.undo()
    monkeypatch.setattr(access_files, "FILES_MAX", 1)
    with pytest.raises(ConfError, match="too many files; the limit is 1"):
        read_plain_acl(file)
    monkeypatch.undo()
    os.mkfifo(folder / "b.yml")
    with pytest.raises(ConfError, match=r"b\.yml is not a regular file"):
        read_plain_acl(file)


def test_aliases_do_not_multiply() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefghijklm", "bcdefghijklmn", strict=True)
    )
    for key in ("accessKey", "whiteRemoteAddress", "defaultTopicPerm"):
        entry = f"{{accessKey: account-1, secretKey: 12345678, {key}: *n}}"
        if key == "accessKey":
            entry = "{accessKey: *n, secretKey: 12345678}"
        with pytest.raises(AccessFileError, match=f"{key} has a list or a map where a text is expected"):
            parse([("f", entry.join(("a: &n [x, x]\naccounts: [", "]")))])
        with pytest.raises(AccessFileError, match="aliases that repeat too much"):
            parse([("f", f"{bomb}accounts: [{entry}]")])
    with pytest.raises(AccessFileError, match="topicPerms has a list"):
        parse([("f", "accounts: [{accessKey: account-1, secretKey: 12345678, topicPerms: [[x]]}]")])

    rules = ", ".join(f"topic-{number}=SUB" for number in range(1_000))
    many = "".join(
        f"- {{accessKey: account-{number}, secretKey: 12345678, topicPerms: *rules}}\n"
        for number in range(RULES_MAX // 1_000 + 1)
    )
    with pytest.raises(AccessFileError, match=f"more than {ACCOUNTS_MAX} accounts or {RULES_MAX} permissions"):
        parse([("f", f"rules: &rules [{rules}]\naccounts:\n{many}")])
