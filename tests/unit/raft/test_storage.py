"""The store of a member, on a simulated disk."""

from dataclasses import replace

import pytest
from tests.unit.store.small import ROOT, SEGMENT, SYNC, Small, message

from kourou.raft.events import HardState
from kourou.raft.members import Member, Members
from kourou.raft.storage import EPOCH_FILE, STATE_FILE, RaftStorage, refuse_member
from kourou.replication.records import BadCopyError
from kourou.store.epochs import Epochs
from kourou.store.errors import BadStoreError

MEMBERS = (Member("n0"), Member("n1"), Member("n2"))


def leader_with(count: int, size: int = 500) -> tuple[Small, RaftStorage]:
    small = Small(settings=SYNC)
    storage = RaftStorage(small.store)
    storage.state_file.write(HardState(1, "n0", Members(MEMBERS)))
    storage.epoch_file.write(Epochs([(1, 0)]))
    storage.begin_term(1, "n0", small.now_ms)
    for number in range(count):
        small.store.append([message(b"%d" % number + bytes(size))], small.now_ms)
    return small, storage


def copy(source: RaftStorage, target: RaftStorage, start: int, end: int, limit: int, now_ms: int) -> None:
    while start < end:
        stop = source.batch_end(start, limit)
        assert stop - start <= limit or source.batch_end(start, 1) == stop
        target.append(start, bytes(source.read(start, stop - start)), now_ms)
        start = stop


@pytest.mark.parametrize("limit", [1, 700, 3000, 10**6])
def test_a_log_is_copied_in_batches_of_whole_records_over_segments(limit: int) -> None:
    small, source = leader_with(40)
    end = small.store.log.end
    assert end > 2 * SEGMENT
    other = Small(settings=SYNC)
    target = RaftStorage(other.store)
    copy(source, target, 0, end, limit, small.now_ms)
    assert other.store.log.end == end
    for start in range(0, end, SEGMENT):
        size = min(end - start, SEGMENT)
        assert bytes(target.read(start, size)) == bytes(source.read(start, size))


def test_only_whole_valid_records_are_appended() -> None:
    small, source = leader_with(3)
    data = bytearray(source.read(0, small.store.log.end))
    other = Small(settings=SYNC)
    target = RaftStorage(other.store)
    with pytest.raises(BadCopyError, match="not a whole record"):
        target.append(0, bytes(data[:-1]), small.now_ms)
    end = other.store.log.end
    data[-3] ^= 1
    data[300] ^= 1
    with pytest.raises(BadCopyError):
        target.append(end, bytes(data[end:])[::-1], small.now_ms)


def test_state_and_epochs_survive_and_are_those_of_one_member() -> None:
    small, storage = leader_with(3)
    state = HardState(4, "n1", storage.open(MEMBERS)[0].members)
    storage.state_file.write(state)
    small.store.flush(small.now_ms)
    again = small.again(small.disk.crash())
    hard, log = RaftStorage(again.store).open(())
    assert hard == state
    assert (log.end, log.epochs) == (small.store.log.end, Epochs([(1, 0)]))
    RaftStorage(again.store).state_file.write(replace_term(state, 0))
    with pytest.raises(BadStoreError, match="not of the same member"):
        RaftStorage(again.store).open(MEMBERS)


def replace_term(state: HardState, term: int) -> HardState:
    return HardState(term, None, state.members)


@pytest.mark.parametrize("name", [STATE_FILE, EPOCH_FILE])
def test_a_broken_file_is_an_error_with_a_remedy(name: str) -> None:
    small, storage = leader_with(1)
    small.disk.replace(ROOT / name, b"{broken")
    with pytest.raises(BadStoreError, match="whole store"):
        storage.open(MEMBERS)


def test_a_log_of_no_group_is_adopted_only_on_demand() -> None:
    small = Small(settings=replace(SYNC))
    small.store.append([message(b"old")], small.now_ms)
    storage = RaftStorage(small.store)
    with pytest.raises(BadStoreError, match="raftAdoptLog"):
        storage.open(MEMBERS)
    hard, log = storage.open(MEMBERS, adopt=True)
    assert (hard.term, log.epochs) == (1, Epochs([(1, 0)]))
    assert storage.open(MEMBERS)[1].epochs == log.epochs


@pytest.mark.parametrize("appends", [True, False])
def test_a_log_that_another_broker_has_appended_to_is_refused(appends: bool) -> None:
    """The group may have other records at the same offsets, in the same epoch: nobody could tell them apart."""
    small, storage = leader_with(3)
    hard, _ = storage.open(MEMBERS)
    small.store.close(small.now_ms)
    path = small.store.paths.clean_stop
    stop = small.disk.read(path)
    assert stop is not None
    other = small.again()
    if appends:
        other.store.append([message(b"foreign")], small.now_ms)
    other.store.close(small.now_ms)
    small.disk.replace(path, stop)  # Apache's broker does not know the file
    for _ in range(2):  # a second try must not succeed either
        again = small.again()
        if appends:
            with pytest.raises(BadStoreError, match="another broker has appended"):
                RaftStorage(again.store).open(MEMBERS)
        else:
            assert RaftStorage(again.store).open(MEMBERS)[0] == hard
        again.store.close(small.now_ms)


def test_only_members_of_the_group_open_the_store_of_a_member() -> None:
    small, _ = leader_with(1)
    with pytest.raises(BadStoreError, match="enableDLegerCommitLog"):
        refuse_member(small.store)
    refuse_member(Small(settings=SYNC).store)


@pytest.mark.parametrize("epochs", [Epochs(), Epochs([(1, 2 * SEGMENT)]), Epochs([(2, SEGMENT), (4, 2 * SEGMENT)])])
def test_the_epochs_of_an_adopted_log_cover_it_and_the_byte_before(epochs: Epochs) -> None:
    """Otherwise empty members could not compare it with theirs."""
    small = Small(settings=SYNC)
    storage = RaftStorage(small.store)
    small.store.append([message(b"")], small.now_ms)
    storage.cut(0, small.now_ms)
    storage.restart(SEGMENT)
    for number in range(40):
        small.store.append([message(b"%d" % number + bytes(500))], small.now_ms)
    assert small.store.log.end > 2 * SEGMENT
    if epochs:
        storage.epoch_file.write(epochs)
    hard, log = storage.open(MEMBERS, adopt=True)
    assert log.epochs.before(log.start) == log.epochs.at(log.start) == (2 if hard.term == 4 else 1)
    assert log.epochs.at(log.end - 1) == hard.term == (4 if len(epochs.entries) == 2 else 1)
    assert storage.open(MEMBERS)[1].epochs == log.epochs


def test_the_first_record_of_a_term_goes_on_behind_records_that_are_not_visible() -> None:
    small, source = leader_with(2)
    other = Small(settings=SYNC)
    target = RaftStorage(other.store)
    copy(source, target, 0, small.store.log.end, 10**6, small.now_ms)
    target.begin_term(2, "n1", small.now_ms)
    offsets = [record.queue_offset for record in other.store.log.records(0) if record.topic != b"orders"]
    assert offsets == [0, 1]


def test_a_log_that_is_far_behind_begins_where_the_leaders_begins() -> None:
    small, source = leader_with(40)
    end = small.store.log.end
    other = Small(settings=SYNC)
    target = RaftStorage(other.store)
    copy(source, target, 0, source.batch_end(0, 3000), 10**6, small.now_ms)
    other.store.flush(small.now_ms)
    other.store.dispatch()
    target.cut(0, small.now_ms)
    target.restart(SEGMENT)
    copy(source, target, SEGMENT, end, 10**6, small.now_ms)
    other.store.flush(small.now_ms)
    other.store.dispatch()
    assert (other.store.log.start, other.store.dispatched) == (SEGMENT, end)
    small.store.flush(small.now_ms)
    small.store.dispatch()
    last = small.store.reader.offsets("orders", 0)[1]
    assert other.store.reader.offsets("orders", 0)[1] == last
    assert len(other.store.reader.get("orders", 0, last - 1, 1).records) == 1
