"""DLedger's layout: the log of an Apache broker with `enableDLegerCommitLog`. It is read and written by convert/.

    <root>/dledger-n0/data/00000000000000000000    segments, each record wrapped in an entry
                     /index/00000000000000000000   32 bytes for each entry
                     /currterm, checkpoint         text: term and vote; the last and the last committed index
    <root>/commitlog/                              the plain log that was there before DLedger, if any

    entry   │ magic 1 │ size │ index │ term │ position │ channel, 2 CRCs: 0 │ body size │ record … │
            0         4      8       16     24         32                   44          48
    blank   │ magic -1 │ size │ zeros …    up to the end of the segment; in the first one, also before the first entry
    index   │ magic 1 │ position │ size │ index │ term │

The record states the position of its first byte, 48 bytes after its entry's.

Java: DLedgerMmapFileStore, DLedgerEntryCoder, DLedgerCommitLog.
"""

import struct
from pathlib import Path
from typing import Final

from kourou.store.disk import Disk, RealDisk
from kourou.store.errors import BadStoreError

ENTRY: Final = struct.Struct(">iiqqqiiii")
ENTRY_HEAD: Final = ENTRY.size
"""48."""

BLANK: Final = struct.Struct(">ii")
UNIT: Final = struct.Struct(">iqiqq")
"""An entry in the index files."""

ENTRY_MAGIC: Final = 1
BLANK_MAGIC: Final = -1

INDEX_FILE_SIZE: Final = 5 * 1024 * 1024 * UNIT.size
"""Of each index file: DLedger accepts no other size."""

ENTRY_SIZE_MAX: Final = 4 * 1024 * 1024
"""DLedger does not replicate a larger entry."""

_PREFIX: Final = "dledger-"


def members(root: Path, disk: Disk) -> list[Path]:
    """The folders of DLedger's members in a store. Raises OSError."""
    folders = (root / name for name in disk.folders(root) if name.startswith(_PREFIX))
    return [folder for folder in folders if disk.files(folder / "data") or disk.files(folder / "index")]


def member_folder(root: Path, self_id: str) -> Path:
    return root / f"{_PREFIX}{self_id}"


def looks_like_dledger(folder: Path, disk: Disk | None = None) -> bool:
    """True if this is a store whose log, or its newer part, is in DLedger's layout. Raises OSError."""
    return bool(members(folder, disk or RealDisk(folder / "kourou-aside")))


def refuse_dledger(root: Path, disk: Disk) -> None:
    """Raises BadStoreError for a store in DLedger's layout: its newest messages would be missing."""
    found = members(root, disk)
    if found:
        raise BadStoreError(
            f"{root} is in DLedger's layout: its messages are in {found[0].name}. Convert it: "
            f"kourou store convert {root} NEW_DIR, and use NEW_DIR. If these messages are not wanted, move "
            f"{found[0]} away"
        )
