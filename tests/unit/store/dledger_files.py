"""Stores in DLedger's layout, as an Apache broker writes them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kourou.protocol.record import encode_record
from kourou.store.dledger import ENTRY, ENTRY_HEAD, UNIT
from kourou.testing.disk import SimulatedDisk

from .small import BEGIN_MS, HOST, SEGMENT

INDEX_SIZE = 64 * UNIT.size


@dataclass
class Written:
    """A log of entries, in memory."""

    start: int = 0
    term: int = 3
    size: int = SEGMENT
    at: int = 0
    begin_ms: int = BEGIN_MS
    index: int = 0
    segments: dict[int, bytearray] = field(default_factory=dict)
    units: list[bytes] = field(default_factory=list)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = self.start

    def add(
        self,
        body: bytes,
        topic: str = "orders",
        queue_id: int = 0,
        *,
        sys_flag: int = 0,
        prepared: int = 0,
        key: str = "",
    ) -> int:
        """Append an entry: the log offset of its record."""
        number = self.ends.get((topic, queue_id), 0)
        self.ends[topic, queue_id] = number + 1

        def encoded(offset: int) -> bytes:
            return encode_record(
                topic=topic,
                body=body,
                raw_properties=f"UNIQ_KEY\1{self.index:032X}\2KEYS\1{key or f'k{self.index}'}\2".encode(),
                queue_id=queue_id,
                queue_offset=number,
                physical_offset=offset,
                born_ms=BEGIN_MS,
                born_host=HOST,
                stored_ms=self.begin_ms + self.index,
                store_host=HOST,
                sys_flag=sys_flag,
                prepared_offset=prepared,
            )

        size = len(encoded(0)) + ENTRY_HEAD
        left = self.size - self.at % self.size
        if size + 8 > left:
            struct.pack_into(">ii", self._segment(), self.at % self.size, -1, left)
            self.at += left
        record = encoded(self.at + ENTRY_HEAD)
        head = ENTRY.pack(1, size, self.index, self.term, self.at, 0, 0, 0, len(record))
        self._segment()[self.at % self.size : self.at % self.size + size] = head + record
        self.units.append(UNIT.pack(1, self.at, size, self.index, self.term))
        self.index += 1
        self.at += size
        self.offsets.append(self.at - len(record))
        return self.offsets[-1]

    def _segment(self) -> bytearray:
        return self.segments.setdefault(self.at - self.at % self.size, bytearray(self.size))

    def install(self, disk: SimulatedDisk, root: Path, *, committed: int | None = None, member: str = "n0") -> Path:
        """Put the files there."""
        folder = root / f"dledger-{member}"
        for base, data in self.segments.items():
            disk.install(folder / "data" / f"{base:020}", bytes(data))
        units = b"".join(self.units)
        for at in range(0, max(len(units), 1), INDEX_SIZE):
            disk.install(folder / "index" / f"{at:020}", units[at : at + INDEX_SIZE].ljust(INDEX_SIZE, b"\0"))
        last = self.index - 1 if committed is None else committed
        disk.install(folder / "checkpoint", b"committedIndex=%d\nendIndex=%d\n" % (last, self.index - 1))
        disk.install(folder / "currterm", b"voteLeader=n0\ncurrTerm=%d\n" % self.term)
        return folder


def numbered(count: int, size: int = 300) -> Sequence[bytes]:
    return [b"%05d" % number + bytes(size) for number in range(count)]
