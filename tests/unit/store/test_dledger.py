"""A store in DLedger's layout is recognized, and no broker opens it."""

from pathlib import Path

import pytest

from kourou.store.dledger import looks_like_dledger, members
from kourou.store.errors import BadStoreError

from .small import LOG, ROOT, Small, new_disk

SEGMENT = "0" * 20


@pytest.mark.parametrize("part", ["data", "index"])
def test_dledgers_layout_is_recognized_and_refused(part: str) -> None:
    disk = new_disk()
    assert not looks_like_dledger(ROOT, disk)
    disk.install(ROOT / "dledger-n0" / part / SEGMENT, bytes(8192))
    disk.install(LOG / SEGMENT, bytes(8192))
    assert looks_like_dledger(ROOT, disk)
    with pytest.raises(BadStoreError, match="kourou store convert /store NEW_DIR") as refused:
        Small(disk)
    assert "dledger-n0" in str(refused.value)
    assert "move /store/dledger-n0 away" in str(refused.value)
    assert "abort" not in disk.files(ROOT)


def test_folders_without_a_log_are_no_reason_to_refuse(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    (tmp_path / "dledger-notes").write_text("not a folder")
    assert not looks_like_dledger(tmp_path)
    assert not looks_like_dledger(tmp_path / "missing")
    (tmp_path / "dledger-n0" / "data" / SEGMENT).write_bytes(bytes(100))
    assert looks_like_dledger(tmp_path)


def test_an_incomplete_conversion_is_refused() -> None:
    disk = new_disk()
    disk.install(ROOT / "kourou-converting.json", b"{}")
    with pytest.raises(BadStoreError, match="kourou store convert has not finished it"):
        Small(disk)


def test_all_members_are_found() -> None:
    disk = new_disk()
    for name in ("n1", "n0"):
        disk.install(ROOT / f"dledger-{name}" / "data" / SEGMENT, bytes(100))
    assert members(ROOT, disk) == [ROOT / "dledger-n0", ROOT / "dledger-n1"]
