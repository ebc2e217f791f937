"""`kourou store verify` and `kourou store inspect`: sound stores, every kind of damage, tables and JSON."""

import hashlib
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kourou.cli.main import app
from kourou.protocol.codes import SysFlag
from kourou.protocol.compression import Compression, compress, with_compression
from kourou.protocol.hosts import encode_host
from kourou.protocol.record import encode_filler, encode_record
from kourou.store.commit_log import NewMessage
from kourou.store.disk import RealDisk
from kourou.store.index import Index
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

HOST = encode_host("127.0.0.1:10911")
NOW = 1_700_000_000_000
SEGMENT = 16 * 1024
SETTINGS = StoreSettings(commit_log_file_size=SEGMENT, queue_file_entries=50, index_slots=32, index_entries=128)
SEGMENTS = [f"commitlog/{start:020}" for start in range(0, 20 * SEGMENT, SEGMENT)]


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def opened(root: Path, settings: StoreSettings = SETTINGS) -> Store:
    return Store.open(root, settings, store_host=HOST, now_ms=NOW, file_time=file_time)


def message(number: int, topic: str = "orders", queue_id: int = 0, sys_flag: int = 0, size: int = 300) -> NewMessage:
    properties = f"KEYS\1key{number} both\2TAGS\1tag{number % 3}\2UNIQ_KEY\1{number:032X}\2"
    return NewMessage(topic, queue_id, b"%d " % number + b"x" * size, properties.encode(), NOW, HOST, sys_flag=sys_flag)


def send(store: Store, *messages: NewMessage, after_ms: int = 0) -> list[int]:
    done = store.append(messages, NOW + after_ms)
    store.dispatch()
    return [appended.physical_offset for appended in done]


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["store", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def verified(root: Path, *options: str) -> tuple[dict[str, Any], list[str]]:
    """The JSON report, and the problems as lines."""
    code, out, _ = run("verify", root, "--json", *options)
    report = json.loads(out)
    assert code == (1 if report["problems"] else 0)
    assert report["sound"] == (not report["problems"])
    return report, [f"{problem['file']} {problem['offset']}: {problem['text']}" for problem in report["problems"]]


def notes(report: dict[str, Any]) -> str:
    return "\n".join(f"{note['file']}: {note['text']}" for note in report["notes"])


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def flip(path: Path, at: int) -> None:
    overwrite(path, at, bytes([path.read_bytes()[at] ^ 0x10]))


def digests(root: Path) -> dict[str, tuple[str, int]]:
    """All files below a folder: content and time of the last change."""
    return {
        str(path.relative_to(root)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


COUNT = 200


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of six segments, three queues of several files, and several index files, cleanly closed."""
    root = tmp_path_factory.mktemp("sample") / "store"
    store = opened(root)
    for number in range(COUNT):
        send(store, message(number, queue_id=number % 2), after_ms=number * 10)
    send(store, message(COUNT, "payments"), message(COUNT + 1, "SCHEDULE_TOPIC_XXXX", 2))
    send(store, message(COUNT + 2, "half", sys_flag=SysFlag.TRANSACTION_PREPARED))
    store.close(NOW)
    return root


@pytest.fixture
def root(sample: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return shutil.copytree(sample, tmp_path / "store")


@pytest.fixture
def places(sample: Path) -> list[int]:
    """Where the records of orders are."""
    code, out, _ = run("inspect", sample, "records", "--topic", "orders", "--count", 1000, "--json")
    assert code == 0
    return [json.loads(line)["log_offset"] for line in out.splitlines()]


# ── Stores that are sound ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_sound_store(sample: Path) -> None:
    before = digests(sample)
    report, problems = verified(sample)
    assert problems == []
    assert report["notes"] == []
    assert (report["records"], report["queues"], report["entries"]) == (203, 4, 202)
    assert report["index_entries"] >= 3 * 203
    assert report["index_files"] >= 5
    assert (report["log_start"], report["log_end"]) == (0, report["log_bytes"] + _fillers(sample))
    assert report["gigabytes_per_second"] >= 0
    assert digests(sample) == before


def _fillers(root: Path) -> int:
    """Bytes that fillers take."""
    total = 0
    for path in sorted((root / "commitlog").iterdir()):
        at = path.read_bytes().find(b"\xcb\xd4\x31\x94")
        total += 0 if at < 0 else SEGMENT - (at - 4)
    return total


def test_for_people(sample: Path) -> None:
    code, out, err = run("verify", sample)
    assert (code, err) == (0, "")
    summary, verdict = out.splitlines()
    assert verdict == "sound"
    assert "203 records" in summary and "202 entries of 4 queues" in summary and "GB/s" in summary


def test_a_store_without_index_and_an_empty_one(tmp_path: Path) -> None:
    store = opened(tmp_path / "store", replace(SETTINGS, index_enabled=False))
    store.close(NOW)
    assert verified(tmp_path / "store")[1] == []
    store = opened(tmp_path / "store", replace(SETTINGS, index_enabled=False))
    send(store, message(1))
    store.close(NOW)
    report, problems = verified(tmp_path / "store")
    assert (problems, report["records"], report["index_files"]) == ([], 1, 0)


def test_the_log_may_be_elsewhere(root: Path, tmp_path: Path) -> None:
    shutil.move(root / "commitlog", tmp_path / "log")
    report, problems = verified(root, "--commit-log", str(tmp_path / "log"))
    assert (problems, report["records"]) == ([], 203)


def test_segments_that_were_removed(root: Path) -> None:
    for name in SEGMENTS[:2]:
        (root / name).unlink()
    report, problems = verified(root)
    assert problems == []
    assert report["log_start"] == 2 * SEGMENT
    assert 0 < report["records"] < 203


def test_a_topic_that_was_deleted(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "payments")
    problem = (
        f"consumequeue/payments None: 1 records have no queue, the first at log offset {_place_of(root, 'payments')}"
    )
    assert verified(root)[1] == [problem]
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"dataVersion":{"counter":1},"topicConfigTable":{"orders":{}}}')
    report, problems = verified(root)
    assert problems == []
    assert "consumequeue/payments: 1 records of a topic that was deleted" in notes(report)


def _place_of(root: Path, topic: str) -> int:
    _, out, _ = run("inspect", root, "records", "--topic", topic, "--json")
    place: int = json.loads(out.splitlines()[0])["log_offset"]
    return place


def test_a_topic_that_was_made_again(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    send(store, *(message(number) for number in range(5)))
    store.remove_topic("orders")
    send(store, *(message(number) for number in range(3)))
    store.close(NOW)
    report, problems = verified(tmp_path / "store")
    assert problems == []
    assert "5 records are older than the queues" in notes(report)


def test_a_store_that_was_not_closed(root: Path, places: list[int]) -> None:
    """As a crash leaves it: entries of the last records are missing, and the log ends in half a record."""
    (root / "abort").write_text("1")
    end = verified(root)[0]["log_end"]
    base = end - end % SEGMENT
    overwrite(root / f"commitlog/{base:020}", end - base, struct.pack(">ii", 400, 0xDAA320A7 - 2**32) + b"half")
    overwrite(root / "consumequeue/orders/1/00000000000000001000", 48 * 20, bytes(40))
    report, problems = verified(root)
    assert problems == []
    assert "abort: a broker is running" in notes(report)
    assert "the log ends here" in notes(report)
    assert f"2 records have no entries yet, the first at log offset {places[-3]}" in notes(report)
    (root / "abort").unlink()
    report, problems = verified(root)
    assert len(problems) == 2
    assert problems[0].startswith(f"commitlog/{base:020} {end - base}: the log ends here: ")
    assert problems[1] == (
        "consumequeue/orders/1/00000000000000001000 960: entries 98 to 99: empty or missing, "
        f"though records from log offset {places[-3]} on should have them"
    )


# ── In use, or no store ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def running(root: Path) -> Iterator[Store]:
    store = opened(root)
    yield store
    store.close(NOW)


def test_a_store_in_use_is_refused(root: Path, running: Store) -> None:
    code, out, err = run("verify", root)
    assert (code, out) == (2, "")
    assert "is already open" in err and "--live" in err
    # The lock is still there.
    assert "is already open" in run("verify", root)[2]
    report, problems = verified(root, "--live")
    assert problems == []
    assert "a broker is running" in notes(report)
    send(running, message(1))
    assert verified(root, "--live")[1] == []


def test_a_store_in_use_by_another_process_is_refused(root: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from kourou.store.disk import RealDisk
lock = RealDisk(Path({str(root)!r}) / "aside").lock(Path({str(root)!r}) / "lock")
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert run("verify", root)[0] == 2
        other.stdin.close()
        other.wait(30)
    assert run("verify", root)[0] == 0


def test_no_broker_opens_the_store_while_it_is_verified(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kourou.store.errors import StoreInUseError
    from kourou.store.verify import Verifier

    original = Verifier.run

    def run_and_try(self: Verifier) -> object:
        with pytest.raises(StoreInUseError):
            opened(root)
        return original(self)

    monkeypatch.setattr(Verifier, "run", run_and_try)
    assert run("verify", root)[0] == 0
    opened(root).close(NOW)


def test_no_store(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        for command in (["verify", folder], ["inspect", folder]):
            code, out, err = run(*command)
            assert (code, out) == (2, "")
            assert "is not a store" in err


# ── Damage ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_flipped_bit_in_a_body(root: Path, places: list[int]) -> None:
    place = places[100]
    flip(root / f"commitlog/{place - place % SEGMENT:020}", place % SEGMENT + 120)
    report, problems = verified(root)
    size = places[101] - place
    assert problems[0] == (
        f"commitlog/{place - place % SEGMENT:020} {place % SEGMENT}: {size} bytes are invalid: "
        f"its body does not match its CRC; the log continues at {places[101]}"
    )
    # Its queue has an entry for it, which leads to nothing that holds.
    assert problems[1] == (
        f"consumequeue/orders/0/{1000:020} 0: entry 50: at log offset {place} there is no valid record "
        "(its body does not match its CRC)"
    )
    assert len(problems) == 2
    assert report["records"] == 202


def test_a_flipped_bit_in_the_size_of_a_record(root: Path, places: list[int]) -> None:
    place = places[10]
    flip(root / SEGMENTS[0], place + 3)
    _, problems = verified(root)
    assert problems[0].startswith(f"{SEGMENTS[0]} {place}: {places[11] - place} bytes are invalid: ")
    assert "entry 5: at log offset" in problems[1]


def test_a_record_that_says_it_is_elsewhere(root: Path, places: list[int]) -> None:
    overwrite(root / SEGMENTS[0], places[3] + 28, struct.pack(">q", 7))
    _, problems = verified(root)
    assert "its offset field says 7" in problems[0]


def test_a_lost_sector_in_the_properties(root: Path, places: list[int]) -> None:
    record = places[7]
    at = (root / SEGMENTS[0]).read_bytes().find(b"TAGS", record)
    overwrite(root / SEGMENTS[0], at, bytes(places[8] - at))
    _, problems = verified(root)
    assert any(f"{SEGMENTS[0]} {record}:" in line and "is missing" in line for line in problems)
    assert any("wrong code of the tags" in line for line in problems)


def test_a_lost_stretch_of_the_log(root: Path, places: list[int]) -> None:
    overwrite(root / SEGMENTS[1], 0, bytes(SEGMENT))
    report, problems = verified(root)
    assert (
        f"{SEGMENTS[1]} 0: {SEGMENT} bytes are invalid: never written; the log continues at {2 * SEGMENT}" in problems
    )
    lost = [place for place in places if SEGMENT <= place < 2 * SEGMENT]
    assert report["records"] == 203 - len(lost)
    assert sum("there is no valid record" in line for line in problems) == len(lost)


def test_a_filler_that_is_gone(root: Path) -> None:
    at = (root / SEGMENTS[0]).read_bytes().find(b"\xcb\xd4\x31\x94") - 4
    overwrite(root / SEGMENTS[0], at, bytes(8))
    _, problems = verified(root)
    assert problems == [
        f"{SEGMENTS[0]} {at}: {SEGMENT - at} bytes are invalid: never written; the log continues at {SEGMENT}"
    ]


def test_a_missing_a_short_and_a_strange_segment(root: Path) -> None:
    (root / SEGMENTS[1]).unlink()
    with (root / SEGMENTS[3]).open("r+b") as file:
        file.truncate(5000)
    (root / "commitlog" / "notes.txt").write_text("hello")
    _, problems = verified(root)
    assert any(line.startswith("commitlog/notes.txt None: its name is not an offset") for line in problems)
    assert f"{SEGMENTS[1]} None: it is missing: the next file is {2 * SEGMENT:020}" in problems
    assert f"{SEGMENTS[3]} None: it has 5000 bytes, others have {SEGMENT}" in problems


def test_the_end_of_the_log_is_lost(root: Path) -> None:
    end = verified(root)[0]["log_end"]
    last = f"commitlog/{end - end % SEGMENT:020}"
    overwrite(root / last, 0, bytes(SEGMENT))
    _, problems = verified(root)
    assert any(line.startswith("checkpoint 40: the log was durable up to") for line in problems)
    assert any("and the log ends at" in line and line.startswith("index/") for line in problems)
    assert any("points to" in line and line.startswith("consumequeue/payments/0/") for line in problems)


QUEUE_0 = f"consumequeue/orders/0/{0:020}"


def queue_file(root: Path, queue_id: int = 0, first: int = 0) -> Path:
    return root / "consumequeue" / "orders" / str(queue_id) / f"{first * 20:020}"


def test_an_entry_with_a_wrong_size(root: Path, places: list[int]) -> None:
    overwrite(queue_file(root), 3 * 20 + 8, struct.pack(">i", 77))
    _, problems = verified(root)
    size = places[7] - places[6]
    assert problems == [
        f"{QUEUE_0} 60: entry 3: wrong size of the record at log offset {places[6]}: 77 where it has {size}"
    ]


def test_entries_with_wrong_tags(root: Path, places: list[int]) -> None:
    for number in (3, 4, 5):
        overwrite(queue_file(root), number * 20 + 12, struct.pack(">q", 77))
    _, problems = verified(root)
    assert len(problems) == 1
    assert problems[0].startswith(
        f"{QUEUE_0} 60: entries 3 to 5: wrong code of the tags of records from log offset "
        f"{places[6]} on: 77 where they are "
    )


def test_tags_that_are_an_address_or_a_time(root: Path) -> None:
    overwrite(queue_file(root), 3 * 20 + 12, struct.pack(">q", -(2**63) + 48))
    overwrite(root / "consumequeue/SCHEDULE_TOPIC_XXXX/2" / f"{0:020}", 12, struct.pack(">q", NOW + 1000))
    assert verified(root)[1] == []


def test_an_entry_that_points_to_another_record(root: Path, places: list[int]) -> None:
    entries = bytearray(queue_file(root).read_bytes())
    entries[3 * 20 : 4 * 20] = queue_file(root, 1).read_bytes()[3 * 20 : 4 * 20]
    queue_file(root).write_bytes(entries)
    _, problems = verified(root)
    assert problems == [
        (f"{QUEUE_0} 60: entry 3: it points to {places[7]}, though it belongs to the record at log offset {places[6]}"),
        f"{QUEUE_0} 60: entry 3: at log offset {places[7]} there is message 3 of queue 1 of orders",
    ]


def test_entries_that_go_back(root: Path) -> None:
    entries = bytearray(queue_file(root).read_bytes())
    entries[60:80], entries[80:100] = entries[80:100], entries[60:80]
    queue_file(root).write_bytes(entries)
    _, problems = verified(root)
    assert any("entry 4: it points to" in line and "the record before it ends at" in line for line in problems)


def test_a_hole_in_a_queue(root: Path, places: list[int]) -> None:
    overwrite(queue_file(root), 10 * 20, bytes(5 * 20))
    _, problems = verified(root)
    assert problems == [
        (
            f"{QUEUE_0} 200: entries 10 to 14: empty or missing, though records from log offset {places[20]} on "
            "should have them"
        ),
        f"{QUEUE_0} 200: entry 10: empty, though later entries exist, up to 99",
    ]


def test_a_queue_file_is_missing(root: Path) -> None:
    queue_file(root).unlink()
    _, problems = verified(root)
    assert len(problems) == 1
    assert "entries 0 to 49: empty or missing" in problems[0]


def test_a_queue_is_missing(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "orders" / "1")
    _, problems = verified(root)
    assert len(problems) == 1
    assert problems[0].startswith("consumequeue/orders None: 100 records have no queue")


def index_file(root: Path, number: int = 0) -> Path:
    return sorted((root / "index").iterdir())[number]


ENTRIES_AT = 40 + 32 * 4


@pytest.mark.parametrize(
    ("at", "data", "place", "text"),
    [
        (ENTRIES_AT + 5 * 20, struct.pack(">i", 12345), 5, "has no key with its hash"),
        (ENTRIES_AT + 5 * 20 + 4, struct.pack(">q", 3), 5, "has no keys, or is none"),
        (ENTRIES_AT + 5 * 20 + 4, struct.pack(">q", 2**50), 5, "and the log ends at"),
        (ENTRIES_AT + 5 * 20 + 16, struct.pack(">i", 77), 5, "not 77"),
        (ENTRIES_AT + 5 * 20, struct.pack(">i", -5), 5, "are not valid"),
    ],
)
def test_wrong_index_entries(root: Path, at: int, data: bytes, place: int, text: str) -> None:
    overwrite(index_file(root), at, data)
    _, problems = verified(root)
    where = f"index/{index_file(root).name} {ENTRIES_AT + place * 20}: entry {place}: "
    assert any(line.startswith(where) and text in line for line in problems), problems


def test_a_wrong_slot(root: Path) -> None:
    slots = index_file(root).read_bytes()[40:ENTRIES_AT]
    used = next(at for at in range(0, len(slots), 4) if slots[at + 3] > 1)
    overwrite(index_file(root), 40 + used, struct.pack(">i", 1))
    _, problems = verified(root)
    assert len(problems) == 1
    assert problems[0].startswith(f"index/{index_file(root).name} {40 + used}: slot {used // 4}: the newest entry is")


@pytest.mark.parametrize(("at", "text"), [(16, "should begin"), (24, "should end"), (32, "slots are used")])
def test_a_wrong_index_header(root: Path, at: int, text: str) -> None:
    flip(index_file(root, -1), at + (7 if at < 32 else 3))
    _, problems = verified(root)
    assert any(f"index/{index_file(root, -1).name} {at}: " in line and text in line for line in problems), problems


def test_keys_that_are_not_in_the_index(root: Path) -> None:
    index_file(root, 2).unlink()
    _, problems = verified(root)
    assert len(problems) == 1
    assert re.fullmatch(r"index None: \d+ keys of records that it should have are missing", problems[0])


def test_tags_in_the_index(tmp_path: Path) -> None:
    """Apache's broker 5.5 has them there, too; others do not, and both are right."""
    store = opened(tmp_path / "store")
    (place,) = send(store, message(1))
    store.close(NOW)
    assert verified(tmp_path / "store")[1] == []
    enter_again(tmp_path / "store", place, b"T#tag2")
    _, problems = verified(tmp_path / "store")
    assert len(problems) == 1
    assert problems[0].endswith("has no key with its hash")


def enter_again(root: Path, place: int, *keys: bytes) -> None:
    """As Apache's broker does it with the last record, after a start."""
    overwrite(index_file(root), 24, struct.pack(">q", place))
    aside = RealDisk(root.with_name("aside"))
    index = Index(aside, root / "index", SETTINGS.index_slots, SETTINGS.index_entries, file_time)
    index.load()
    for key in keys:
        assert index.put(b"orders", key, place, NOW) == 1
    index.close()


def test_doubled_index_entries(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with_twice = NewMessage("orders", 0, b"b", b"UNIQ_KEY\1U\2KEYS\1k k\2TAGS\1t\2", NOW, HOST)
    store = opened(root)
    (place,) = send(store, with_twice)
    store.close(NOW)
    report, _ = verified(root)
    assert (report["problems"], report["index_entries"]) == ([], 4), "a record that has a key twice"
    enter_again(root, place, b"U", b"T#t")
    _, problems = verified(root)
    assert [line.partition(": ")[2] for line in problems] == [
        f"entry {number}: the record at log offset {place} has it twice" for number in (5, 6)
    ]


def test_an_index_file_that_is_invalid(root: Path) -> None:
    (root / "index" / "20990101000000000").write_bytes(b"short")
    _, problems = verified(root)
    assert any("index/20990101000000000 0: its 5 bytes are too few" in line for line in problems)


def test_small_files(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{')
    (root / "config" / "consumerOffset.json").write_text("{}")
    overwrite(root / "checkpoint", 0, struct.pack(">q", -5))
    _, problems = verified(root)
    assert len(problems) == 2
    assert problems[0].startswith("config/topics.json None: ")
    assert problems[1].startswith("checkpoint 0: the times")


def test_a_broken_file_with_a_good_backup_is_still_a_problem(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{')
    (root / "config" / "topics.json.bak").write_text('{"topicConfigTable":{"orders":{},"payments":{}}}')
    _, problems = verified(root)
    assert len(problems) == 1
    assert problems[0].startswith("config/topics.json None: ")


def test_a_broken_backup_is_a_problem(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"orders":{},"payments":{}}}')
    (root / "config" / "topics.json.bak").write_text('{"topicConfigTable":{')
    _, problems = verified(root)
    assert len(problems) == 1
    assert problems[0].startswith("config/topics.json.bak None: ")


def test_offsets_that_no_queue_has(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text(
        '{"offsetTable":{"orders@good":{0:3,1:-1},"orders@far":{0:99999},"gone@far":{0:7},"orders@wrong":{0:-7}}}'
    )
    report, problems = verified(root)
    assert problems == ["config/consumerOffset.json None: orders@wrong: offset -7 in queue 0 is not valid"]
    assert "orders@far: offset 99999 in queue 0, which ends at" in notes(report)
    assert "gone@far" not in notes(report)


def test_store_times_that_go_back_are_noted(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "commitlog").mkdir(parents=True)
    log = b""
    for stored_ms in (NOW, NOW - 1, NOW + 1):
        log += encode_record(
            topic="t",
            body=b"b",
            queue_id=0,
            queue_offset=0,
            physical_offset=len(log),
            born_ms=NOW,
            born_host=HOST,
            stored_ms=stored_ms,
            store_host=HOST,
            sys_flag=SysFlag.TRANSACTION_PREPARED,
        )
    (root / SEGMENTS[0]).write_bytes(log + encode_filler(SEGMENT - len(log)).ljust(SEGMENT - len(log), b"\0"))
    report, problems = verified(root)
    assert (problems, report["records"], report["log_end"]) == ([], 3, SEGMENT)
    assert "store times go back 1 times" in notes(report)


def test_problems_for_people(root: Path, places: list[int]) -> None:
    flip(root / SEGMENTS[0], places[3] + 120)
    (root / "abort").write_text("1")
    code, out, _ = run("verify", root)
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("note: abort: ")
    assert lines[1].startswith(f"problem: {SEGMENTS[0]} at {places[3]}: ")
    assert lines[-1] == "2 problems"


def test_any_damage_is_told_and_none_raises(root: Path, places: list[int]) -> None:
    """Bytes at random places of all files: whatever comes of it, there is a report."""
    from random import Random

    random = Random(3)
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.stat().st_size]
    for _ in range(40):
        path = random.choice(paths)
        at = random.randrange(path.stat().st_size)
        overwrite(path, at, random.randbytes(random.choice((1, 8, 40, 600)))[: path.stat().st_size - at])
        verified(root)


# ── inspect ───────────────────────────────────────────────────────────────────────────────────────────────────────


def inspected(root: Path, *arguments: object) -> Any:
    code, out, err = run("inspect", root, *arguments, "--json")
    assert (code, err) == (0, "")
    objects = [json.loads(line) for line in out.splitlines()]
    is_one = not arguments or arguments[0] in ("overview", "checkpoint")
    return objects[0] if is_one else objects


def test_an_overview(sample: Path) -> None:
    before = digests(sample)
    seen = inspected(sample)
    report, _ = verified(sample)
    assert seen["log_end"] == report["log_end"]
    assert (seen["topics"], seen["queues"], seen["index_entries"]) == (3, 4, report["index_entries"])
    assert seen["last_run"] == "ended"
    assert seen["oldest_record"].startswith("2023-11-1")
    assert digests(sample) == before


def test_records_along_the_log(sample: Path, places: list[int]) -> None:
    records = inspected(sample, "records", "--count", 3)
    assert [record["log_offset"] for record in records] == places[:3]
    assert records[0]["properties"] == {"KEYS": "key0 both", "TAGS": "tag0", "UNIQ_KEY": "0" * 32}
    assert records[0]["body"] == "0 " + "x" * 300
    assert (records[1]["topic"], records[1]["queue"], records[1]["offset"]) == ("orders", 1, 0)
    # From a place where no record begins, the next one.
    assert inspected(sample, "records", "--from", places[10] + 1, "--count", 1)[0]["log_offset"] == places[11]


def test_records_of_a_queue(sample: Path, places: list[int]) -> None:
    records = inspected(sample, "records", "--topic", "orders", "--queue", 1, "--from", 60, "--count", 3)
    assert [record["offset"] for record in records] == [60, 61, 62]
    assert [record["log_offset"] for record in records] == [places[121], places[123], places[125]]


def test_records_by_key(sample: Path) -> None:
    (record,) = inspected(sample, "records", "--topic", "orders", "--key", "key77")
    assert record["body"].startswith("77 ")
    assert len(inspected(sample, "records", "--topic", "orders", "--key", "both", "--count", 500)) == 200
    (record,) = inspected(sample, "index", "--topic", "orders", "--key", f"{5:032X}")
    assert record["body"].startswith("5 ")
    assert inspected(sample, "records", "--topic", "orders", "--key", "none") == []


def test_queues(sample: Path) -> None:
    queues = inspected(sample, "queues", "--topic", "orders")
    assert [(queue["queue"], queue["min_offset"], queue["max_offset"], queue["files"]) for queue in queues] == [
        (0, 0, 100, 2),
        (1, 0, 100, 2),
    ]
    assert queues[0]["newest"] > queues[0]["oldest"]
    assert len(inspected(sample, "queues")) == 4


def test_the_offsets_of_queues_follow_the_log(root: Path, places: list[int]) -> None:
    (root / SEGMENTS[0]).unlink()
    first = next(number for number, place in enumerate(places) if place >= SEGMENT)
    queue = inspected(root, "queues", "--topic", "orders", "--queue", first % 2)[0]
    assert queue["min_offset"] == first // 2


def test_index_files(sample: Path) -> None:
    files = inspected(sample, "index")
    assert {file["entries"] for file in files[:-1]} == {124}, "all keys of a record are in one file"
    assert sum(file["entries"] for file in files) == verified(sample)[0]["index_entries"]
    assert files[0]["begin_log_offset"] == 0


def test_a_checkpoint(sample: Path, root: Path) -> None:
    seen = inspected(sample, "checkpoint")
    assert seen["queues_safe_offset"] == verified(sample)[0]["log_end"]
    assert seen["problem"] is None
    (root / "checkpoint").unlink()
    code, _, err = run("inspect", root, "checkpoint")
    assert code == 2
    assert "does not exist" in err


def test_bodies(tmp_path: Path) -> None:
    store = opened(tmp_path / "store")
    packed = NewMessage("t", 0, compress(b"plain " * 50, Compression.ZLIB), b"", NOW, HOST)
    packed.sys_flag = with_compression(0, Compression.ZLIB)
    broken = NewMessage("t", 0, b"\xff\xfe", b"", NOW, HOST, sys_flag=packed.sys_flag)
    send(store, packed, broken)
    store.close(NOW)
    records = inspected(tmp_path / "store", "records")
    assert records[0]["body"] == "plain " * 50
    assert records[1]["body_base64"] == "//4="


@pytest.mark.parametrize("part", ["overview", "records", "queues", "index", "checkpoint"])
def test_tables_for_people(sample: Path, part: str) -> None:
    code, out, err = run("inspect", sample, part, "--count", 5)
    assert (code, err) == (0, "")
    expected = {
        "overview": ["log end", "queues"],
        "records": ["log offset", "orders", "key3 both", "tag1"],
        "queues": ["SCHEDULE_TOPIC_XXXX", "payments", "100"],
        "index": ["slots used", "127"],
        "checkpoint": ["queues safe", "2023-11-1"],
    }[part]
    for word in expected:
        assert word in out
    assert "\x1b[" not in out


def test_nothing_to_show(sample: Path) -> None:
    assert run("inspect", sample, "records", "--topic", "nobody")[1] == "nothing found\n"


def test_options_that_need_others(sample: Path) -> None:
    for options in (["--queue", "1"], ["--key", "k"]):
        code, _, err = run("inspect", sample, "records", *options)
        assert code == 2
        assert "--topic" in err


def test_a_running_store_can_be_inspected(root: Path, running: Store) -> None:
    send(running, message(900, "fresh"))
    (record,) = inspected(root, "records", "--topic", "fresh", "--queue", 0)
    assert record["body"].startswith("900 ")
    assert inspected(root)["last_run"].startswith("not closed")


def test_damaged_records_are_passed_over(root: Path, places: list[int]) -> None:
    flip(root / SEGMENTS[0], places[3] + 120)
    records = inspected(root, "records", "--count", 5)
    assert [record["log_offset"] for record in records] == [*places[:3], *places[4:6]]


# ── The command itself ────────────────────────────────────────────────────────────────────────────────────────────


def test_help_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the store, and no tables, is imported to say what there is."""
    script = (
        "import sys\n"
        "from kourou.cli.main import app\n"
        "heavy = ('kourou.store', 'kourou.protocol', 'rich', 'msgspec')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_bar_on_a_terminal(sample: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from kourou.cli import verifying

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert verifying.verify(sample, None, live=False, as_json=False) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "sound"
    assert "%" in captured.err


def test_progress_is_reported(sample: Path) -> None:
    from kourou.store.offline import StoreFiles
    from kourou.store.verify import Verifier

    steps: list[tuple[str, int, int]] = []
    Verifier(StoreFiles.at(sample), on_progress=lambda *step: steps.append(step)).run()
    assert {what for what, _, _ in steps} == {"queues", "log"}
    assert all(0 <= done <= total for _, done, total in steps)
