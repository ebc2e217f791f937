"""docs/limits.md names every limit that there is, with its default."""

import re
from pathlib import Path

import pytest

from kourou.broker.properties import ACTED_ON, HOT, ProcessSettings, is_apaches
from kourou.broker.settings import BrokerSettings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "limits.md").read_text()
PARTS = ("broker", "nameserver", "controller")
CONSTANT = re.compile(r"^([A-Z][A-Z_]*_(?:MAX|LIMIT_BYTES))(?:: Final)? =", re.MULTILINE)
OURS = sorted(key for key in ACTED_ON if key.startswith("max") and not is_apaches(key))


@pytest.mark.parametrize("key", OURS)
def test_each_property_is_there_with_its_default(key: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith("|") and f"| `{key}` |" in line]
    place = ACTED_ON[key]
    default = getattr(ProcessSettings() if place.part == "process" else BrokerSettings(), place.name)
    shown = {f"{default:,}", f"{default // 1024} KiB", f"{default // 1024**2} MiB"}
    assert any(f" {text} " in row for text in shown), row


@pytest.mark.parametrize("part", PARTS)
def test_each_constant_is_there(part: str) -> None:
    found = {
        name for path in (ROOT / "src" / "kourou" / part).rglob("*.py") for name in CONSTANT.findall(path.read_text())
    }
    assert found
    missing = {name for name in found if f"`{name}`" not in PAGE}
    assert not missing, missing


def test_each_range_is_there() -> None:
    for key, range_ in HOT.items():
        if range_ is not None:
            assert f"| `{key}` | {range_[0]:,} to {range_[1]:,} |" in PAGE, key
