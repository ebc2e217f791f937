"""Clocks, and values derived from local time: names of index files, unique ids of messages."""

import ipaddress
import os
import secrets
import time

from kourou.protocol.ids import UniqueIds


class SteadyClock:
    """Milliseconds that never jump: they start at the time of day, and follow the monotonic clock."""

    def __init__(self) -> None:
        self._start_ms = time.time_ns() // 1_000_000 - time.monotonic_ns() // 1_000_000

    def now_ms(self) -> int:
        return self._start_ms + time.monotonic_ns() // 1_000_000

    def read(self) -> tuple[int, int]:
        """The time, and by how much the time of day is ahead of it."""
        now_ms = self._start_ms + time.monotonic_ns() // 1_000_000
        return now_ms, time.time_ns() // 1_000_000 - now_ms


def file_time(time_ms: int) -> str:
    """Local time in the form of names of index files: yyyyMMddHHmmssSSS."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime(time_ms / 1000)) + f"{time_ms % 1000:03d}"


class UniqueIdClock:
    """Ids for messages whose producers did not assign one."""

    def __init__(self, ip: str) -> None:
        try:
            packed = ipaddress.ip_address(ip).packed
        except ValueError:
            packed = bytes(4)
        self._ids = UniqueIds(packed, os.getpid(), secrets.randbits(32))
        self._month_ms = 0
        self._month_ends_ms = 0

    def __call__(self, now_ms: int) -> str:
        if not self._month_ms <= now_ms < self._month_ends_ms:
            now = time.localtime(now_ms / 1000)
            self._month_ms = _month_ms(now.tm_year, now.tm_mon)
            self._month_ends_ms = _month_ms(now.tm_year, now.tm_mon + 1)
        return self._ids.next(now_ms, self._month_ms)


def _month_ms(year: int, month: int) -> int:
    """When a month begins in local time; the thirteenth is the next year's first."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1)) * 1000)
