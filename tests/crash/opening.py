"""How the processes of these tests open a store."""

import time
from datetime import UTC, datetime
from pathlib import Path

from kourou.store.disk import RealDisk
from kourou.store.paths import Paths
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store

from .letters import HOST

KIB = 1024


class RoomyDisk(RealDisk):
    """Never too full by its own account: only what does not fit is refused."""

    def used_ratio(self, folder: Path) -> float:
        return 0.0


def settings(mode: str = "async", segment_kib: int = 256) -> StoreSettings:
    return StoreSettings(
        commit_log_file_size=segment_kib * KIB,
        queue_file_entries=500,
        index_slots=500,
        index_entries=2_000,
        flush_mode=FlushMode.SYNC if mode == "sync" else FlushMode.ASYNC,
        queue_flush_interval_ms=50,
        queue_flush_least_pages=1,
        flush_interval_ms=50,
        force_clean_enabled=False,
    )


def open_store(root: Path, config: StoreSettings, *, roomy: bool = True) -> Store:
    disk = RoomyDisk(Paths(root.absolute()).aside) if roomy else None
    return Store.open(root, config, store_host=HOST, now_ms=now_ms(), file_time=file_time, disk=disk)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]
