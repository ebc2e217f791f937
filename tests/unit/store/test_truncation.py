"""Back to an earlier end of the log: where that may be, and that nothing of the rest is left."""

from contextlib import suppress
from dataclasses import replace

import pytest

from kourou.store.errors import StoreError
from kourou.testing.disk import SimulatedCrash

from .small import SEGMENT, SETTINGS, SYNC, Small, message, new_disk

COUNT = 60


def filled(small: Small) -> list[int]:
    """Where the records end, over some segments."""
    ends = []
    for number in range(COUNT):
        small.now_ms += 1
        small.send(message(b"%03d" % number + bytes(300), key=f"k{number}"))
        ends.append(small.store.log.end)
    return ends


def holds(small: Small, count: int) -> bool:
    bodies = [b"%03d" % number + bytes(300) for number in range(count)]
    return small.bodies() == bodies and [number for number in range(COUNT) if small.by_key(f"k{number}")] == list(
        range(count)
    )


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("count", [0, 1, 7, 30, COUNT - 1, COUNT])
def test_what_is_behind_is_gone_and_the_rest_is_safe(count: int, clean: bool) -> None:
    small = Small()
    end = [0, *filled(small)][count]
    if clean:  # its queues are not opened yet
        small.close()
        small = small.again()
    small.store.truncate(end, small.now_ms)
    assert (small.store.log.end, small.store.durability.flushed, small.store.dispatched) == (end, end, end)
    assert holds(small, count)
    crashed = small.again(small.disk.crash())
    assert crashed.store.log.end == end
    assert not crashed.store.report.damage
    assert holds(crashed, count)
    small.send(message(b"other"))
    small.close()
    again = small.again()
    assert again.store.report.hinted
    assert again.bodies()[count:] == [b"other"]
    assert again.store.queues.ensure("orders", 0).end == count + 1


def test_a_segment_may_be_left_whole() -> None:
    small = Small()
    filled(small)
    small.store.truncate(2 * SEGMENT, small.now_ms)
    assert small.store.log.end == 2 * SEGMENT
    assert small.names("commitlog") == [f"{start:020}" for start in (0, SEGMENT)]
    assert small.send(message(b"next"))[0].physical_offset == 2 * SEGMENT


def test_no_other_place_will_do() -> None:
    small = Small()
    ends = filled(small)
    for end in (-1, 1, ends[3] - 1, ends[3] + 4, ends[-1] + 1):
        with pytest.raises(StoreError, match="t be cut at"):
            small.store.truncate(end, small.now_ms)
    assert holds(small, COUNT)


def test_who_waits_is_told() -> None:
    small = Small(settings=SYNC)
    places = small.append(message(b"1"), message(b"2"))
    ends = [place.physical_offset + place.size for place in places]
    for number, end in enumerate(ends):
        assert not small.store.durability.wait(end, number, small.now_ms)
    assert small.store.truncate(ends[0], small.now_ms) == [0]
    assert small.store.durability.take_cut() == [1]
    assert small.bodies() == [b"1"]


def test_a_disk_that_fails_closes_the_store() -> None:
    small = Small()
    end = filled(small)[9]
    small.store.flush(small.now_ms)
    small.disk.fail("remove", where="*/commitlog/*")
    with pytest.raises(OSError):
        small.store.truncate(end, small.now_ms)
    again = small.again()
    assert again.store.log.end >= end
    again.store.truncate(end, again.now_ms)
    assert holds(again, 10)


@pytest.mark.parametrize("after", [True, False])
def test_a_crash_at_any_moment_leaves_that_or_more(after: bool) -> None:
    for boundary in range(1, 100):
        small = Small(new_disk(boundary), replace(SETTINGS, queue_file_entries=25))
        ends = [0, *filled(small)]
        small.store.flush(small.now_ms)
        small.disk.crash_at, small.disk.crash_after = small.disk.calls + boundary, after
        try:
            small.store.truncate(ends[20], small.now_ms)
        except SimulatedCrash:
            again = small.again(small.disk.crash())
            count = ends.index(again.store.log.end)
            assert count >= 20
            assert holds(again, count)
            again.store.truncate(ends[20], again.now_ms)
            assert holds(again, 20)
        else:
            assert boundary > 10
            return
        finally:
            with suppress(SimulatedCrash):
                small.store.abandon()
    raise AssertionError("so many boundaries")


def test_a_removed_topic_counts_from_0_again() -> None:
    """Also where records of the topic are in the log that were not visible yet when it was removed."""
    small = Small(settings=SYNC)
    ends = [place.physical_offset + place.size for place in small.append(message(b"1"), message(b"2"), message(b"3"))]
    small.store.remove_topic("orders")
    small.store.truncate(ends[1], small.now_ms)
    assert small.send(message(b"new"))[0].queue_offset == 0
    small.store.flush(small.now_ms)
    assert small.bodies() == [b"new"]


def test_a_removal_ends_where_the_log_was_cut() -> None:
    """Also after a crash: a new record at an offset before the removal is a new record."""
    small = Small()
    ends = filled(small)
    small.store.remove_topic("orders")
    small.store.keep_removed()
    small.store.truncate(ends[3], small.now_ms)
    small.send(message(b"new"))
    small.store.flush(small.now_ms)
    assert small.bodies() == [b"new"]
    for image in small.disk.crash_images(5):
        assert small.again(image).bodies() == [b"new"]
