# cython: annotation_typing=False
"""Verifies an index file: its chains, its slots, and the keys of the records that it points to.

A slot has its newest entry; each entry has the number of the previously newest one. So one pass over the entries in
order, with the newest entry of each slot, determines what every link must be.
"""

import sys
from array import array
from collections.abc import Callable, Iterator
from typing import Final

from kourou.protocol.hashes import index_hash
from kourou.protocol.record import Found, Scanner
from kourou.store import entry_layout
from kourou.store.index_file import HEADER_SIZE, SLOT_SIZE
from kourou.store.offline import IndexView, LogFiles
from kourou.store.queue_entries import ENTRY_SIZE

PROGRESS_STEP: Final = 4096

# Under names that verify_index.pxd declares as C constants.
_STEP = PROGRESS_STEP
_ENTRY = ENTRY_SIZE
_NOT_ASCII = entry_layout.NOT_ASCII

Trouble = tuple[int, str, bool]
"""The position in the file, the text, and whether it is a problem."""

Say = Callable[[int, str, bool], None]
"""Called with a problem."""


class IndexCheck:
    """Checks the files of one index, one after the other."""

    def __init__(self, log: LogFiles, log_start: int, log_end: int, lenient: bool) -> None:
        self._log = log
        self._log_start = log_start
        self._log_end = log_end
        self._lenient = lenient
        self.entries = 0
        self.in_log = 0  # entries for keys of existing records
        self._known = -1  # the record whose hashes are loaded
        self._hashes: list[int] = []  # of its keys
        self._entered: list[int] = []  # of its entries so far; they may begin in the previous file

    def run(self, view: IndexView, say: Say, progress: Callable[[str, int, int], None]) -> None:
        """Report the problems of a file."""
        if view.problem is not None:
            say(0, view.problem, True)
            return
        data, count, entries_at, slot_count = view.view, view.count, view.entries_at, view.slot_count
        slots = array("i", bytes(slot_count * SLOT_SIZE))
        newest = memoryview(slots)
        last_physical, used = -1, 0
        for number in range(1, count):
            if number % _STEP == 0:
                progress(f"index {view.path.name}", number, count)
            at = entries_at + number * _ENTRY
            hash_, physical, seconds, before = entry_layout.index_entry(data, at)
            if hash_ < 0 or physical < 0 or seconds < 0:
                say(at, f"entry {number}: hash {hash_}, log offset {physical}, {seconds} s are not valid", True)
                continue
            slot = hash_ % slot_count
            if newest[slot] == 0:
                used += 1
            if before != newest[slot]:
                say(at, f"entry {number}: the previous entry of its slot is {newest[slot]}, not {before}", True)
            newest[slot] = number
            if physical < last_physical:
                say(at, f"entry {number}: log offset {physical} after {last_physical}", True)
            last_physical = physical
            if physical >= self._log_start:
                if physical != self._known:
                    self._known = physical
                    self._hashes = self._hashes_at(physical)
                    self._entered = []
                wanted = self._hashes.count(hash_) if hash_ in self._hashes else hash_ == self._tags_hash_at(physical)
                if not wanted:
                    say(*self._wrong_record(number, at, physical))
                elif self._entered.count(hash_) >= wanted:
                    say(at, f"entry {number}: the record at log offset {physical} has it twice", True)
                else:
                    self._entered.append(hash_)
                    self.in_log += hash_ in self._hashes
        self.entries += count - 1
        for trouble in self._check_header(view, last_physical, used):
            say(*trouble)
        for trouble in self._check_slots(view, slots):
            say(*trouble)

    def _wrong_record(self, number: int, at: int, physical: int) -> Trouble:
        if physical >= self._log_end:
            return at, f"entry {number}: log offset {physical}, and the log ends at {self._log_end}", not self._lenient
        what = "has no key with its hash" if self._hashes else "has no keys, or is none"
        return at, f"entry {number}: the record at log offset {physical} {what}", True

    def _hashes_at(self, physical: int) -> list[int]:
        scanner = self._log.scanner(physical, crc=False) if physical < self._log_end else None
        return self._key_hashes(scanner) if scanner is not None and scanner.step() == Found.RECORD else []

    def _tags_hash_at(self, physical: int) -> int:
        """Since 5.5, Apache's broker also indexes the tags of a record, as a key with the prefix `T#`."""
        scanner = self._log.scanner(physical, crc=False) if physical < self._log_end else None
        if scanner is None or scanner.step() != Found.RECORD:
            return -1
        message = scanner.message()
        return index_hash(f"{message.topic}#T#{message.properties.get('TAGS', '')}")

    def _key_hashes(self, scanner: Scanner) -> list[int]:
        """The hashes of all keys of a scanner's current record."""
        scanner.find_keys()
        topic = scanner.topic
        keys = scanner.keys.split(b" ") if scanner.keys_size else []
        if scanner.unique_key_size:
            keys.append(scanner.unique_key)
        return [key_hash(topic, key) for key in keys if key]

    def _check_header(self, view: IndexView, last_physical: int, used: int) -> Iterator[Trouble]:
        # One more than the last offset says that all keys of that record are added. Apache's broker writes the offset.
        if view.count > 1 and view.end_physical not in (last_physical, last_physical + 1):
            yield 24, f"it should end with log offset {last_physical}, not {view.end_physical}", not self._lenient
        if view.count > 1 and view.begin_physical != view.entry(1)[1]:
            yield 16, f"it should begin with log offset {view.entry(1)[1]}, not {view.begin_physical}", True
        if view.begin_ms > view.end_ms:
            yield 0, f"it begins at {view.begin_ms} ms and ends at {view.end_ms}", True
        if view.slots_used != used:
            yield 32, f"{used} slots are used, not {view.slots_used}", not self._lenient

    def _check_slots(self, view: IndexView, newest: "array[int]") -> Iterator[Trouble]:
        if sys.byteorder == "little":
            newest.byteswap()
        expected, found = newest.tobytes(), bytes(view.view[HEADER_SIZE : view.entries_at])
        if expected == found:
            return
        for at in range(0, len(expected), SLOT_SIZE):
            wanted, there = expected[at : at + SLOT_SIZE], found[at : at + SLOT_SIZE]
            if wanted != there:
                number = int.from_bytes(there, signed=True)
                # A slot is written before the header: after a kill it may have one more entry.
                is_ahead = number >= view.count
                text = f"slot {at // SLOT_SIZE}: the newest entry is {int.from_bytes(wanted)}, not {number}"
                yield HEADER_SIZE + at, text, not (self._lenient and is_ahead)


def key_hash(topic: bytes, key: bytes) -> int:
    """The hash of a key in the index."""
    hash_ = entry_layout.key_hash(topic, key)
    if hash_ == _NOT_ASCII:
        return index_hash(f"{topic.decode('utf-8', 'replace')}#{key.decode('utf-8', 'replace')}")
    return hash_
