"""Commit-log files are read completely, however they are divided, and damage is reported once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from kourou.protocol.record import encode_filler
from kourou.spark import log_files
from kourou.spark.columns import CORRUPT
from kourou.spark.errors import DataLossError, OptionError
from kourou.spark.log_files import LogFile, Split, cut, find_files, log_end, plan
from kourou.spark.rows import REPORT, SKIP, make_rows
from kourou.spark.selection import EVERYTHING, Selection
from kourou.spark.split_reader import scan

from .records import BORN_MS, log, record

SEGMENT = 4096


def write_store(root: Path, records: Sequence[dict[str, Any]], segment: int = SEGMENT, spare: int = 1) -> list[int]:
    """Files as brokers write them; where each record stands."""
    folder = root / "commitlog"
    folder.mkdir(parents=True)
    files, content, places, start = 0, bytearray(), [], 0
    for number, given_ in enumerate(records):
        made = record(number, at=start + len(content), **given_)
        if len(content) + len(made) + 8 > segment:
            content += encode_filler(segment - len(content))
            (folder / f"{start:020}").write_bytes(bytes(content).ljust(segment, b"\0"))
            start += segment
            content = bytearray()
            made = record(number, at=start, **given_)
        places.append(start + len(content))
        content += made
    (folder / f"{start:020}").write_bytes(bytes(content).ljust(segment, b"\0"))
    for files in range(spare):
        (folder / f"{start + segment * (files + 1):020}").write_bytes(bytes(segment))
    return places


def read(root: Path, split_size: int = 1000, selection: Selection = EVERYTHING, **given_: Any) -> list[dict[str, Any]]:
    splits = plan(find_files([str(root)]), selection, split_size)
    return [row for split in splits for row in read_split(split, selection, **given_)]


def read_split(split: Split, selection: Selection = EVERYTHING, **given_: Any) -> list[dict[str, Any]]:
    columns = ("queue_offset", "commit_log_offset", "store_size", CORRUPT)
    batches = scan(split, make_rows(columns, selection=selection, rows_max=7, **given_))
    return [row for batch in batches for row in batch.to_pylist()]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["queue_offset"] for row in rows if row["queue_offset"] is not None]


@pytest.mark.parametrize("split_size", [100, 137, 1000, 4096, 10**6])
def test_every_record_once(tmp_path: Path, split_size: int) -> None:
    places = write_store(tmp_path, [{"body": bytes(n % 700)} for n in range(100)])
    rows = read(tmp_path, split_size)
    assert numbers(rows) == list(range(100))
    assert [row["commit_log_offset"] for row in rows] == places


def test_the_log_folder_itself_may_be_given(tmp_path: Path) -> None:
    write_store(tmp_path, [{}] * 3)
    assert numbers(read(tmp_path / "commitlog")) == [0, 1, 2]


def test_records_larger_than_a_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kourou.spark.split_reader.CHUNK", 300)
    monkeypatch.setattr(log_files, "CHUNK", 300)
    monkeypatch.setattr(log_files, "LOOK", 200)
    write_store(tmp_path, [{"body": bytes(n * 40)} for n in range(60)], segment=16384)
    for split_size in (500, 16384):
        assert numbers(read(tmp_path, split_size)) == list(range(60))


def test_a_store_without_a_message(tmp_path: Path) -> None:
    write_store(tmp_path, [])
    assert read(tmp_path) == []


def test_the_same_part_twice_is_refused(tmp_path: Path) -> None:
    for name in "ab":
        write_store(tmp_path / name, [{}])
    with pytest.raises(OptionError, match="same part of a log"):
        find_files([str(tmp_path / "a"), str(tmp_path / "b")])


def test_a_log_in_several_folders(tmp_path: Path) -> None:
    write_store(tmp_path, [{"body": bytes(1000)}] * 9, spare=0)
    (tmp_path / "other").mkdir()
    for path in sorted((tmp_path / "commitlog").iterdir())[::2]:
        path.rename(tmp_path / "other" / path.name)
    found = find_files([str(tmp_path / "commitlog"), str(tmp_path / "other")])
    assert [file.start for file in found] == [0, SEGMENT, 2 * SEGMENT]


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_folders_without_a_log(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(OptionError, match=folder):
        find_files([str(tmp_path / folder)])


def test_files_outside_the_time_are_not_read(tmp_path: Path) -> None:
    hour = 3_600_000
    write_store(tmp_path, [{"body": bytes(800), "stored_ms": BORN_MS + n * hour} for n in range(40)])
    selection = Selection(stored_from_ms=BORN_MS + 20 * hour, stored_to_ms=BORN_MS + 22 * hour)
    splits = plan(find_files([str(tmp_path)]), selection, SEGMENT)
    assert len(splits) <= 2
    assert numbers(read(tmp_path, SEGMENT, selection)) == [20, 21]


def damaged(root: Path, at: int, with_: bytes) -> None:
    path = root / "commitlog" / f"{at - at % SEGMENT:020}"
    content = bytearray(path.read_bytes())
    content[at % SEGMENT : at % SEGMENT + len(with_)] = with_
    path.write_bytes(content)


@pytest.mark.parametrize("split_size", [100, 333, 4096])
@pytest.mark.parametrize("victim", [0, 5, 20, 39])
@pytest.mark.parametrize("what", [bytes(20), b"\xff" * 20, b"\x7f\xff\xff\xff", b"\0\0\0\x10"])
def test_damage_is_told_once(tmp_path: Path, victim: int, split_size: int, what: bytes) -> None:
    """A head overwritten by zeros, by noise, by a size far too large and one too small."""
    places = write_store(tmp_path, [{"body": bytes(200)}] * 60)
    damaged(tmp_path, places[victim], what)
    rows = read(tmp_path, split_size, on_damage=REPORT)
    assert numbers(rows) == [n for n in range(60) if n != victim]
    [told] = [row for row in rows if row[CORRUPT]]
    assert told["commit_log_offset"] == places[victim]
    assert numbers(read(tmp_path, split_size, on_damage=SKIP)) == numbers(rows)
    with pytest.raises(DataLossError, match=f"offset {places[victim]}"):
        read(tmp_path, split_size)


def test_a_changed_body_is_found_by_its_crc(tmp_path: Path) -> None:
    places = write_store(tmp_path, [{}] * 30)
    damaged(tmp_path, places[11] + 90, b"XX")
    assert numbers(read(tmp_path)) == list(range(30))
    rows = read(tmp_path, verify=True, on_damage=REPORT)
    assert [row["queue_offset"] for row in rows if row[CORRUPT]] == [11]


def test_an_unfinished_record_at_the_end_is_not_damage(tmp_path: Path) -> None:
    places = write_store(tmp_path, [{}] * 5)
    damaged(tmp_path, places[-1] + 80, bytes(200))
    assert numbers(read(tmp_path)) == [0, 1, 2, 3]


def test_what_a_recovery_cut_off_is_not_read(tmp_path: Path) -> None:
    """New records over old ones: behind the last stands the rest of an old one, and more old ones."""
    old = log(20)
    new = log(5, stored_ms=BORN_MS + 10**6, body=b"new and a little longer")
    folder = tmp_path / "commitlog"
    folder.mkdir()
    (folder / f"{0:020}").write_bytes((new + old[len(new) :]).ljust(SEGMENT, b"\0"))
    for split_size in (100, SEGMENT):
        assert numbers(read(tmp_path, split_size)) == list(range(5))


def test_a_log_that_grows_meanwhile(tmp_path: Path) -> None:
    write_store(tmp_path, [{}] * 5)
    splits = plan(find_files([str(tmp_path)]), EVERYTHING, 200)
    path = tmp_path / "commitlog" / f"{0:020}"
    path.write_bytes(log(9).ljust(SEGMENT, b"\0"))
    assert numbers([row for split in splits for row in read_split(split)]) == list(range(5))


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    write_store(tmp_path, [{}])
    [split] = plan(find_files([str(tmp_path)]), EVERYTHING, SEGMENT)
    Path(split.file.path).unlink()
    with pytest.raises(DataLossError, match="can no longer be read"):
        list(scan(split, make_rows(("body",))))


def test_a_record_inside_a_body_is_not_a_record(tmp_path: Path) -> None:
    write_store(tmp_path, [{"body": record(77, at=123)}] * 20)
    for split_size in (50, 100):
        assert numbers(read(tmp_path, split_size)) == list(range(20))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 1500), max_size=40), st.integers(64, 5000), st.data())
def test_any_sizes_and_any_damage(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], split_size: int, data: st.DataObject
) -> None:
    """Rows and reported damage do not depend on how the log is divided."""
    root = tmp_path_factory.mktemp("store")
    places = write_store(root, [{"body": bytes([n % 251]) * size} for n, size in enumerate(sizes)])
    if places:
        at = data.draw(st.integers(0, places[-1] + 90))
        noise = data.draw(st.binary(min_size=1, max_size=40))
        damaged(root, at, noise[: SEGMENT - at % SEGMENT])
    whole = read(root, 10**9, on_damage=REPORT)
    assert read(root, split_size, on_damage=REPORT) == whole
    assert {row["commit_log_offset"] for row in whole if not row[CORRUPT]} <= set(places)


def test_cutting() -> None:
    file = LogFile("f", 1000, 2000)
    assert [(s.start, s.end) for s in cut(file, 300)] == [(1000, 1333), (1333, 1666), (1666, 2000)]
    assert [(s.start, s.end) for s in cut(file, 10**6)] == [(1000, 2000)]
    assert cut(LogFile("f", 5, 5), 10) == []


def test_the_end_of_a_full_file(tmp_path: Path) -> None:
    write_store(tmp_path, [{"body": bytes(1000)}] * 4, spare=0)
    first, _ = find_files([str(tmp_path)])
    assert SEGMENT - 1500 < log_end(first) < SEGMENT
