"""A few simulated lives of a master and its slave, with each run of the tests; more by KOUROU_REPLICATION_SEEDS.

Faults that the lives must find are in `MUTANTS`: a checker that finds nothing proves nothing.
"""

import logging
import os
from collections.abc import Callable, Iterator

import pytest
from tests.simulation.replication_run import ReplicationRun

from kourou.broker import failover
from kourou.broker.failover import Failover
from kourou.broker.settings import BrokerSettings
from kourou.replication.master import Master
from kourou.store.copies import LogCopy, LogSource
from kourou.store.history import History

SEEDS = int(os.environ.get("KOUROU_REPLICATION_SEEDS", "12"))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_life(seed: int) -> None:
    run = ReplicationRun(seed)
    run.run()


def test_lives_are_worth_something() -> None:
    """Messages are acknowledged and seen, and connections and brokers end, in most lives."""
    runs = [ReplicationRun(seed) for seed in range(10)]
    for run in runs:
        run.run()
    assert sum(len(run.acknowledged) for run in runs) > 100
    assert sum(len(run.seen) for run in runs) > 100
    assert sum(run.cuts for run in runs) > 10
    assert sum(run.ends for run in runs) > 10
    assert sum(run.fail_overs for run in runs) > 5
    assert sum(run.forks for run in runs) > 1


def test_a_seed_repeats() -> None:
    one, two = ReplicationRun(7), ReplicationRun(7)
    one.run()
    two.run()
    assert one.trace == two.trace
    assert one.acknowledged == two.acknowledged


def _answers_before_the_slave_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Master, "acknowledged", lambda master, _: master._log.end)


def _reports_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogCopy, "reported", property(lambda copy: copy._store.log.end))


def _sends_what_is_not_flushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSource, "end", property(lambda source: source._store.log.end))


def _follows_without_a_comparison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Failover, "_agree_with", lambda *_: None)


def _begins_no_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(History, "begin", lambda history, **_: history.all.last)


def _promotes_with_the_next_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(failover, "PROMOTION_STEP", 1)


def _shows_what_a_new_master_may_lack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BrokerSettings, "end_in_doubt", property(lambda _: False, lambda *_: None))


MUTANTS = [
    _answers_before_the_slave_has_it,
    _reports_what_is_not_flushed,
    _sends_what_is_not_flushed,
    _follows_without_a_comparison,
    _begins_no_epoch,
    _promotes_with_the_next_epoch,
    _shows_what_a_new_master_may_lack,
]


@pytest.mark.parametrize("mutate", MUTANTS)
def test_a_fault_is_found(mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        _live(160)


def _live(seeds: int) -> None:
    for seed in range(seeds):
        ReplicationRun(seed).run()
