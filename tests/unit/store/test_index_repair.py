"""Damaged index files after a clean stop: they are found, and made again from the log while others are served."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kourou.store import index_repair
from kourou.store.entry_layout import ENTRY_SIZE, HEADER_SIZE, header
from kourou.store.index_repair import ReadKeys
from kourou.testing.disk import SimulatedDisk

from .small import ROOT, SETTINGS, Small, message, new_disk

INDEX = ROOT / "index"
COUNT = 90
FILES = replace(SETTINGS, index_slots=16, index_entries=64)
ENTRIES_AT = HEADER_SIZE + 16 * 4


def filled() -> Small:
    small = Small(settings=FILES)
    small.fill(COUNT)
    small.close()
    return small


def overwrite(disk: SimulatedDisk, path: Path, at: int, data: bytes) -> None:
    content = bytearray(disk.read(path) or b"")
    content[at : at + len(data)] = data
    disk.install(path, bytes(content))


def found(small: Small) -> list[list[bytes]]:
    return [[body[:5] for body in small.by_key(f"k{number}")] for number in range(COUNT)]


ALL = [[b"%05d" % number] for number in range(COUNT)]


def entries(small: Small) -> int:
    """How many entries the files have: a key that is there twice is not seen by a query."""
    return sum(header(small.disk.read(INDEX / name) or b"", 0)[5] - 1 for name in small.names("index"))


@pytest.mark.parametrize("file", [0, 1])
@pytest.mark.parametrize(
    ("at", "size"),
    [
        (0, HEADER_SIZE),
        (0, ENTRIES_AT),
        (HEADER_SIZE, 20),
        (ENTRIES_AT + 5 * ENTRY_SIZE, 60),
        (0, 500),
        (24, 8),
        (36, 4),
    ],
    ids=["the header", "header and slots", "slots", "entries", "the first page", "the end", "the count"],
)
def test_zeroed_bytes_after_a_clean_stop(file: int, at: int, size: int) -> None:
    small = filled()
    names = small.names("index")
    assert len(names) == 2
    overwrite(small.disk, INDEX / names[file], at, bytes(size))
    again = small.again()
    assert again.store.report.hinted
    assert len(again.bodies()) == COUNT, "everybody else is served"
    again.send(message(b"meanwhile", key="meanwhile"))
    again.settle()
    assert (found(again), again.by_key("meanwhile")) == (ALL, [b"meanwhile"])
    again.close()
    last = again.again()
    assert last.store.report.hinted
    assert (found(last), entries(last)) == (ALL, COUNT + 1)


@pytest.mark.parametrize("seed", range(40))
def test_any_damage(seed: int) -> None:
    random = Random(seed)
    small = filled()
    path = INDEX / random.choice(small.names("index"))
    used = ENTRIES_AT + (header(small.disk.read(path) or b"", 0)[5]) * ENTRY_SIZE
    size = random.choice((4, 20, 61, 200))
    at = random.randrange(16, used - size)  # but for the times in the header, which only narrow a search
    overwrite(small.disk, path, at, random.choice((bytes(size), b"\xff" * size)))
    again = small.again()
    again.settle()
    again.settle()
    assert found(again) == ALL
    assert entries(again) == COUNT


@pytest.mark.parametrize("way", ["kill", "crash", "close"])
@pytest.mark.parametrize("steps", range(6))
def test_an_end_amid_a_repair(way: str, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_repair, "RECORDS_MAX", 10)
    small = filled()
    overwrite(small.disk, INDEX / small.names("index")[0], ENTRIES_AT + 100, bytes(100))
    again = small.again()
    for _ in range(steps):
        again.work(100)
    if way == "close":
        again.close()
    after = again.again(again.disk.crash() if way == "crash" else again.disk.kill())
    after.settle()
    after.settle()
    assert (found(after), entries(after)) == (ALL, COUNT)


def test_the_work_is_done_in_slices_and_catches_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_repair, "RECORDS_MAX", 10)
    monkeypatch.setattr(index_repair, "CATCH_UP_BYTES", 1000)
    small = filled()
    overwrite(small.disk, INDEX / small.names("index")[0], 0, bytes(400))
    again = small.again()
    slices = 0
    for number in range(60):
        again.send(message(b"new", key=f"n{number}"))
        for job in again.later(10):
            job.run()
            again.store.finished(job, again.now_ms)
            if isinstance(job, ReadKeys):
                slices += 1
                assert len(job.found) <= 10
    assert slices > COUNT // 10
    assert found(again) == ALL
    assert all(again.by_key(f"n{number}") == [b"new"] for number in range(60))


def test_a_sound_index_stays_as_it_is() -> None:
    small = filled()
    before = {name: small.disk.read(INDEX / name) for name in small.names("index")}
    again = small.again()
    again.send(*(message(b"new", key=f"k{number}") for number in range(3)))
    again.settle()
    assert all(len(again.by_key(f"k{number}")) == 2 for number in range(3))
    first = min(before)
    assert again.disk.read(INDEX / first) == before[first]


def test_a_disk_that_fails_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    small = filled()
    overwrite(small.disk, INDEX / small.names("index")[0], ENTRIES_AT + 100, bytes(100))
    again = small.again()
    again.disk.fail("read", 5, where="*/commitlog/*", times=3)
    again.settle()
    again.settle()
    assert found(again) == ALL
    assert caplog.text.count("can't be checked or rebuilt yet") == 1


def test_our_start_without_a_hint_enters_nothing_twice() -> None:
    small = filled()
    small.disk.lose(ROOT / "kourou-clean.json")
    again = small.again()
    assert not again.store.report.hinted
    assert (found(again), entries(again)) == (ALL, COUNT)


def test_queries_miss_nothing_while_a_file_that_could_not_be_synced_is_written_again() -> None:
    """Its pages are in memory: there is no reason to make it again from the log."""
    small = Small(settings=FILES)
    small.fill(COUNT)
    before = small.names("index")
    small.disk.fail("sync", where="*/index/*", times=5)
    for _ in range(40):
        small.work(2_000)
        assert found(small) == ALL
    assert small.names("index") == before
    for image in small.disk.crash_images(5):
        assert found(small.again(image)) == ALL
    small.close()
    assert small.again().store.report.hinted


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [50, 512, 1 << 20])
def test_a_file_is_written_again_in_steps(size: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps cover header, slots and the entries since the last sync, whatever their size is."""
    monkeypatch.setattr("kourou.store.index_file.REWRITE_STEP", size)
    small = Small(new_disk(seed), replace(FILES, index_entries=512))
    small.fill(30)
    small.store.flush(small.now_ms)
    for number in range(30, COUNT):
        small.send(message(b"%05d" % number, key=f"k{number}"))
    small.disk.fail("sync", where="*/index/*")
    small.work(70_000)
    for _ in range(100):
        small.work(1_000)
    (name,) = small.names("index")
    for image in small.disk.crash_images(10):  # what is on the disk, before any recovery makes up for it
        assert image.read(INDEX / name) == small.disk.read(INDEX / name)
        assert found(small.again(image)) == ALL
