"""No request holds the event loop for more than 20 ms, whatever is asked of whatever tables.

Measured in CPU time of the thread. The figures of docs/limits.md are made by the same walk, on tables as large as the
limits allow: `python -m tests.hostile.longest_turns`.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.lane import IS_COMPILED
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import REQUESTS

from .longest_turns import LIMIT_MS, Sizes, Walked, served_by_brokers, walk

SMALLER = Sizes(topics=20_000, groups=20_000, wide=3, clones=2, peers=20, messages=5_000, locks=50_000)

FACTOR = 1 if IS_COMPILED else 3
"""The plain form serves what the compiled one does, and takes longer for it."""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    made = Walked(tmp_path_factory.mktemp("walked"), SMALLER)
    gc.freeze()
    gc.disable()  # of a test process, which has far more than a broker
    yield made
    gc.enable()
    gc.unfreeze()


@pytest.mark.slow
def test_no_request_holds_the_event_loop(walked: Walked) -> None:
    limit = LIMIT_MS * FACTOR
    found = walk(walked, served_by_brokers())
    late = {code for code, worst in found.items() if worst > limit}
    if late - {0, -1}:  # a machine that does something else meanwhile: the shorter of two counts
        again = walk(walked, late - {0, -1})
        late = {code for code in late if again.get(code, found[code]) > limit}
    assert not late, {RequestCode(code).name if code > 0 else code: found[code] for code in late}


def test_the_walk_has_every_code() -> None:
    walked = set(served_by_brokers())
    others = {info.direction.value for code, info in REQUESTS.items() if code not in walked}
    assert not [direction for direction in others if direction.endswith("→ broker") and "name server" not in direction]
    assert len(walked) > 80


def test_the_page_has_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    missing = [RequestCode(code).name for code in served_by_brokers() if f"| {RequestCode(code).name} |" not in page]
    assert not missing
