"""A master's end of replication."""

import pytest
from tests.unit.replication.logs import SEGMENT, MemoryLog, batch, real_log, report

from kourou.replication.links import HangUp, Link, Transfer
from kourou.replication.master import GATHER_LATE_MS, GATHER_MS, TURN_MAX, Master, MasterSettings
from kourou.replication.refusals import REPEAT_MS

LOG = real_log(250)


class Wire:
    def __init__(self) -> None:
        self.has_room = True


class World:
    """A master, its clock, and the effects that it has returned."""

    def __init__(self, log: MemoryLog, **settings: int) -> None:
        self.log = log
        self.master = Master(log, MasterSettings(**settings))
        self.now_ms = 1_000
        self.sent: dict[Link, bytearray] = {}
        self.ended: dict[Link, str] = {}

    def connect(self, address: str = "10.0.0.2:4000") -> Link:
        link = Link(address, Wire())
        self.sent[link] = bytearray()
        self.master.connected(link, self.now_ms)
        self.step()
        return link

    def say(self, link: Link, data: bytes) -> None:
        self.master.received(link, data, self.now_ms)
        self.step()

    def step(self, ms: int = 0) -> None:
        self.now_ms += ms
        self.master.step(self.now_ms)
        for effect in self.master.take_effects():
            if isinstance(effect, Transfer):
                self.sent[effect.link] += effect.head + (effect.data or b"")
            elif isinstance(effect, HangUp):
                self.ended[effect.link] = effect.reason

    def drain(self) -> None:
        while self.master.is_busy:
            self.step()

    def take(self, link: Link) -> bytes:
        sent, self.sent[link] = bytes(self.sent[link]), bytearray()
        return sent


def batches(data: bytes, start: int, size: int = 32 * 1024) -> bytes:
    """As a master sends them: never over the end of a segment."""
    found, at = b"", start
    while at < len(data):
        end = min(at + size, at + SEGMENT - at % SEGMENT, len(data))
        found += batch(at, data[at:end])
        at = end
    return found


def test_nothing_is_sent_before_the_first_report() -> None:
    world = World(MemoryLog(LOG))
    link = world.connect()
    world.step(4_999)
    assert world.take(link) == b""


def test_a_slave_gets_the_log_from_where_it_is() -> None:
    world = World(MemoryLog(LOG))
    link = world.connect()
    world.say(link, report(1_234))
    world.drain()
    assert world.take(link) == batches(LOG, 1_234)
    assert world.master.slaves[link].acknowledged == 1_234


@pytest.mark.parametrize("pieces", [[1] * 8, [3, 5], [8]])
def test_a_report_may_come_in_pieces(pieces: list[int]) -> None:
    world = World(MemoryLog(LOG))
    link, data = world.connect(), report(len(LOG))
    for size in pieces:
        world.say(link, data[:size])
        data = data[size:]
    assert world.master.acknowledged(1) == len(LOG)


def test_a_new_slave_gets_the_whole_log_from_its_first_segment_on() -> None:
    log = MemoryLog(LOG[SEGMENT:], start=SEGMENT)
    world = World(log)
    link = world.connect()
    world.say(link, report(0))
    world.drain()
    assert world.take(link) == batches(LOG, SEGMENT)


def test_what_is_appended_later_follows_at_once() -> None:
    world = World(MemoryLog(LOG[:1_000]))
    link = world.connect()
    world.say(link, report(1_000))
    assert world.take(link) == b""
    world.log.data += LOG[1_000:1_500]
    world.master.transfer(world.now_ms)
    world.step()
    assert world.take(link) == batch(1_000, LOG[1_000:1_500])


def test_a_heartbeat_says_where_the_next_batch_will_begin() -> None:
    world = World(MemoryLog(LOG[:1_000]))
    link = world.connect()
    world.say(link, report(1_000))
    world.step(4_999)
    assert world.take(link) == b""
    world.step(1)
    assert world.take(link) == batch(1_000)
    assert world.master.due_ms() == world.now_ms + 5_000


def test_a_silent_slave_is_given_up() -> None:
    world = World(MemoryLog(LOG[:1_000]))
    link = world.connect()
    world.say(link, report(1_000))
    world.step(20_000)
    assert not world.ended
    world.step(1)
    assert "haHousekeepingInterval" in world.ended[link]
    assert world.master.acknowledged(1) == 0


def test_a_slave_that_does_not_read_is_sent_no_more() -> None:
    world = World(MemoryLog(LOG), batch_size=1_000)
    link = world.connect()
    link.wire.has_room = False
    world.say(link, report(100))
    world.step(6_000)
    assert world.take(link) == b""
    assert not world.master.is_busy
    link.wire.has_room = True
    world.drain()
    assert world.take(link) == batches(LOG, 100, 1_000)


def test_a_long_log_is_sent_in_turns() -> None:
    log = MemoryLog(bytes(3 * TURN_MAX), segment_size=8 * TURN_MAX)
    world = World(log)
    link = world.connect()
    world.say(link, report(1))
    assert TURN_MAX <= len(world.take(link)) < TURN_MAX + 64 * 1024
    assert world.master.is_busy


def test_the_watermark_is_what_enough_slaves_have() -> None:
    world = World(MemoryLog(LOG))
    first, second, third = (world.connect(f"10.0.0.{number}:1") for number in range(3))
    for link, offset in ((first, 100), (second, 300), (third, 200)):
        world.say(link, report(offset))
    assert [world.master.acknowledged(count) for count in (1, 2, 3, 4)] == [300, 200, 100, 0]
    world.master.closed(second)
    assert [world.master.acknowledged(count) for count in (1, 2, 3)] == [200, 100, 0]


def test_a_slave_that_is_too_far_behind_is_not_in_sync() -> None:
    world = World(MemoryLog(LOG[:2_000]), max_gap=1_000)
    far, near, silent = (world.connect(f"10.0.0.{number}:1") for number in range(3))
    world.say(far, report(1_000))
    world.say(near, report(1_001))
    assert world.master.in_sync() == 1
    world.say(far, report(2_000))
    assert world.master.in_sync() == 2
    assert silent in world.master.slaves


# ── Strangers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (report(len(LOG) + 1), "this master's log ends at"),
        (report(2**62), "this master's log ends at"),
        (report(-1), "begins at"),
        (b"GET / HTTP/1.1\r\n", "this master's log ends at"),
        (report(100) + report(len(LOG) + 1), "was sent it only up to"),
        (report(100) + report(-5), "was sent it only up to"),
        (report(100) + report(50) + report(90_000), "was sent it only up to 100"),
    ],
)
def test_a_claim_that_can_not_be_true_ends_the_connection(data: bytes, reason: str) -> None:
    world = World(MemoryLog(LOG))
    link = world.connect()
    world.say(link, data)
    assert reason in world.ended[link]
    assert world.master.acknowledged(1) == 0
    assert world.master.refusals.count == 1
    assert not world.master.slaves


def test_a_slave_with_a_log_that_expired_here_is_refused() -> None:
    world = World(MemoryLog(LOG[SEGMENT:], start=SEGMENT))
    link = world.connect()
    world.say(link, report(100))
    assert "empty its store" in world.ended[link]


def test_no_slave_can_have_bytes_that_were_not_sent() -> None:
    """A stranger that knows how long the log is acknowledges nothing."""
    world = World(MemoryLog(LOG[:1_000]))
    world.log.data += LOG[1_000:2_000]  # appended since the start, and sent to nobody
    link = world.connect()
    world.say(link, report(2_000))
    assert "none was sent after 1000" in world.ended[link]


def test_a_slave_that_comes_back_has_what_it_was_sent_before() -> None:
    world = World(MemoryLog(LOG[:1_000]))
    link = world.connect()
    world.say(link, report(1_000))
    world.log.data += LOG[1_000:2_000]
    world.step()
    world.master.closed(link)
    again = world.connect()
    world.say(again, report(2_000))
    assert world.master.acknowledged(1) == 2_000


def test_reports_that_fall_take_nothing_back() -> None:
    world = World(MemoryLog(LOG))
    link = world.connect()
    world.say(link, report(500) + report(400))
    assert world.master.acknowledged(1) == 500
    assert not world.ended


def test_the_number_of_connections_is_limited() -> None:
    world = World(MemoryLog(LOG), connections_max=3)
    links = [world.connect(f"10.0.0.9:{number}") for number in range(1_000)]
    assert len(world.master.slaves) == 3
    assert all("maxHaConnections" in world.ended[link] for link in links[:-3])


def test_a_log_that_was_cut_ends_connections_that_are_beyond_it() -> None:
    world = World(MemoryLog(LOG))
    ahead, behind = world.connect(), world.connect()
    world.say(ahead, report(len(LOG)))
    behind.wire.has_room = False
    world.say(behind, report(500))
    del world.log.data[1_000:]
    world.master.log_was_cut()
    world.step()
    assert set(world.ended) == {ahead}


def test_a_segment_that_expires_while_it_is_sent_ends_the_connection() -> None:
    world = World(MemoryLog(LOG))
    link = world.connect()
    link.wire.has_room = False
    world.say(link, report(500))
    del world.log.data[:SEGMENT]
    world.log.start = SEGMENT
    link.wire.has_room = True
    world.step()
    assert "can't be read" in world.ended[link]


def test_a_lag_is_as_old_as_what_the_slave_lacks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World(MemoryLog(LOG[:1000]), max_gap=1_000_000)
    link = world.connect()
    world.say(link, report(0))
    world.drain()
    slave = world.master.slaves[link]
    world.step(700)
    assert world.master.lag_ms(slave, world.now_ms) == 700
    world.say(link, report(1000))
    assert world.master.lag_ms(slave, world.now_ms) == 0
    world.log.data += LOG[1000:2000]
    world.step(300)
    assert world.master.lag_ms(slave, world.now_ms) == 300
    world.say(link, report(1500))
    assert world.master.lag_ms(slave, world.now_ms) == 300  # it has what the log had 300 ms ago
    world.step(200)
    world.say(link, report(1600))
    assert world.master.lag_ms(slave, world.now_ms) == 500
    world.say(link, report(2000))
    assert world.master.lag_ms(slave, world.now_ms) == 0
    assert caplog.text.count("slave in sync address=10.0.0.2:4000") == 1


def test_a_slave_that_falls_behind_is_logged_once_for_each_change(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World(MemoryLog(LOG[:1000]), max_gap=500)
    link = world.connect()
    world.say(link, report(1000))
    world.log.data += LOG[1000:2000]
    world.step()
    world.step()
    world.say(link, report(2000))
    lines = [record.message.partition(" address")[0] for record in caplog.records if "in sync" in record.message]
    assert lines == ["slave in sync", "slave not in sync", "slave in sync"]


def test_refused_connections_are_logged_once_for_each_cause(caplog: pytest.LogCaptureFixture) -> None:
    world = World(MemoryLog(LOG[:1000]), connections_max=1)
    for number in range(50):
        world.say(world.connect(f"10.0.0.3:{number}"), report(5_000))  # ahead of the master
    world.say(world.connect(), report(0))
    for number in range(50):
        world.connect(f"10.0.0.4:{number}")  # one too many
    refusals = [record.message for record in caplog.records if "refused" in record.message]
    assert [text.partition("address=")[2].partition(":")[0] for text in refusals] == [
        "10.0.0.3",
        "10.0.0.4",
    ]
    world.step(REPEAT_MS)  # which is also silence enough to give up the one connection
    world.say(world.connect("10.0.0.5:1"), report(5_000))
    assert "(49 more connections since the last line)" in caplog.records[-1].message
    assert world.master.refusals.count == 101


def test_a_slave_takes_the_place_of_a_silent_stranger() -> None:
    world = World(MemoryLog(LOG[:1000]), connections_max=3)
    follower = world.connect("10.0.0.2:1")
    world.say(follower, report(0))
    strangers = [world.connect(f"10.0.0.9:{number}") for number in range(10)]
    assert list(world.ended) == strangers[:8]
    second = world.connect("10.0.0.3:1")
    world.say(second, report(0))
    assert strangers[8] in world.ended
    assert {follower, second} <= set(world.master.slaves)
    assert len(world.master.slaves) == 3


def test_a_master_without_waiting_senders_sends_small_batches_together() -> None:
    world = World(MemoryLog(LOG[:1000]), batch_size=500)
    world.master.gathers = True
    link = world.connect()
    world.say(link, report(1000))
    world.take(link)
    world.step(GATHER_MS)
    world.log.data += LOG[1000:1100]
    world.step()
    assert world.take(link) == batch(1000, LOG[1000:1100])  # at once: nothing was sent for a while
    world.log.data += LOG[1100:1200]
    world.step()
    world.log.data += LOG[1200:1300]
    world.step(GATHER_MS - 1)
    assert (world.take(link), world.master.is_busy) == (b"", False)
    assert world.master.due_ms() == world.now_ms + 1 - GATHER_MS + GATHER_LATE_MS
    world.step(1)
    assert world.take(link) == batch(1100, LOG[1100:1300])
    world.log.data += LOG[1300:1900]
    assert world.master.is_busy  # a whole batch is there
    world.step()
    assert world.take(link) == batches(LOG[:1900], 1300, 500)
    world.say(link, report(1900))
    world.log.data += LOG[1900:2000]
    world.master.gathers = False
    world.step()
    assert world.take(link) == batch(1900, LOG[1900:2000])  # somebody waits for it


def test_what_is_stored_until_a_slave_reports_is_one_batch() -> None:
    world = World(MemoryLog(LOG[:1000]), batch_size=500)
    link = world.connect()
    world.say(link, report(1000))
    world.log.data += LOG[1000:1100]
    world.step()
    assert world.take(link) == batch(1000, LOG[1000:1100])
    for end in (1200, 1300, 1400):
        world.log.data += LOG[end - 100 : end]
        world.step()
    assert (world.take(link), world.master.is_busy) == (b"", False)
    world.say(link, report(1100))
    world.step()
    assert world.take(link) == batch(1100, LOG[1100:1400])


def test_a_slave_that_does_not_report_is_sent_more_all_the_same() -> None:
    world = World(MemoryLog(LOG[:1000]), batch_size=500)
    link = world.connect()
    world.say(link, report(1000))
    world.log.data += LOG[1000:1100]
    world.step()
    world.log.data += LOG[1100:1200]
    world.step()
    world.take(link)
    assert world.master.due_ms() == world.now_ms + GATHER_LATE_MS
    world.step(GATHER_LATE_MS)
    assert world.take(link) == batch(1100, LOG[1100:1200])
    world.log.data += LOG[1200:1900]  # more than a batch
    world.step()
    assert world.take(link) == batches(LOG[:1900], 1200, 500)


def test_a_slave_that_connects_again_does_not_count_as_two() -> None:
    """Its old connection may stay half open for a while: it has lost its power, or its network."""
    world = World(MemoryLog(LOG))
    one, two = world.connect("10.0.0.2:4000"), world.connect("10.0.0.3:4000")
    for link, offset in ((one, 2_000), (two, 500)):
        world.say(link, report(0))
        world.drain()
        world.say(link, report(offset))
    assert [world.master.acknowledged(count) for count in (1, 2)] == [2_000, 500]
    again = world.connect("10.0.0.2:4001")
    assert [world.master.acknowledged(count) for count in (1, 2)] == [2_000, 500]
    world.say(again, report(2_500))
    assert [world.master.acknowledged(count) for count in (1, 2, 3)] == [2_500, 500, 0]


def test_slaves_on_one_machine_count_once_they_report_again() -> None:
    world = World(MemoryLog(LOG))
    one = world.connect("127.0.0.1:4000")
    world.say(one, report(0))
    world.drain()
    world.say(one, report(2_000))
    two = world.connect("127.0.0.1:4001")
    world.say(two, report(0))
    assert [world.master.acknowledged(count) for count in (1, 2)] == [0, 0]
    world.drain()
    world.say(two, report(1_000))
    world.say(one, report(2_000))
    assert [world.master.acknowledged(count) for count in (1, 2)] == [2_000, 1_000]
