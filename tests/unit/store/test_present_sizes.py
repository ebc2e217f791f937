"""A store goes on with files of the sizes that are there, whatever the settings say."""

from dataclasses import replace
from pathlib import Path

import pytest

from kourou.protocol.hosts import encode_host
from kourou.store.commit_log import NewMessage
from kourou.store.errors import BadStoreError
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

HOST = encode_host("127.0.0.1:10911")
FIRST = StoreSettings(commit_log_file_size=64 << 10, queue_file_entries=50, index_slots=25, index_entries=100)
LATER = StoreSettings(commit_log_file_size=1 << 20, queue_file_entries=1000, index_slots=1000, index_entries=4000)


def fill(root: Path, settings: StoreSettings, now_ms: int) -> None:
    """Enough for several files of each kind, in the sizes of FIRST."""
    store = Store.open(root, settings, store_host=HOST, now_ms=now_ms, file_time=lambda ms: f"{ms:017}")
    for number in range(500):
        properties = f"KEYS\x01{now_ms}-{number}\x02".encode()
        store.append([NewMessage("t", 0, b"x" * 200, properties, now_ms, HOST)], now_ms + number)
    store.close(now_ms + 1000)


def sizes(root: Path, folder: str) -> set[int]:
    return {file.stat().st_size for file in (root / folder).rglob("0*") if file.is_file()}


def test_all_files_keep_their_sizes(tmp_path: Path) -> None:
    fill(tmp_path, FIRST, 1_000_000)
    before = {folder: sizes(tmp_path, folder) for folder in ("commitlog", "consumequeue", "index")}
    fill(tmp_path, LATER, 2_000_000)
    assert before == {"commitlog": {64 << 10}, "consumequeue": {1000}, "index": {40 + 25 * 4 + 100 * 20}}
    assert {folder: sizes(tmp_path, folder) for folder in before} == before


def test_index_of_unusual_proportion_is_not_guessed(tmp_path: Path) -> None:
    fill(tmp_path, replace(FIRST, index_slots=26), 1_000_000)
    with pytest.raises(BadStoreError, match="was not created with 1000 slots"):
        fill(tmp_path, LATER, 2_000_000)
