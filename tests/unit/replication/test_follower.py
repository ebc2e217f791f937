"""A slave's end of replication."""

import struct

import pytest
from tests.unit.replication.logs import SEGMENT, DiskFull, MemoryLog, batch, real_log

from kourou.replication.follower import Follower, FollowerSettings
from kourou.replication.links import Connect, HangUp, Link, LinkEffect, Transfer

LOG = real_log(250)
MASTER = "10.0.0.1:10912"


class World:
    """A slave, its clock, and what it has sent."""

    def __init__(self, log: MemoryLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.follower = Follower(self.log, FollowerSettings(), write_errors=(DiskFull,))
        self.now_ms = 1_000
        self.effects: list[LinkEffect] = []

    def step(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.follower.step(self.now_ms)
        self.effects += self.follower.take_effects()

    def follow(self) -> Link:
        self.follower.follow(MASTER, self.now_ms)
        return self.connect()

    def connect(self) -> Link:
        self.step()
        assert self.take()[-1] == Connect(MASTER)
        link = Link(MASTER)
        self.follower.connected(link, self.now_ms)
        self.step()
        return link

    def receive(self, link: Link, data: bytes) -> None:
        self.follower.received(link, data, self.now_ms)
        self.step()

    def take(self) -> list[LinkEffect]:
        effects, self.effects = self.effects, []
        return effects

    def reports(self) -> list[int]:
        return [struct.unpack(">q", one.head)[0] for one in self.take() if isinstance(one, Transfer)]


def first_record(data: bytes = LOG) -> int:
    return int.from_bytes(data[:4])


def test_it_reports_where_it_is_and_takes_what_comes() -> None:
    world = World()
    link = world.follow()
    assert world.reports() == [0]
    size = first_record()
    world.receive(link, batch(0, LOG[: size + 10]))
    assert bytes(world.log.data) == LOG[:size]
    assert world.reports() == [size]
    world.receive(link, batch(size + 10, LOG[size + 10 : 5_000]))
    (offset,) = world.reports()
    assert 4_000 < offset <= 5_000
    assert bytes(world.log.data) == LOG[:offset]


@pytest.mark.parametrize("size", [1, 11, 12, 13, 1_000, 100_000])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    world = World()
    link = world.follow()
    whole = LOG if size > 100 else LOG[: 4 * first_record()]
    stream = b"".join(
        batch(at, whole[at : at + 2_048]) + batch(min(at + 2_048, len(whole))) for at in range(0, len(whole), 2_048)
    )
    for at in range(0, len(stream), size):
        world.receive(link, stream[at : at + size])
    assert bytes(world.log.data) == whole
    assert world.reports()[-1] == len(whole)


def test_heartbeats_get_no_answer_and_silence_is_broken_by_reports() -> None:
    world = World(MemoryLog(LOG))
    link = world.follow()
    assert world.reports() == [len(LOG)]
    world.step(3_000)
    world.receive(link, batch(len(LOG)))
    assert world.take() == []
    world.step(2_000)
    assert world.reports() == [len(LOG)]


def test_a_log_that_does_not_continue_here_is_refused() -> None:
    world = World(MemoryLog(LOG[: first_record()]))
    link = world.follow()
    world.take()
    world.receive(link, batch(0, LOG))
    (ended,) = world.take()
    assert isinstance(ended, HangUp)
    assert "but this log continues at" in ended.reason
    assert len(world.log.data) == first_record()


def test_another_try_follows_after_a_pause() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.follower.closed(link, world.now_ms)
    world.step(99)
    assert world.take() == []
    assert not world.follower.is_following
    world.step(1)
    assert world.take() == [Connect(MASTER)]


def test_pauses_grow_while_the_master_is_away_and_are_short_again_when_it_was_heard() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.follower.closed(link, world.now_ms)
    for pause_ms in (100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000):
        world.step(pause_ms - 1)
        assert world.take() == []
        world.step(1)
        assert world.take() == [Connect(MASTER)]
        world.follower.not_connected(MASTER, "refused", world.now_ms)
    world.now_ms += 5_000
    link = world.connect()
    world.receive(link, batch(0, LOG))
    world.take()
    world.follower.closed(link, world.now_ms)
    world.step(100)
    assert world.take() == [Connect(MASTER)]


def test_a_log_that_does_not_continue_is_not_asked_for_again_soon() -> None:
    world = World()
    link = world.follow()
    world.receive(link, batch(0, LOG))
    world.receive(link, batch(len(LOG) + 5, LOG))
    assert isinstance(world.take()[-1], HangUp)
    world.step(4_999)
    assert world.take() == []
    world.step(1)
    assert world.take() == [Connect(MASTER)]


def test_a_silent_master_is_connected_to_again_at_once() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.now_ms += 20_000
    world.step(1)
    assert [type(one) for one in world.take()] == [HangUp, Connect]
    assert world.follower.link is not link


def test_a_connection_that_does_not_come_about_is_tried_again() -> None:
    world = World()
    world.follower.follow(MASTER, world.now_ms)
    world.step()
    world.follower.not_connected(MASTER, "refused", world.now_ms)
    world.step(5_000)
    assert world.take() == [Connect(MASTER), Connect(MASTER)]
    world.step(5_001)  # nothing was heard of it
    world.step(5_000)
    assert world.take() == [Connect(MASTER)]


def test_a_new_slave_begins_with_the_segment_that_it_is_sent() -> None:
    world = World()
    link = world.follow()
    world.receive(link, batch(SEGMENT, LOG[SEGMENT : SEGMENT + 3_000]))
    assert world.log.start == SEGMENT
    assert bytes(world.log.data) == LOG[SEGMENT : world.log.end]
    assert world.log.end > SEGMENT + 2_000


def test_a_new_slave_asks_for_the_start_of_the_log_where_it_is_known() -> None:
    """Apache's master sends its last segment only to slaves that report 0."""
    world = World()
    world.follower.first_offset = SEGMENT
    link = world.follow()
    assert world.reports() == [SEGMENT]
    world.receive(link, batch(SEGMENT, LOG[SEGMENT:]))
    assert bytes(world.log.data) == LOG[SEGMENT:]


def test_a_new_slave_reports_1_to_get_a_log_that_begins_at_0() -> None:
    world = World()
    world.follower.first_offset = 0
    link = world.follow()
    assert world.reports() == [1]
    world.receive(link, batch(1) + batch(1, LOG[1:SEGMENT]) + batch(SEGMENT, LOG[SEGMENT:]))
    assert bytes(world.log.data) == LOG
    assert world.reports() == [len(LOG)]


@pytest.mark.parametrize("offset", [1, SEGMENT - 1, -SEGMENT])
def test_a_new_slave_begins_with_a_segment_only(offset: int) -> None:
    world = World()
    link = world.follow()
    world.take()
    world.receive(link, batch(offset, LOG[:1_000]))
    (ended,) = world.take()
    assert isinstance(ended, HangUp)
    assert world.log.is_empty


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 200 OK\r\n\r\n", batch(0, bytes(100)), struct.pack(">qi", 0, -1), batch(0, b"\xff" * 1_000)]
)
def test_garbage_gets_nowhere(data: bytes) -> None:
    world = World()
    link = world.follow()
    world.take()
    world.receive(link, data)
    assert isinstance(world.take()[0], HangUp)
    assert world.log.is_empty


def test_a_full_disk_ends_the_connection_and_it_goes_on_later() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.log.is_full = True
    world.receive(link, batch(0, LOG))
    (ended,) = world.take()
    assert isinstance(ended, HangUp)
    assert "no room" in ended.reason
    world.log.is_full = False
    world.now_ms += 5_000
    world.receive(world.connect(), batch(0, LOG))
    assert bytes(world.log.data) == LOG


def test_a_slave_with_sync_flush_reports_what_is_flushed() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.log.unreported = 1
    world.receive(link, batch(0, LOG[: first_record()]))
    assert world.reports() == [first_record() - 1]
    world.log.unreported = 0
    world.step()
    assert world.reports() == [first_record()]


def test_it_connects_when_all_that_it_will_claim_is_flushed() -> None:
    world = World(MemoryLog(LOG))
    world.log.unreported = 1
    world.follower.follow(MASTER, world.now_ms)
    world.step(1_000)
    assert world.take() == []
    assert world.follower.due_ms() is None
    world.log.unreported = 0
    world.step()
    assert world.take() == [Connect(MASTER)]


def test_another_master_ends_the_connection_to_the_first() -> None:
    world = World()
    link = world.follow()
    world.take()
    world.follower.follow("10.0.0.3:10912", world.now_ms)
    world.step()
    assert world.take() == [HangUp(link, "the master to follow has changed"), Connect("10.0.0.3:10912")]
    world.receive(link, batch(0, LOG))
    assert world.log.is_empty
    world.follower.follow(None, world.now_ms)
    world.step(60_000)
    assert world.take() == []


def test_a_connection_that_comes_too_late_is_not_used() -> None:
    world = World()
    link = Link(MASTER)
    world.follower.connected(link, world.now_ms)
    world.step()
    assert world.take() == [HangUp(link, "this connection is no longer needed")]
