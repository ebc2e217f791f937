"""Which senders may be answered, and what consumers may see, by what is flushed, replicated and committed."""

from dataclasses import dataclass, replace

import pytest

from kourou.store.durability import FLUSHED, Durability, Late
from kourou.store.settings import FlushMode, StoreSettings

ASYNC = StoreSettings(sync_flush_timeout_ms=5_000)
SYNC = replace(ASYNC, flush_mode=FlushMode.SYNC)
REPLICAS, COMMITTED = "replicas", "committed"


@dataclass
class FakeLog:
    """A log that is written to, and may have failed."""

    end: int = 100
    failed: str | None = None


def durable(settings: StoreSettings = SYNC) -> Durability:
    """A log with 100 bytes, none of which are flushed."""
    return Durability(FakeLog(), settings)


# ── What is required ────────────────────────────────────────────────────────────────────────────────────────────────


def test_under_async_flush_nobody_waits() -> None:
    it = durable(ASYNC)
    assert (it.must_wait, it.visible_at_once, it.syncs_at_once) == (False, True, False)
    assert (it.appended, it.flushed, it.answerable_to, it.visible_to) == (100, 0, 100, 100)
    assert it.wait(100, "a", 0)
    assert it.flushed_to(100, 7) == [] and it.due_ms() is None


def test_under_sync_flush_senders_and_consumers_wait_for_the_flush() -> None:
    it = durable()
    assert (it.must_wait, it.visible_at_once, it.syncs_at_once) == (True, False, True)
    assert (it.answerable_to, it.visible_to) == (0, 0)
    assert not it.wait(100, "a", 0)
    assert it.flushed_to(60, 7) == []
    assert (it.answerable_to, it.visible_to, it.flushed_ms) == (60, 60, 7)
    assert it.flushed_to(100, 8) == ["a"]
    assert it.wait(100, "b", 0)


def test_consumers_may_be_shown_what_is_not_flushed() -> None:
    it = durable(replace(SYNC, read_uncommitted=True))
    assert (it.must_wait, it.visible_at_once) == (True, True)
    assert (it.answerable_to, it.visible_to) == (0, 100)
    it.configure(SYNC)
    assert (it.visible_at_once, it.visible_to) == (False, 0)


@pytest.mark.parametrize("settings", [ASYNC, SYNC, replace(SYNC, read_uncommitted=True)])
def test_after_a_failed_sync_consumers_see_what_is_flushed(settings: StoreSettings) -> None:
    log = FakeLog()
    it = Durability(log, settings)
    it.flushed_to(30, 1)
    log.failed = "the disk is broken"
    assert it.visible_to == 30


@pytest.mark.parametrize(("settings", "flushed", "answerable"), [(ASYNC, 0, 70), (SYNC, 40, 40), (SYNC, 90, 70)])
def test_replication_and_the_flush_mode_are_both_required(
    settings: StoreSettings, flushed: int, answerable: int
) -> None:
    it = durable(settings)
    it.require(REPLICAS, 0, timeout_ms=3_000)
    assert it.must_wait and not it.visible_at_once
    it.reached(REPLICAS, 70)
    it.flushed_to(flushed, 1)
    assert (it.answerable_to, it.visible_to) == (answerable, answerable)
    assert (it.confirmed, it.durable_to) == (70, min(flushed, 70))


@pytest.mark.parametrize("last", [REPLICAS, FLUSHED])
def test_a_token_comes_back_when_the_last_watermark_passes_it(last: str) -> None:
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=3_000)
    assert not it.wait(100, "a", 0)
    if last == REPLICAS:
        assert it.flushed_to(100, 1) == []
        assert it.reached(REPLICAS, 100) == ["a"]
    else:
        assert it.reached(REPLICAS, 100) == []
        assert it.flushed_to(100, 1) == ["a"]


def test_a_watermark_that_only_consumers_wait_for() -> None:
    """A slave shows what its master says is confirmed, and answers no sender."""
    it = durable(ASYNC)
    it.require("confirmed by the master", 50, timeout_ms=None)
    assert (it.must_wait, it.visible_at_once, it.visible_to, it.answerable_to) == (False, False, 50, 100)
    assert it.wait(100, "a", 0)


def test_in_a_group_the_commit_offset_stands_for_the_flush() -> None:
    it = durable(replace(SYNC, read_uncommitted=True))
    it.require_flush(False)
    it.require(COMMITTED, 0, timeout_ms=2_500, even_uncommitted=True)
    assert it.syncs_at_once, "this member's vote should not be late"
    assert not it.wait(80, "a", 0)
    assert it.reached(COMMITTED, 80) == ["a"]
    assert (it.flushed, it.answerable_to, it.visible_to) == (0, 80, 80)


def test_a_requirement_is_dropped() -> None:
    it = durable(ASYNC)
    it.require(REPLICAS, 0, timeout_ms=3_000)
    assert not it.wait(100, "a", 0)
    assert it.drop(REPLICAS) == ["a"]
    assert (it.must_wait, it.visible_at_once, it.confirmed) == (False, True, None)
    it = durable()
    assert not it.wait(100, "b", 0)
    assert it.require_flush(False) == ["b"]
    assert it.require_flush(True) == []
    assert not it.wait(100, "c", 0)


def test_a_requirement_concerns_those_who_come_after_it() -> None:
    it = durable()
    assert not it.wait(50, "before", 0)
    it.require(REPLICAS, 0, timeout_ms=3_000)
    assert not it.wait(100, "after", 0)
    assert it.flushed_to(100, 1) == ["before"]
    assert it.reached(REPLICAS, 100) == ["after"]


def test_watermarks_never_go_back() -> None:
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=3_000)
    it.reached(REPLICAS, 90)
    it.reached(REPLICAS, 20)
    it.flushed_to(90, 9)
    it.flushed_to(20, 2)
    assert (it.confirmed, it.flushed, it.flushed_ms) == (90, 90, 9)


def test_no_watermark_is_beyond_the_log() -> None:
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=3_000)
    with pytest.raises(AssertionError, match="replicas is at 101, and the log ends at 100"):
        it.reached(REPLICAS, 101)


# ── Tokens ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_sync_answers_all_that_wait_for_it() -> None:
    it = durable()
    for offset, token in ((10, "a"), (20, "b"), (20, "c"), (30, "d")):
        assert not it.wait(offset, token, 0)
    assert it.flushed_to(9, 1) == []
    assert it.flushed_to(20, 1) == ["a", "b", "c"]
    assert it.flushed_to(30, 1) == ["d"]
    assert it.due_ms() is None


def test_a_late_token_is_named_once_with_what_is_missing() -> None:
    it = durable()
    assert it.due_ms() is None
    it.wait(10, "a", 0)
    it.wait(20, "b", 1_000)
    assert it.due_ms() == 5_000
    assert it.late(4_999) == []
    assert it.late(5_000) == [Late("a", FLUSHED)]
    assert it.late(5_000) == []
    assert it.due_ms() == 6_000
    assert it.flushed_to(20, 1) == ["b"]


def test_a_missing_replica_is_named_rather_than_a_missing_flush() -> None:
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=5_000)
    it.wait(10, "a", 0)
    assert it.late(5_000) == [Late("a", REPLICAS)]
    assert it.flushed_to(100, 1) == [] and it.reached(REPLICAS, 100) == []


def test_a_stuck_token_delays_no_other() -> None:
    """The first waits for the disk, which has more time than a replica; those behind it for the replica alone."""
    it = durable()
    it.require(REPLICAS, 10, timeout_ms=3_000)
    assert not it.wait(10, "disk", 0)
    assert not it.wait(20, "both", 100)
    assert it.due_ms() == 3_100
    assert it.late(3_100) == [Late("both", REPLICAS)], "though the one before it still has time"
    assert not it.wait(30, "later", 3_200)
    assert it.reached(REPLICAS, 30) == []
    assert it.flushed_to(30, 1) == ["disk", "later"]
    assert it.due_ms() is None


def test_a_late_token_keeps_nothing_alive() -> None:
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=3_000)
    for number in range(100):
        it.wait(number + 1, number, 0)
    assert len(it.late(3_000)) == 100
    assert it.late(5_000) == []
    assert it.due_ms() is None


def test_what_is_cut_is_never_answered() -> None:
    """Other bytes will be written at the same offsets, and must answer only senders of those."""
    it = durable()
    it.require(REPLICAS, 0, timeout_ms=3_000)
    for offset, token in ((10, "kept"), (20, "cut"), (30, "cut, too")):
        it.wait(offset, token, 0)
    it.reached(REPLICAS, 30)
    it.flushed_to(5, 50)
    it.cut(10, 40)
    assert (it.confirmed, it.flushed, it.flushed_ms) == (10, 5, 40)
    assert it.due_ms() == 0
    assert sorted(map(str, it.take_cut())) == ["cut", "cut, too"]
    assert it.take_cut() == []
    assert not it.wait(15, "later", 1)
    assert it.flushed_to(40, 60) == ["kept"]
    assert it.reached(REPLICAS, 40) == ["later"]
    assert it.late(9_999) == [] and it.due_ms() is None


def test_offsets_only_grow() -> None:
    it = durable()
    it.wait(10, "a", 0)
    with pytest.raises(AssertionError, match="must not decrease"):
        it.wait(9, "b", 0)


def test_after_recovery_all_is_flushed() -> None:
    it = durable()
    it.resume(100, 77)
    assert (it.flushed, it.flushed_ms, it.visible_to) == (100, 77, 100)
