"""No request holds the event loop for more than 20 ms, whatever is asked of whatever tables.

Measured in CPU time of the thread, relative to the speed of the machine at that moment (`slowness`). The figures of
docs/limits.md are made by the same walk, on tables as large as the limits allow:
`python -m tests.hostile.longest_turns`.
"""

import gc
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.lane import IS_COMPILED
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS
from kourou.server.broker_figures import BrokerFigures
from kourou.server.metrics import slice_of

from .longest_turns import LIMIT_MS, Sizes, Walked, served_by_brokers, slowness, walk

TRIES = 5
"""How often a turn is measured that took too long."""

SMALLER = Sizes(topics=20_000, groups=20_000, wide=3, clones=2, peers=20, messages=5_000, locks=50_000)

FACTOR = 1 if IS_COMPILED else 3
"""The plain form serves the same requests as the compiled one, and takes longer."""


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    made = Walked(tmp_path_factory.mktemp("walked"), SMALLER)
    gc.freeze()
    gc.disable()  # of a test process, which has far more than a broker
    yield made
    gc.enable()
    gc.unfreeze()


@pytest.mark.slow
def test_no_slice_of_the_metrics_holds_the_event_loop(walked: Walked) -> None:
    """Counts of 10,000 topics and 10,000 groups, 20,000 memberships, and a group with an offset in each wide queue.

    It comes before the walk, which deletes that group.
    """
    machine = walked.machine
    for number in range(10_000):
        machine.stats.put(f"topic-{number:05d}", 1, 100, message_type="normal")
        machine.stats.got(f"topic-{number:05d}", f"group-{number:06d}", 1, 100)
    subscription = bodies.SubscriptionData(topic="wide-0", sub_string="*")
    consumer = bodies.ConsumerData(group_name="group-000000", subscription_data_set=[subscription])
    beat = bodies.HeartbeatData(client_id="wide", consumer_data_set=[consumer])
    walked.ask(Command(RequestCode.HEART_BEAT, body=beat.encode()), walked.connect())
    figures = BrokerFigures(machine, lambda: 0)
    for _ in range(TRIES):
        limit = LIMIT_MS * slowness()
        if (longest := _longest_slice(figures)) < limit:
            break
    assert longest < limit


def test_no_request_holds_the_event_loop(walked: Walked) -> None:
    limit = LIMIT_MS * FACTOR * slowness()
    found = walk(walked, served_by_brokers())
    late = {code for code, worst in found.items() if worst > limit}
    for _ in range(TRIES - 1):  # the shortest counts; the end of a connection, 0, can't be repeated
        if late - {0}:
            limit = LIMIT_MS * FACTOR * slowness()
            again = walk(walked, late - {0, -1})
            late = {code for code in late if code == 0 or again[code] > limit}
    assert not late, {RequestCode(code).name if code > 0 else code: found[code] for code in late}


def _longest_slice(figures: BrokerFigures) -> float:
    lines, longest, text = figures.text(), 0, b""
    while True:
        began = time.thread_time_ns()
        data = slice_of(lines)
        longest = max(longest, time.thread_time_ns() - began)
        if data is None:
            break
        text += data
    assert text.count(b"\nrocketmq_messages_in_total{") >= 10_000
    assert b'rocketmq_consumer_lag_messages{cluster="DefaultCluster",consumer_group="group-000000"' in text
    return longest / 1e6


def test_the_walk_has_every_code() -> None:
    walked = set(served_by_brokers())
    others = {info.direction.value for code, info in REQUESTS.items() if code not in walked}
    assert not [direction for direction in others if direction.endswith("→ broker") and "name server" not in direction]
    assert len(walked) > 80


def test_the_page_has_every_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "limits.md").read_text()
    missing = [RequestCode(code).name for code in served_by_brokers() if f"| {RequestCode(code).name} |" not in page]
    assert not missing
