"""The bytes that unit tests compare with are those of the real classes, still."""

import json
from pathlib import Path
from typing import Any

import pytest

from .record import DATA, RECORDINGS, record
from .worlds import needed

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("name", RECORDINGS)
def test_committed_recording_is_what_the_real_classes_write(name: str, tmp_path: Path) -> None:
    fresh = tmp_path / name
    with needed():
        record(name, fresh)
    expected, recorded = _lines(DATA / name), _lines(fresh)
    assert [_title(line) for line in recorded] == [_title(line) for line in expected]
    for line, wanted in zip(recorded, expected, strict=True):
        if line["fields"].get("stable") is False:
            # The compressed bytes may differ between libraries; the decompressed ones must not.
            assert line["hex"]
            assert line["fields"] == wanted["fields"], _title(line)
        else:
            assert line == wanted


@pytest.mark.parametrize("name", RECORDINGS)
def test_no_two_lines_of_a_recording_share_a_title(name: str) -> None:
    titles = [_title(line) for line in _lines(DATA / name)]
    assert len(set(titles)) == len(titles)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _title(line: dict[str, Any]) -> tuple[str, str]:
    return line["kind"], line["name"]
