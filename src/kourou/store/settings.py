"""The settings of a store, with their names in broker.conf."""

from dataclasses import dataclass
from enum import Enum

from kourou.store.errors import BadSettingError

MIB = 1024 * 1024


class FlushMode(Enum):
    """When a producer is answered: once its message is written, or once it is flushed to disk."""

    ASYNC = "ASYNC_FLUSH"
    SYNC = "SYNC_FLUSH"


DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Defaults are Apache's. Sizes of existing files override these settings."""

    # Files.
    commit_log_file_size: int = 1024 * MIB  # mappedFileSizeCommitLog
    queue_file_entries: int = 300_000  # mappedFileSizeConsumeQueue / 20
    mapped_queues_max: int = 4096  # ours: above it, idle queues are unmapped, see queues.py
    queue_ext_enabled: bool = False  # enableConsumeQueueExt
    queue_ext_file_size: int = 48 * MIB  # mappedFileSizeConsumeQueueExt
    index_enabled: bool = True  # messageIndexEnable
    index_slots: int = 5_000_000  # maxHashSlotNum
    index_entries: int = 20_000_000  # maxIndexNum
    warm_segments: bool = False  # warmMapedFileEnable

    # Limits.
    max_body_size: int = 4 * MIB  # maxMessageSize

    # The limits of one read of a queue: for recent messages, and for those that may have to be read from disk.
    memory_read_count: int = 32  # maxTransferCountOnMessageInMemory
    memory_read_size: int = 256 * 1024  # maxTransferBytesOnMessageInMemory
    disk_read_count: int = 8  # maxTransferCountOnMessageInDisk
    disk_read_size: int = 64 * 1024  # maxTransferBytesOnMessageInDisk
    filter_read_size: int = 16_000  # maxFilterMessageSize: bytes of a queue, 20 per entry, that one read scans

    # Records.
    record_crc: bool = False  # enabledAppendPropCRC: a CRC over the whole record in each, not over the body alone

    # Flush.
    flush_mode: FlushMode = FlushMode.ASYNC  # flushDiskType
    flush_interval_ms: int = 500  # flushIntervalCommitLog
    flush_least_pages: int = 4  # flushCommitLogLeastPages
    flush_thorough_ms: int = 10_000  # flushCommitLogThoroughInterval
    queue_flush_interval_ms: int = 1_000  # flushIntervalConsumeQueue
    queue_flush_least_pages: int = 2  # flushConsumeQueueLeastPages
    queue_flush_thorough_ms: int = 60_000  # flushConsumeQueueThoroughInterval
    sync_flush_timeout_ms: int = 5_000  # syncFlushTimeout
    read_uncommitted: bool = False  # readUnCommitted: under SYNC_FLUSH, readers see messages before they are on disk

    # Retention.
    reserved_hours: int = 72  # fileReservedTime
    delete_when: str = "04"  # deleteWhen
    max_used_ratio: float = 0.75  # diskMaxUsedSpaceRatio
    force_clean_ratio: float = 0.85  # diskSpaceCleanForciblyRatio
    full_ratio: float = 0.90  # diskSpaceWarningLevelRatio
    force_clean_enabled: bool = True  # cleanFileForciblyEnable
    delete_batch: int = 10  # deleteFileBatchMax
    clean_interval_ms: int = 10_000  # cleanResourceInterval

    # Delay levels, which decide when an entry of the schedule topic is due.
    delay_levels: str = DELAY_LEVELS  # messageDelayLevel

    # Timers.
    timer_precision_ms: int = 1_000  # timerPrecisionMs: of a slot of the wheel; delivery is to the millisecond
    timer_log_file_size: int = 100 * MIB  # mappedFileSizeTimerLog
    timer_slots: int = 2 * 7 * 86_400  # Apache's brokers start with no other number

    # Recovery.
    check_crc: bool = True  # checkCRCOnRecover


SMALL = StoreSettings(
    commit_log_file_size=64 * MIB,
    queue_file_entries=50_000,
    index_slots=100_000,
    index_entries=400_000,
    timer_log_file_size=4 * MIB,
)
"""For `kourou run`: files of 64 MiB, 1 MB and 8 MB."""

EMBEDDED = StoreSettings(
    commit_log_file_size=8 * MIB,
    queue_file_entries=10_000,
    index_slots=20_000,
    index_entries=80_000,
    timer_log_file_size=MIB,
)
"""For brokers inside a test process."""


def delay_table(levels: str) -> dict[int, int]:
    """Milliseconds by level, from `1s 5s 1m 2h 1d`. Raises BadSettingError."""
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    try:
        table = {level: int(word[:-1]) * units[word[-1]] for level, word in enumerate(levels.split(), start=1)}
    except (KeyError, ValueError):
        table = {}
    if not table or min(table.values()) < 0:
        raise BadSettingError(f"messageDelayLevel={levels}: times are expected, as in {DELAY_LEVELS[:14]} … 1m 2h 1d")
    return table
