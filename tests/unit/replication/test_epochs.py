"""Both ends of replication under a controller."""

import struct
from collections.abc import Sequence

import pytest
from tests.unit.replication.logs import DiskFull, MemoryLog, real_log

from kourou.replication.epoch_follower import HELD_MAX, EpochFollower
from kourou.replication.epoch_frames import (
    EpochPiece,
    Hello,
    MasterWords,
    SlaveWords,
    Welcome,
    encode_header,
    encode_hello,
    encode_report,
    encode_welcome,
)
from kourou.replication.epoch_master import EpochMaster
from kourou.replication.follower import FollowerSettings
from kourou.replication.links import Connect, HangUp, Link, LinkEffect, Transfer
from kourou.replication.master import MasterSettings
from kourou.store.epochs import Epochs

LOG = real_log(60)
MASTER = "10.0.0.1:10912"


def records(log: bytes, count: int) -> int:
    """Where so many records end."""
    at = 0
    for _ in range(count):
        at += int.from_bytes(log[at : at + 4])
    return at


class EpochLog(MemoryLog):
    """A log in memory with its epochs; the disk is waited for until `settle`."""

    def __init__(self, data: bytes = b"", epochs: Sequence[tuple[int, int]] = (), start: int = 0) -> None:
        super().__init__(data, start)
        self.history = Epochs(epochs)
        self.confirm_offset = self.end
        self.is_agreeing = False
        self.disagreement: str | None = None
        self._goal: tuple[int, Epochs] | None = None

    @property
    def epochs(self) -> Sequence[tuple[int, int]]:
        return self.history.entries

    @property
    def last_epoch(self) -> int:
        return self.history.last.number if self.history.last else 0

    def epoch_at(self, offset: int) -> tuple[int, int, int]:
        number = self.history.at(offset)
        return number, self.history.start_of(number) or 0, self.history.end_of(number, 2**63 - 1)

    def agree(self, end: int, epochs: tuple[tuple[int, int], ...]) -> None:
        master = Epochs(epochs)
        cut = self.history.diverges_at(self.end, master, end) if self.history.entries else self.end
        self.disagreement = "no epoch in common" if cut is None else None
        self.is_agreeing = True
        self._goal = None if cut is None else (cut, master)

    def settle(self) -> None:
        self.is_agreeing = False
        if self._goal is not None:
            cut, self.history = self._goal
            del self.data[cut - self.start :]

    def confirm(self, offset: int) -> None:
        self.confirm_offset = min(offset, self.end)


class Pair:
    """A master and a slave, with a connection that loses nothing."""

    def __init__(self, master: EpochLog, slave: EpochLog) -> None:
        self.now_ms = 1_000
        self.source, self.target = master, slave
        self.master = EpochMaster(master, MasterSettings())
        self.follower = EpochFollower(
            slave, FollowerSettings(), lambda: Hello(2, False, False), write_errors=(DiskFull,)
        )
        self.link = Link("10.0.0.2:4711")
        self.effects: list[LinkEffect] = []
        self.follower.follow(MASTER, self.now_ms)
        self.follower.step(self.now_ms)
        assert self.follower.take_effects() == [Connect(MASTER)]
        self.ours = Link(MASTER)
        self.master.connected(self.link, self.now_ms)
        self.follower.connected(self.ours, self.now_ms)

    def exchange(self, piece_size: int = 1 << 20) -> None:
        """Carry bytes to and fro until nothing is left."""
        for _ in range(1_000):
            self.master.step(self.now_ms)
            self.follower.step(self.now_ms)
            if self.target.is_agreeing:
                self.target.settle()
                self.follower.step(self.now_ms)
            to_slave, to_master = self.master.take_effects(), self.follower.take_effects()
            if not to_slave and not to_master:
                return
            self.effects += [*to_slave, *to_master]
            for effect in to_slave:
                if isinstance(effect, Transfer):
                    data = effect.head + bytes(effect.data or b"")
                    for at in range(0, len(data), piece_size):
                        self.follower.received(self.ours, data[at : at + piece_size], self.now_ms)
                        if self.target.is_agreeing:
                            self.target.settle()
                            self.follower.step(self.now_ms)
            for effect in to_master:
                if isinstance(effect, Transfer):
                    self.master.received(self.link, effect.head, self.now_ms)
        raise AssertionError("they never come to rest")


def test_frames_are_those_of_apache() -> None:
    assert encode_hello(Hello(2, False, False)).hex() == "00000001000000000000000000000002"
    assert encode_welcome(294, [(1, 0)]).hex() == "000000010000000c00000000000001260000000100000001" + "0" * 16
    header = encode_header(0, 294, 1, 0, 294)
    assert header.hex() == "0000000200000126" + "0" * 16 + "00000001" + "0" * 16 + "0000000000000126"
    assert encode_report(294).hex() == "000000020000000000000126"


@pytest.mark.parametrize("size", [1, 3, 16, 100])
def test_frames_may_be_cut_anywhere(size: int) -> None:
    stream = encode_hello(Hello(7, True, True)) + encode_report(5) + encode_report(9)
    words = SlaveWords()
    said = [word for at in range(0, len(stream), size) for word in words.feed(stream[at : at + size])]
    assert said == [Hello(7, True, True), 5, 9]
    stream = (
        encode_welcome(99, [(1, 0), (3, 50)])
        + encode_header(50, 3, 3, 50, 40)
        + b"abc"
        + encode_header(53, 0, 3, 50, 53)
    )
    reader = MasterWords()
    got = [word for at in range(0, len(stream), size) for word in reader.feed(stream[at : at + size])]
    assert got[0] == Welcome(99, 3, ((1, 0), (3, 50)))
    pieces = [word for word in got[1:] if isinstance(word, EpochPiece)]
    assert b"".join(bytes(piece.data) for piece in pieces) == b"abc"
    assert pieces[0][:1] + pieces[0][2:] == (50, 3, 50, 40)
    assert pieces[-1][:1] + pieces[-1][2:] == (53, 3, 50, 53)


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">iiqi", 1, 13, 0, 0),
        struct.pack(">iiqi", 1, -12, 0, 0),
        struct.pack(">iiqi", 7, 0, 0, 0),
        struct.pack(">iiqi", 1, 12 * 100_001, 0, 0),
    ],
)
def test_a_welcome_that_makes_no_sense(data: bytes) -> None:
    with pytest.raises(ValueError, match="master"):
        list(MasterWords().feed(data))


@pytest.mark.parametrize("piece_size", [1, 37, 1 << 20])
def test_a_new_slave_gets_log_and_epochs(piece_size: int) -> None:
    data = LOG[: records(LOG, 9)]
    start = records(LOG, 4)
    pair = Pair(EpochLog(data, [(1, 0), (4, start)]), EpochLog())
    pair.exchange(piece_size)
    assert bytes(pair.target.data) == data
    assert pair.target.history == pair.source.history
    assert pair.target.confirm_offset == len(data)
    assert pair.master.acknowledged_by(2) == len(data)
    assert pair.master.is_caught_up(2, pair.now_ms, 0)


def test_a_batch_has_bytes_of_one_epoch() -> None:
    start = records(LOG, 4)
    pair = Pair(EpochLog(LOG[: records(LOG, 9)], [(1, 0), (4, start)]), EpochLog())
    pair.exchange()
    heads = [
        struct.unpack(">iiqiqq", one.head) for one in pair.effects if isinstance(one, Transfer) and one.data is not None
    ]
    assert [(head[2], head[2] + head[1], head[3], head[4]) for head in heads] == [
        (0, start, 1, 0),
        (start, records(LOG, 9), 4, start),
    ]


def test_a_log_that_went_another_way_is_cut_before_anything_is_reported() -> None:
    common, end = records(LOG, 4), records(LOG, 9)
    other = real_log(12, body_size=404)
    mine = LOG[:common] + bytes(records(other, 3))
    pair = Pair(EpochLog(LOG[:end], [(1, 0), (3, common)]), EpochLog(mine, [(1, 0), (2, common)]))
    pair.exchange()
    assert bytes(pair.target.data) == LOG[:end]
    assert pair.target.history == Epochs([(1, 0), (3, common)])
    said = [
        struct.unpack(">iq", one.head)[1] for one in pair.effects if isinstance(one, Transfer) and len(one.head) == 12
    ]
    assert said[0] == common


def test_nothing_is_reported_while_the_disk_is_waited_for() -> None:
    data = LOG[: records(LOG, 4)]
    log = EpochLog(data, [(1, 0)])
    follower = EpochFollower(log, FollowerSettings(), lambda: Hello(2, False, False), write_errors=(DiskFull,))
    follower.follow(MASTER, 0)
    follower.step(0)
    link = Link(MASTER)
    follower.connected(link, 0)
    follower.take_effects()
    follower.received(link, encode_welcome(len(data), [(1, 0)]), 0)
    for now_ms in range(0, 15_000, 1_000):
        follower.step(now_ms)
    assert follower.take_effects() == []
    assert not follower.is_following
    log.settle()
    follower.step(15_000)
    (said,) = follower.take_effects()
    assert isinstance(said, Transfer)
    assert said.head == encode_report(len(data))
    assert follower.is_following


def test_what_comes_while_the_disk_is_waited_for_is_bounded() -> None:
    log = EpochLog(LOG[: records(LOG, 4)], [(1, 0)])
    follower = EpochFollower(log, FollowerSettings(), lambda: Hello(2, False, False), write_errors=(DiskFull,))
    follower.follow(MASTER, 0)
    follower.step(0)
    link = Link(MASTER)
    follower.connected(link, 0)
    follower.received(link, encode_welcome(log.end, [(1, 0)]), 0)
    follower.received(link, bytes(HELD_MAX), 0)
    follower.take_effects()
    follower.received(link, b"x", 0)
    assert any(isinstance(effect, HangUp) for effect in follower.take_effects())


def test_logs_without_a_common_epoch_are_refused() -> None:
    data = LOG[: records(LOG, 4)]
    pair = Pair(EpochLog(data, [(3, 0)]), EpochLog(data, [(1, 0)]))
    pair.exchange()
    assert any(isinstance(effect, HangUp) and "no epoch in common" in effect.reason for effect in pair.effects)
    assert bytes(pair.target.data) == data


def test_a_master_that_was_elected_again_goes_on_with_a_new_epoch() -> None:
    first, end = records(LOG, 4), records(LOG, 9)
    pair = Pair(EpochLog(LOG[:first], [(1, 0)]), EpochLog())
    pair.exchange()
    pair.source.history = pair.source.history.begun(2, first)
    pair.source.data += LOG[first:end]
    pair.source.confirm_offset = end
    pair.exchange()
    assert bytes(pair.target.data) == LOG[:end]
    assert pair.target.history == Epochs([(1, 0), (2, first)])
    assert pair.follower.is_following


def test_a_master_that_was_elected_twice_without_a_message_keeps_its_slaves() -> None:
    """The first of both epochs has no byte, and the second one begins where it did."""
    first, end = records(LOG, 4), records(LOG, 9)
    pair = Pair(EpochLog(LOG[:first], [(1, 0)]), EpochLog())
    pair.exchange()
    for number in (2, 3):
        pair.source.history = pair.source.history.cut(first).begun(number, first)
        pair.now_ms += 6_000  # a heartbeat tells the epoch
        pair.exchange()
        assert pair.target.history == Epochs([(1, 0), (number, first)])
        assert pair.follower.is_following
    pair.source.data += LOG[first:end]
    pair.exchange()
    assert bytes(pair.target.data) == LOG[:end]


def test_an_empty_master_of_apache_sends_heartbeats_at_minus_one() -> None:
    pair = Pair(EpochLog(b"", [(1, 0)]), EpochLog())
    pair.exchange()
    pair.follower.received(pair.ours, encode_header(-1, 0, 1, 0, 0), pair.now_ms)
    assert pair.follower.is_following


def test_a_second_connection_of_a_replica_replaces_the_first() -> None:
    pair = Pair(EpochLog(LOG[: records(LOG, 4)], [(1, 0)]), EpochLog())
    pair.exchange()
    again = Link("10.0.0.2:4712")
    pair.master.connected(again, pair.now_ms)
    pair.master.received(again, encode_hello(Hello(2, False, False)), pair.now_ms)
    assert [one.link for one in pair.master.take_effects() if isinstance(one, HangUp)] == [pair.link]
    assert pair.master.acknowledged_by(2) is None
    pair.master.closed(pair.link)
    assert 2 in pair.master.replicas


def test_a_plain_slave_is_refused() -> None:
    master = EpochMaster(EpochLog(LOG[: records(LOG, 4)], [(1, 0)]), MasterSettings())
    link = Link("10.0.0.9:1")
    master.connected(link, 0)
    master.received(link, struct.pack(">q", 0), 0)
    (effect,) = master.take_effects()
    assert isinstance(effect, HangUp)
    assert "set enableControllerMode alike" in effect.reason


def test_a_report_before_a_hello_and_false_claims_count_nothing() -> None:
    master = EpochMaster(EpochLog(LOG[: records(LOG, 4)], [(1, 0)]), MasterSettings())
    link = Link("10.0.0.9:1")
    master.connected(link, 0)
    master.received(link, encode_hello(Hello(5, False, False)) + encode_report(1 << 40), 0)
    assert any(isinstance(effect, HangUp) for effect in master.take_effects())
    assert master.replicas == {}


def test_a_replica_that_stays_behind_is_not_caught_up_for_long() -> None:
    data = LOG[: records(LOG, 9)]
    pair = Pair(EpochLog(data, [(1, 0)]), EpochLog())
    pair.exchange()
    pair.source.data += LOG[len(data) : records(LOG, 12)]
    assert pair.master.is_caught_up(2, pair.now_ms + 15_000, 15_000)
    assert not pair.master.is_caught_up(2, pair.now_ms + 15_001, 15_000)
