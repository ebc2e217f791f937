"""Damaged queue files after a clean stop: they are found, and made again from the log while others are served."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kourou.store import log_walk, queue_repair
from kourou.store.queue_repair import SearchLog
from kourou.store.reading import GetStatus
from kourou.testing.disk import SimulatedDisk

from .small import LOG, ROOT, SETTINGS, Small, message

QUEUE = ROOT / "consumequeue" / "orders" / "0"
COUNT = 57
WIDE = replace(SETTINGS, queue_file_entries=20)


def filled() -> Small:
    """A store with two queues that is closed."""
    small = Small(settings=WIDE)
    for number in range(COUNT):
        small.now_ms += 1
        tags = b"TAGS\1t%d\2" % (number % 3)
        small.send(message(b"%05d" % number + bytes(200), key=f"k{number}", properties=tags))
        small.send(message(b"%05d" % number, "others"))
    small.close()
    return small


def queue_files(disk: SimulatedDisk, folder: Path = QUEUE) -> dict[str, bytes]:
    return {name: disk.read(folder / name) or b"" for name in disk.files(folder)}


def overwrite(disk: SimulatedDisk, path: Path, at: int, data: bytes) -> None:
    content = bytearray(disk.read(path) or b"")
    content[at : at + len(data)] = data
    disk.install(path, bytes(content))


def read_all(small: Small, topic: str = "orders") -> list[int]:
    """As a consumer that comes back while entries are missing."""
    found: list[bytes] = []
    for _ in range(20):
        found += small.bodies(topic, offset=len(found))
        small.settle()
    return [int(body[:5]) for body in found]


@pytest.mark.parametrize(
    ("first", "count"),
    [(5, 3), (0, 4), (20, 20), (15, 12), (COUNT - 6, 6), (0, COUNT), (COUNT - 1, 1), (19, 2)],
    ids=["amid", "at the start", "a file", "over two files", "at the end", "all", "the last", "at a boundary"],
)
def test_zeroed_entries_after_a_clean_stop(first: int, count: int) -> None:
    small = filled()
    whole = queue_files(small.disk)
    for number in range(first, first + count):
        overwrite(small.disk, QUEUE / f"{number // 20 * 400:020}", number % 20 * 20, bytes(20))
    again = small.again()
    assert again.store.report.hinted
    assert read_all(again, "others") == list(range(COUNT)), "nobody else notices"
    assert read_all(again) == list(range(COUNT))
    (appended,) = again.send(message(b"%05d" % COUNT))
    assert appended.queue_offset == COUNT, "no place is given out twice"
    again.store.truncate(appended.physical_offset, again.now_ms)
    again.close()
    assert queue_files(again.disk) == whole


def test_a_zeroed_end_gives_no_place_out_twice() -> None:
    small = filled()
    overwrite(small.disk, QUEUE / f"{40 * 20:020}", 0, bytes(400))
    again = small.again()
    (appended,) = again.send(message(b"%05d" % COUNT))
    assert appended.queue_offset == COUNT
    assert read_all(again) == list(range(COUNT + 1))


@pytest.mark.parametrize("seed", range(30))
def test_any_damage(seed: int) -> None:
    """Bytes of any value, anywhere in the files of a queue: every message is read, once and in order."""
    random = Random(seed)
    small = filled()
    whole = queue_files(small.disk)
    for _ in range(random.randint(1, 3)):
        path = QUEUE / random.choice(sorted(whole))
        size = random.choice((1, 2, 8, 20, 61, 200))
        used = 400 if path.name != f"{800:020}" else COUNT % 20 * 20
        at = random.randrange(used - size)
        overwrite(small.disk, path, at, random.choice((bytes(size), random.randbytes(size), b"\xff" * size)))
    again = small.again()
    assert read_all(again) == list(range(COUNT))


def test_a_file_that_is_missing_is_made_again() -> None:
    small = filled()
    small.disk.lose(QUEUE / f"{40 * 20:020}")
    again = small.again()
    assert read_all(again) == list(range(COUNT))


def test_a_stop_amid_a_repair() -> None:
    small = filled()
    overwrite(small.disk, QUEUE / f"{40 * 20:020}", 0, bytes(400))
    for _ in range(2):
        small = small.again()
        assert len(small.bodies()) == 40
        small.close()
    assert read_all(small.again()) == list(range(COUNT))


@pytest.mark.parametrize("way", ["kill", "crash"])
def test_a_crash_amid_a_repair(way: str) -> None:
    small = filled()
    overwrite(small.disk, QUEUE / f"{20 * 20:020}", 0, bytes(400))
    again = small.again()
    assert len(again.bodies()) == 20
    for job in again.later():
        job.run()
        again.store.finished(job, again.now_ms)
    survivor = again.again(again.disk.kill() if way == "kill" else again.disk.crash())
    assert read_all(survivor) == list(range(COUNT))


def test_a_record_that_is_lost_in_the_log_too_is_passed_over() -> None:
    small = filled()
    place = int.from_bytes((small.disk.read(QUEUE / f"{0:020}") or b"")[7 * 20 : 7 * 20 + 8])
    overwrite(small.disk, LOG / f"{place - place % 8192:020}", place % 8192, b"\xff" * 20)
    overwrite(small.disk, QUEUE / f"{0:020}", 6 * 20, bytes(60))
    again = small.again()
    found: list[int] = []
    offset = 0
    while offset < COUNT:
        result = again.store.reader.get("orders", 0, offset, 32)
        found += [int(bytes(record[88:93])) for record in result.records]
        offset = result.next_offset
        again.settle()
    assert found == [number for number in range(COUNT) if number != 7]


def test_the_work_is_done_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_repair, "SLICE_BYTES", 3000)
    monkeypatch.setattr(queue_repair, "ENTRIES_MAX", 5)
    monkeypatch.setattr(log_walk, "CHUNK", 500)
    small = filled()
    for name in queue_files(small.disk):
        overwrite(small.disk, QUEUE / name, 0, bytes(400))
    again = small.again()
    assert again.store.reader.get("orders", 0, 0, 32).status is GetStatus.OFFSET_FOUND_NULL
    slices = 0
    while jobs := [job for job in again.later(10) if isinstance(job, SearchLog)]:
        for job in jobs:
            job.run()
            assert len(job.found) <= 5
            again.store.finished(job, again.now_ms)
            slices += 1
    assert slices > 10
    assert again.store.take_repaired() == [("orders", 0)]
    assert read_all(again) == list(range(COUNT))


def test_a_disk_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    small = filled()
    overwrite(small.disk, QUEUE / f"{0:020}", 100, bytes(100))
    again = small.again()
    assert len(again.bodies()) == 5
    again.disk.fail("read", 5, where="*/commitlog/*", times=3)
    assert read_all(again) == list(range(COUNT))
    assert caplog.text.count("can't be repaired yet") == 1


def test_a_queue_that_is_removed_meanwhile() -> None:
    small = filled()
    overwrite(small.disk, QUEUE / f"{0:020}", 100, bytes(100))
    again = small.again()
    again.bodies()
    (job,) = [job for job in again.later() if isinstance(job, SearchLog)]
    again.store.remove_topic("orders")
    job.run()
    again.store.finished(job, again.now_ms)
    again.send(message(b"00000"))
    assert read_all(again) == [0]


def test_files_with_damaged_ends_do_not_expire() -> None:
    """The last entry of a file says when it may go; an empty one says nothing."""
    small = filled()
    overwrite(small.disk, QUEUE / f"{0:020}", 380, bytes(20))
    again = small.again()
    queue = again.store.queues.ensure("orders", 0)
    place = again.store.queues.ensure("others", 0).entry(2)[0]
    assert queue.expire(place) == 0
    assert (queue.start, queue.first) == (3, 0)
