"""A slave compares its log with that of a master that has no epochs, such as Apache's without a controller."""

from collections.abc import Callable
from itertools import count

import pytest
from tests.unit.broker.asking import send
from tests.unit.broker.test_replication import copy_log, follow, slave

from kourou.broker.events import Answered, Turn
from kourou.broker.settings import Role
from kourou.protocol import headers
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.replication.links import Accepted, Closed, Connect, Link
from kourou.store import truncation
from kourou.store.epochs import Epochs
from kourou.store.truncation import SLICE_RECORDS
from kourou.testing.broker import ROOT, SMALL_STORE, SimulatedBroker

MASTER, MASTER_HA = "10.0.0.1:10911", "10.0.0.1:10912"
SEGMENT = SMALL_STORE.commit_log_file_size


def master_with(*bodies: bytes) -> SimulatedBroker:
    """A broker that had no slave, and so answers as one of Apache's: it has no epochs."""
    world = SimulatedBroker()
    client = world.connect()
    for body in bodies:
        assert client.ask(send(body)).code == 0
    return world


def slave_with(*bodies: bytes) -> SimulatedBroker:
    """A slave with the log of a master that has these messages."""
    world = slave(ha_master_address=None)
    world.machine.replication.follow(None, MASTER_HA, world.now_ms)
    world.step()
    link = follow(world)
    copy_log(master_with(*bodies), world, link)
    world.step(Closed(link))
    world.on_links.clear()
    return world


def asked_in(world: SimulatedBroker, master: SimulatedBroker) -> list[Command]:
    """The slave is told of its master, and asks it until it connects or gives up: its requests."""
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    commands = []
    while world.asked:
        asked = world.asked.pop(0)
        if asked.address == MASTER and asked.command.code in REQUESTS:
            commands.append(asked.command)
            world.step(Answered(asked.token, master.connect().ask(asked.command)))
    return commands


REQUESTS = {
    RequestCode.GET_BROKER_EPOCH_CACHE,
    RequestCode.GET_BROKER_RUNTIME_INFO,
    RequestCode.VIEW_MESSAGE_BY_ID,
}


def connects(world: SimulatedBroker) -> bool:
    return Connect(MASTER_HA) in world.on_links


def numbered(first: int, end: int, size: int = 1) -> list[bytes]:
    return [(b"%04d" % number) * size for number in range(first, end)]


def test_a_log_that_is_the_beginning_of_the_masters_is_followed() -> None:
    world = slave_with(*numbered(0, 3))
    end = world.store.log.end
    commands = asked_in(world, master_with(*numbered(0, 5)))
    assert connects(world)
    assert world.store.log.end == end
    views = [command.ext for command in commands if command.code == RequestCode.VIEW_MESSAGE_BY_ID]
    assert views == [headers.ViewMessage(offset=world.store.last_record).encode()]  # one is enough


def test_records_that_the_master_has_lost_and_replaced_by_others_of_their_size_are_cut_and_kept() -> None:
    """After a power failure of the master: without the comparison, the slave would go on after the lost ones."""
    world = slave_with(*numbered(0, 9))
    end = world.store.log.end
    master = master_with(*numbered(0, 6), *numbered(70, 80))
    asked_in(world, master)
    assert connects(world)
    cut = end // 9 * 6
    assert world.store.log.end == cut
    content = world.disk.open(ROOT / "kourou-cut" / f"{cut}-{end}" / "commitlog" / f"{0:020}").buffer
    assert b"0008" in bytes(content[cut:end])
    copy_log(master, world, follow(world))
    log = master.store.log
    assert bytes(world.store.log.read(0, log.end)) == bytes(log.read(0, log.end))


def test_records_after_the_end_of_the_masters_log_are_cut() -> None:
    world = slave_with(*numbered(0, 9))
    master = master_with(*numbered(0, 4))
    asked_in(world, master)
    assert connects(world)
    assert world.store.log.end == master.store.log.end


@pytest.mark.parametrize("lost", [1, 2, 7, 8, 9, 17, 23])
@pytest.mark.parametrize("size", [1_500, 1_501])
def test_the_first_record_that_differs_is_found_in_any_segment(lost: int, size: int) -> None:
    """Eight or nine messages of 6 KB fill a segment."""
    common = numbered(0, 24 - lost, size)
    world = slave_with(*common, *numbered(24 - lost, 24, size))
    assert world.store.log.end > 2 * SEGMENT
    master = master_with(*common, b"a short one", *numbered(70, 100, size))
    equal = master_with(*common).store.log.end
    asked_in(world, master)
    assert connects(world)
    assert world.store.log.end == equal
    copy_log(master, world, follow(world))
    assert world.store.reader.offsets("orders", 0) == master.store.reader.offsets("orders", 0)


def test_a_log_without_a_common_record_is_neither_cut_nor_followed() -> None:
    world = slave_with(*numbered(0, 9))
    end = world.store.log.end
    asked_in(world, master_with(*numbered(70, 90)))
    assert not connects(world)
    assert world.store.log.end == end


def test_a_log_that_ends_before_the_masters_begins_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    world = slave_with(*numbered(0, 3))
    master = SimulatedBroker()
    master.store.log.begin_at(2 * SEGMENT)
    master.store.dispatch_from(2 * SEGMENT)
    assert master.connect().ask(send()).code == 0
    asked_in(world, master)
    assert not connects(world)
    assert f"its log has the offsets {2 * SEGMENT} to" in caplog.text


def answer_with(code: int) -> Callable[[Command], Command]:
    return lambda command: command.answer(code, "no")


@pytest.mark.parametrize(("code", "connecting"), [(16, True), (3, True)])
def test_a_master_that_does_not_answer_such_requests_is_followed_with_a_warning(
    code: int, connecting: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """For instance because of its access control."""
    world = slave_with(*numbered(0, 3))
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    while world.asked:
        asked = world.asked.pop(0)
        world.step(Answered(asked.token, asked.command.answer(code, "no")))
    assert connects(world) is connecting
    assert "without comparing the logs" in caplog.text


def test_a_lost_answer_is_asked_for_again() -> None:
    world = slave_with(*numbered(0, 3))
    master = master_with(*numbered(0, 3))
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    while world.asked:
        asked = world.asked.pop(0)
        is_view = asked.command.code == RequestCode.VIEW_MESSAGE_BY_ID
        known = asked.command.code in REQUESTS and not is_view
        world.step(Answered(asked.token, master.connect().ask(asked.command) if known else None))
    assert not connects(world)
    asked_in(world, master)
    assert connects(world)


SLOW_NS = 6_000_000
"""What each look at the clock takes: every slice ends at its first yield."""


def in_turns(world: SimulatedBroker, master: SimulatedBroker) -> int:
    """Compare as `asked_in`, with a slow clock: how many turns there were in which nothing else was done."""
    clock = count(0, SLOW_NS)
    world.machine.turns._clock_ns = lambda: next(clock)
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    turns = 0
    while world.asked or world.machine.is_busy:
        while world.asked:
            asked = world.asked.pop(0)
            if asked.command.code in REQUESTS:
                world.step(Answered(asked.token, master.connect().ask(asked.command)))
        if world.machine.is_busy:
            world.step(Turn())
            turns += 1
    return turns


def many(first: int, end: int) -> list[bytes]:
    """Small messages: a segment has hundreds of them."""
    return [b"%04d" % number for number in range(first, end)]


@pytest.mark.parametrize("has_epochs", [False, True])
def test_a_long_segment_is_compared_and_cut_in_slices(has_epochs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment has up to 1 GiB of records, and clients are served while they are read."""
    monkeypatch.setattr(truncation, "SKIPPED_RECORDS", SLICE_RECORDS)
    common, lost = 2 * SLICE_RECORDS - 200, 100
    world = slave_with(*many(0, common + lost))
    master = master_with(*many(0, common), *many(7_000, 7_200))
    equal = master_with(*many(0, common)).store.log.end
    if has_epochs:
        master.step(Accepted(Link("10.0.0.3:1")))
        master.store.history.adopt(Epochs(((1, 0), (2, equal))))
    assert in_turns(world, master) > 2
    assert connects(world)
    assert world.store.log.end == equal


def test_a_slave_that_becomes_the_master_meanwhile_cuts_nothing() -> None:
    world = slave_with(*many(0, 400))
    master = master_with(*many(0, 300), *many(7_000, 7_200))
    end = world.store.log.end
    clock = count(0, SLOW_NS)
    world.machine.turns._clock_ns = lambda: next(clock)
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    while not world.machine.is_busy:
        asked = world.asked.pop(0)
        if asked.command.code in REQUESTS:
            world.step(Answered(asked.token, master.connect().ask(asked.command)))
    world.machine.roles.become(Role.ASYNC_MASTER, 0, world.now_ms)
    world.take_turns()
    assert not connects(world)
    assert world.store.log.end == end


def test_epochs_after_a_cut_are_forgotten_before_their_offsets_are_used_again() -> None:
    world = slave_with(*numbered(0, 9))
    cut = world.store.log.end // 9 * 4
    world.store.history.adopt(Epochs(((1, 0), (2, cut + 10))))
    asked_in(world, master_with(*numbered(0, 4)))
    assert world.store.history.all == Epochs(((1, 0),))


def test_a_comparison_with_one_master_does_not_count_for_the_next_one() -> None:
    """The name servers announce another master while the slave waits for the old one's answer."""
    world = slave_with(*numbered(0, 9))
    end = world.store.log.end
    old, new = master_with(*numbered(0, 9)), master_with(*numbered(0, 6), *numbered(70, 80))
    for master in (old, new):
        master.step(Accepted(Link("10.0.0.3:1")))  # they have epochs
    new.store.history.adopt(Epochs(((1, 0), (2, end // 9 * 6))))
    world.machine.replication.follow(MASTER, MASTER_HA, world.now_ms)
    world.tick(1_000)
    (asked,) = [ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_EPOCH_CACHE]
    world.asked.clear()
    world.machine.replication.follow("10.0.0.7:10911", "10.0.0.7:10912", world.now_ms)
    world.tick(1)
    world.step(Answered(asked.token, old.connect().ask(asked.command)))
    assert not [effect for effect in world.on_links if isinstance(effect, Connect)]
    world.tick(1)
    (asked,) = [ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_EPOCH_CACHE]
    assert asked.address == "10.0.0.7:10911"
    world.step(Answered(asked.token, new.connect().ask(asked.command)))
    assert world.store.log.end == end // 9 * 6
    assert Connect("10.0.0.7:10912") in world.on_links
