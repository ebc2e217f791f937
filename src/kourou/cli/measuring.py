"""Measuring for `kourou bench`: latencies in a histogram of fixed size, and the CPU time of processes."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

SUB_BUCKETS = 64
"""Buckets between two powers of two: latencies are exact to 1.6 percent."""

LISTENING = "0A"


class Histogram:
    """Latencies in ns. Its size does not depend on their number."""

    __slots__ = ("_counts", "count", "highest")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.highest = 0

    def add(self, latency_ns: int) -> None:
        value = max(latency_ns, 0)
        shift = max(value.bit_length() - SUB_BUCKETS.bit_length(), 0)
        bucket = shift * SUB_BUCKETS * 2 + (value >> shift)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.highest = max(self.highest, value)

    def at(self, share: float) -> int:
        """The latency that this share of all latencies does not exceed; 0 if there are none."""
        wanted = share * self.count
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= wanted:
                shift, value = divmod(bucket, SUB_BUCKETS * 2)
                return int(min((((value + 1) << shift) - 1), self.highest))
        return 0

    def figures(self, prefix: str) -> dict[str, object]:
        """Milliseconds, by name."""
        shares = {"P50": 0.5, "P90": 0.9, "P99": 0.99, "P999": 0.999}
        found: dict[str, object] = {f"{prefix}{name}Ms": self.at(share) / 1e6 for name, share in shares.items()}
        return {**found, f"{prefix}MaxMs": self.highest / 1e6}


# ── CPU time ────────────────────────────────────────────────────────────────────────────────────────────────────────


def cpu_ns(pid: int) -> int:
    """The CPU time that a process has used. Raises OSError if it does not exist."""
    return time.clock_gettime_ns(((~pid) << 3) | 2)  # the CPU clock of a process: see clock_getcpuclockid(3)


def listening_pid(port: int) -> int | None:
    """The local process that listens on a port; None if there is none, or it belongs to another user."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    if not sockets:
        return None
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and _has_one_of(folder / "fd", sockets):
            return int(folder.name)
    return None


def _listening_inodes(port: int) -> Iterable[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if words[3] == LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def _has_one_of(folder: Path, sockets: set[str]) -> bool:
    try:
        return any(os.readlink(one) in sockets for one in folder.iterdir())
    except OSError:
        return False  # it has ended, or belongs to another user


def is_local(host: str) -> bool:
    """Whether an address belongs to this machine: only those can be bound."""
    import socket

    try:
        family, kind, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True
