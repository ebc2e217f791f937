"""One member, message by message: elections, copying the log, commits, reads, transfers, members."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import pytest
from tests.simulation.raft_storage import record
from tests.unit.raft.group import SETTINGS, THREE, One

from kourou.raft.events import Answered, ChangeMembers, Committed, Health, Read, ReadReady, Received, Transfer
from kourou.raft.members import Member, fault_of_change
from kourou.raft.messages import AppendAnswer, AppendRequest, Message, TakeOver, VoteAnswer, VoteRequest
from kourou.raft.quorum import agreed, majority
from kourou.raft.settings import RaftSettings
from kourou.store.epochs import Epochs

T = TypeVar("T")
LATER_MS = 2 * SETTINGS.election_ms + 1


def only(kind: type[T], sent: list[tuple[str, Message]]) -> list[T]:
    return [message for _, message in sent if isinstance(message, kind)]


def sent_to(peer: str, sent: list[tuple[str, Message]]) -> list[AppendRequest]:
    return [message for to, message in sent if to == peer and isinstance(message, AppendRequest)]


def starts(sent: list[tuple[str, Message]], peer: str = "n1") -> list[int]:
    """The offsets at which the bytes begin that this member was sent, or at which it was asked for its log."""
    return [message.previous for message in sent_to(peer, sent)]


def asks(
    term: int, *, end: int = 0, last_epoch: int = 0, trial: bool = False, is_transfer: bool = False
) -> VoteRequest:
    return VoteRequest("n1", term, last_epoch, end, 0, 1, trial, is_transfer)


def ships(
    term: int, previous: int, previous_epoch: int, epoch: int, *records: int, stamp: int = 1, commit: int = 0
) -> AppendRequest:
    data = b"".join(record(number, 20) for number in records)
    return AppendRequest("n1", term, stamp, previous, previous_epoch, epoch, commit, data=data)


def has(
    one: One, matched: int, *, sender: str = "n1", stamp: int | None = None, durable: int | None = None
) -> AppendAnswer:
    term = one.raft.node.term
    if stamp is None:
        stamp = one.now_ms << 20
    return AppendAnswer(sender, term, stamp, True, matched, matched if durable is None else durable, 0, term, 1)


def elected(*, records: int = 0, epochs: Iterable[tuple[int, int]] = (), settings: RaftSettings = SETTINGS) -> One:
    """n0 leads in term 1, and has appended the first record of it."""
    one = One(records=records, epochs=epochs, settings=settings)
    one.step(ms=LATER_MS)
    one.hear(VoteAnswer("n1", 1, granted=True, trial=True))
    one.hear(VoteAnswer("n1", 1, granted=True))
    assert one.raft.is_open
    one.flush()
    one.said()
    return one


# ── Elections ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_majorities() -> None:
    assert [majority(count) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert [agreed(values) for values in ([7], [7, 3], [7, 3, 5], [9, 7, 3, 5], [1, 2, 3, 4, 5])] == [7, 3, 5, 5, 3]


def test_a_trial_comes_before_a_term() -> None:
    one = One()
    one.step(ms=LATER_MS)
    assert [(to, message) for to, message in one.said()] == [
        ("n1", VoteRequest("n0", 1, 0, 0, 0, 1, trial=True)),
        ("n2", VoteRequest("n0", 1, 0, 0, 0, 1, trial=True)),
    ]
    assert one.raft.node.term == 0
    assert not one.jobs


def test_a_refused_trial_is_soon_repeated() -> None:
    """The other member may have heard from the leader a moment before that was gone."""
    one = One()
    one.step(ms=LATER_MS)
    one.hear(VoteAnswer("n1", 0, granted=False, trial=True))
    one.step(ms=SETTINGS.election_ms // 2)
    assert [message.trial for message in only(VoteRequest, one.said())] == [True, True]


def test_a_member_that_would_vote_for_another_one_does_not_compete_with_it() -> None:
    one = One()
    due_ms = one.raft.due_ms
    one.step(ms=due_ms - 1)
    assert [answer.granted for answer in only(VoteAnswer, one.hear(asks(1, trial=True)))] == [True]
    one.step(ms=10)
    assert one.said() == []
    one.step(ms=SETTINGS.election_ms // 2)
    assert [message.trial for message in only(VoteRequest, one.said())] == [True, True], "but not for long"


def test_a_candidate_votes_for_itself_on_disk_before_it_asks() -> None:
    one = One()
    one.step(ms=LATER_MS)
    one.said()
    one.step(Received(VoteAnswer("n1", 1, granted=True, trial=True)))
    assert one.said() == []
    assert one.jobs
    one.finish()
    assert (one.storage.hard.term, one.storage.hard.vote) == (1, "n0")
    assert [message.trial for message in only(VoteRequest, one.said())] == [False, False]


def test_a_vote_is_on_disk_before_it_is_given() -> None:
    one = One()
    one.step(ms=SETTINGS.election_ms)
    one.step(Received(asks(4)))
    assert one.said() == []
    one.finish()
    assert one.said() == [("n1", VoteAnswer("n0", 4, granted=True))]
    assert (one.storage.hard.term, one.storage.hard.vote) == (4, "n1")


def test_one_vote_per_term() -> None:
    one = One()
    one.step(ms=SETTINGS.election_ms)
    one.hear(asks(4))
    other = VoteRequest("n2", 4, 9, 999, 0, 1)
    assert [answer.granted for answer in only(VoteAnswer, one.hear(other))] == [False]
    assert [answer.granted for answer in only(VoteAnswer, one.hear(asks(4)))] == [True]


@pytest.mark.parametrize(
    ("last_epoch", "end", "granted"), [(2, 60, True), (2, 40, False), (1, 999, False), (3, 0, True)]
)
def test_a_vote_is_for_a_log_that_is_as_new(last_epoch: int, end: int, granted: bool) -> None:
    one = One(epochs=[(1, 0), (2, 40)], records=3)
    one.step(ms=SETTINGS.election_ms)
    assert only(VoteAnswer, one.hear(asks(4, end=end, last_epoch=last_epoch)))[0].granted is granted


def test_no_member_votes_against_a_leader_that_was_just_heard() -> None:
    one = One()
    one.step(ms=SETTINGS.election_ms)
    one.hear(ships(1, 0, 0, 0))
    assert only(VoteAnswer, one.hear(asks(2))) == [VoteAnswer("n0", 1, granted=False)]
    assert one.raft.node.term == 1
    assert only(VoteAnswer, one.hear(asks(2, is_transfer=True))) == [VoteAnswer("n0", 2, granted=True)]


def test_after_a_start_there_may_have_been_a_leader() -> None:
    one = One()
    assert [answer.granted for answer in only(VoteAnswer, one.hear(asks(2)))] == [False]


def test_old_members_are_not_elected_and_learn_the_new_ones() -> None:
    one = One()
    one.step(ms=SETTINGS.election_ms)
    answer = only(VoteAnswer, one.hear(VoteRequest("n1", 2, 9, 999, 0, 0)))[0]
    assert not answer.granted
    assert answer.members == THREE


def test_a_leader_without_a_majority_gives_up() -> None:
    one = elected()
    for _ in range(6):
        one.step(ms=200)
    assert one.raft.role.name == "follower"


def test_a_leader_that_cannot_write_gives_up_and_is_not_elected_before_it_can() -> None:
    one = elected()
    one.step(Health(False))
    assert one.raft.role.name == "follower"
    one.said()
    one.step(ms=LATER_MS)
    assert one.said() == []
    one.step(Health(True))
    one.step(ms=LATER_MS)
    assert only(VoteRequest, one.said())


# ── Copying the log ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_bytes_are_acknowledged_when_they_are_on_disk() -> None:
    one = One()
    assert one.hear(ships(1, 0, 0, 1, 1, 2)) == []
    assert one.end == 40
    assert one.storage.epochs == Epochs([(1, 0)])
    one.flush()
    assert [(answer.matched, answer.durable) for answer in only(AppendAnswer, one.said())] == [(40, 40)]


def test_a_repeated_request_is_answered_at_once() -> None:
    one = One()
    one.hear(ships(1, 0, 0, 1, 1, 2))
    answer = only(AppendAnswer, one.hear(ships(1, 0, 0, 1, 1, 2, stamp=2)))[0]
    assert (answer.ok, answer.matched, answer.durable, answer.stamp) == (True, 40, 0, 2)
    assert one.end == 40


def test_an_old_request_cuts_nothing() -> None:
    one = One()
    one.hear(ships(1, 0, 0, 1, 1, 2))
    one.hear(ships(1, 40, 1, 1, 3, stamp=2))
    one.hear(ships(1, 0, 0, 1, 1, stamp=1))
    assert one.end == 60


def test_an_epoch_is_on_disk_before_its_first_byte() -> None:
    one = One()
    one.step(Received(ships(1, 0, 0, 1, 1)))
    while one.jobs:
        assert one.end == 0
        job = one.jobs[0]
        one.storage.perform(job, 0)
        one.finish()
    assert one.end == 20
    assert one.storage.epochs.before(20) == 1


def test_other_bytes_are_cut_on_disk_before_new_ones_come() -> None:
    one = One(epochs=[(1, 0), (2, 40)], records=4)
    one.hear(ships(5, 40, 1, 4, 7))
    assert one.end == 60
    assert one.storage.epochs == Epochs([(1, 0), (4, 40)])


@pytest.mark.parametrize(
    ("previous", "epoch", "hint"),
    [
        (100, 2, (2, 80)),  # shorter: its end
        (80, 3, (2, 80)),  # another epoch there: the leader finds where its epoch 2 ends
        (80, 1, (1, 40)),  # an epoch that the leader has not: the end of the one before
        (60, 0, (0, 0)),
    ],
)
def test_a_refusal_says_where_logs_may_meet(previous: int, epoch: int, hint: tuple[int, int]) -> None:
    one = One(epochs=[(1, 0), (2, 40)], records=4)
    answer = only(AppendAnswer, one.hear(ships(5, previous, epoch, epoch)))[0]
    assert not answer.ok
    assert (answer.hint_epoch, answer.matched) == hint


def test_a_log_that_ends_before_the_leaders_begins_there() -> None:
    one = One(epochs=[(1, 0)], records=2)
    for nonsense in ((0, 0), (3, 200), (2, 160)):  # the byte before 200 would not be of epoch 3 after that
        assert not one.hear(AppendRequest("n1", 5, 1, 200, 3, 3, 200, restart=nonsense))
    restart = AppendRequest("n1", 5, 1, 200, 3, 3, 200, restart=(3, 160))
    answer = only(AppendAnswer, one.hear(restart))[0]
    assert (answer.ok, answer.matched) == (True, 200)
    assert (one.storage.start, one.end, one.storage.epochs) == (200, 200, Epochs([(3, 160)]))
    one.hear(AppendRequest("n1", 5, 2, 200, 3, 5, 200, data=record(1, 20)))
    assert one.end == 220


def test_an_old_leader_learns_the_newer_term() -> None:
    one = One()
    one.hear(ships(5, 0, 0, 0))
    answer = only(AppendAnswer, one.hear(ships(4, 0, 0, 0)))[0]
    assert (answer.ok, answer.term) == (False, 5)


def test_nonsense_is_ignored() -> None:
    one = One()
    assert one.hear(ships(3, 0, 2, 1)) == []
    assert one.hear(ships(3, 0, 0, 4)) == []
    assert one.raft.node.term == 0


# ── Commits ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_leader_commits_what_a_majority_has_on_disk() -> None:
    one = elected()
    end = one.write()
    one.hear(has(one, end, durable=20))
    assert one.raft.node.commit == 20
    one.hear(has(one, end))
    assert one.raft.node.commit == 20, "the leader itself has not flushed"
    one.flush()
    assert one.raft.node.commit == end
    assert Committed(end) in one.others


def test_bytes_of_an_older_term_are_committed_with_the_new_one() -> None:
    one = elected(epochs=[(0, 0)], records=3)
    one.hear(has(one, 60))
    assert one.raft.node.commit == 0
    one.hear(has(one, 80))
    assert one.raft.node.commit == 80


def test_what_is_in_flight_has_a_limit() -> None:
    one = elected(settings=replace(SETTINGS, in_flight_bytes=100, batch_bytes=20))
    one.hear(has(one, 20))
    for _ in range(20):
        one.write()
    assert len(starts(one.said())) == 5
    one.hear(has(one, 120, durable=20))
    assert one.end == 420


def test_without_sync_flush_less_than_a_batch_waits_for_the_last_answer() -> None:
    one = elected(settings=replace(SETTINGS, batch_bytes=100, sync=False))
    one.hear(has(one, 20))
    for _ in range(3):
        one.write()
    assert starts(one.said()) == [20]
    assert starts(one.hear(has(one, 40))) == [40], "with all that came meanwhile"
    for _ in range(5):
        one.write()
    assert starts(one.said()) == [80], "a whole batch waits for nothing"


def test_with_sync_flush_nothing_waits_for_the_last_answer() -> None:
    one = elected(settings=replace(SETTINGS, batch_bytes=100))
    one.hear(has(one, 20))
    for _ in range(3):
        one.write()
    assert starts(one.said()) == [20, 40, 60]


def test_what_waits_for_a_lost_answer_leaves_after_the_next_heartbeat() -> None:
    one = elected(settings=replace(SETTINGS, sync=False))
    one.hear(has(one, 20))
    one.write()
    one.write()
    assert starts(one.said()) == [20], "and it is lost"
    one.step(ms=SETTINGS.heartbeat_ms)
    beats = [message for message in sent_to("n1", one.said()) if message.previous == 40]
    refusal = AppendAnswer("n1", one.raft.node.term, beats[-1].stamp, False, 20, 0, one.raft.node.term, 1, 1)
    assert starts(one.hear(refusal)) == [20]


def test_without_sync_flush_a_member_that_no_majority_needs_gets_batches_at_intervals() -> None:
    settings = replace(SETTINGS, sync=False)
    one = elected(settings=settings)
    one.hear(has(one, 20))
    one.step(ms=settings.heartbeat_ms)
    one.hear(has(one, 20), has(one, 20, sender="n2"))
    one.step(ms=settings.gather_ms)
    end = one.write()
    sent = one.said()
    assert (starts(sent), starts(sent, "n2")) == ([20], [20]), "after a pause both get a message at once"
    one.hear(has(one, end), has(one, end, sender="n2"))
    one.write()
    end = one.write()
    sent = one.said()
    assert (starts(sent), starts(sent, "n2")) == ([40], []), "n1 makes the majority, so n2 waits"
    assert one.raft.due_ms == one.now_ms + settings.gather_ms
    one.step(ms=settings.gather_ms)
    sent = one.said()
    assert starts(sent, "n2") == [40], "with all that was stored in the meantime"
    one.hear(has(one, end, sender="n2"))
    assert one.raft.node.commit == end, "any majority commits"


def test_the_member_that_gets_batches_at_once_is_the_one_that_has_most() -> None:
    settings = replace(SETTINGS, sync=False)
    one = elected(settings=settings)
    one.hear(has(one, 20), has(one, 20, sender="n2"))
    one.step(ms=settings.heartbeat_ms)
    end = one.write()
    one.hear(has(one, end, sender="n2"))
    one.step(ms=settings.heartbeat_ms)
    one.hear(has(one, end, sender="n2"))
    one.write()
    one.said()
    end = one.write()
    one.hear(has(one, end - 20, sender="n2"))
    one.said()
    one.write()
    assert starts(one.said(), "n2") == [], "its last batch is not acknowledged"
    assert starts(one.hear(has(one, end, sender="n2")), "n2") == [end], "it does not wait for the interval"


# ── Reads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_read_is_answered_at_once_within_the_lease_and_by_a_majority_after_it() -> None:
    one = elected()
    one.hear(has(one, 20))
    one.step(Read("a"))
    assert one.others[-1] == ReadReady("a", 20)
    one.step(ms=800)
    one.said()
    one.step(Read("b"))
    stamp = max(message.stamp for message in only(AppendRequest, one.said()))
    assert one.others[-1] == ReadReady("a", 20)
    one.hear(has(one, 20, stamp=stamp))
    assert one.others[-1] == ReadReady("b", 20)


def test_a_new_leader_does_not_know_what_is_committed() -> None:
    one = elected()
    one.step(Read("a"))
    assert one.others[-1] == Answered("a", "the leader has just been elected: try again")


def test_a_follower_names_the_leader() -> None:
    one = One()
    one.step(Read("a"))
    one.hear(ships(1, 0, 0, 0))
    one.step(Read("b"))
    faults = [effect.fault for effect in one.others if isinstance(effect, Answered)]
    assert faults == ["the group has no leader: try again", "this broker is not the leader: ask n1"]


# ── Transfers and members ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_transfer_waits_until_the_other_has_the_log() -> None:
    one = elected()
    one.hear(has(one, 20))
    end = one.write()
    one.step(Transfer("n1", "token"))
    assert not one.raft.is_open
    assert only(TakeOver, one.said()) == []
    assert one.hear(has(one, end))[0] == ("n1", TakeOver("n0", 1))
    one.hear(VoteRequest("n1", 2, 1, end, 1, 1, is_transfer=True))
    assert Answered("token", None) in one.others
    assert one.raft.role.name == "follower"


def test_a_transfer_that_fails_ends_in_time() -> None:
    one = elected()
    one.step(Transfer("n1", "token"))
    for _ in range(5):
        one.step(Received(has(one, 20, sender="n2")), ms=200)
    assert one.raft.is_open
    faults = [effect.fault or "" for effect in one.others if isinstance(effect, Answered)]
    assert [fault.partition(" within")[0] for fault in faults] == ["n1 did not take over"]


def test_a_preferred_member_takes_over() -> None:
    one = elected(settings=replace(SETTINGS, preferred=("n2", "n0")))
    for _ in range(6):
        one.step(Received(has(one, 20, sender="n2")), ms=200)
    one.hear(has(one, 20, sender="n2"))
    assert not one.raft.is_open


def test_members_change_one_voter_at_a_time() -> None:
    five = (*THREE.all, Member("n3"), Member("n4"))
    assert fault_of_change(THREE, five, "n0") == "only one voter can be added or removed at a time, not n3, n4 together"
    assert fault_of_change(THREE, THREE.all[1:], "n0") == (
        "n0 leads the group: transfer the leadership before removing it"
    )
    assert fault_of_change(THREE, (*THREE.all, THREE.all[0]), "n0") == "a member is named twice"
    assert fault_of_change(THREE, THREE.all[:2], "n0") is None


def test_a_member_is_a_learner_first_and_then_a_voter() -> None:
    one = elected()
    one.hear(has(one, 20))
    one.step(ChangeMembers((*THREE.all, Member("n3", False)), "learner"))
    one.finish()
    version = one.raft.node.members
    assert version.voters == THREE.voters
    one.hear(AppendAnswer("n1", 1, one.now_ms << 20, True, 20, 20, 0, *version.age))
    assert Answered("learner", None) in one.others
    one.hear(AppendAnswer("n3", 1, one.now_ms << 20, True, 20, 20, 0, *version.age))
    one.step(ChangeMembers((*THREE.all, Member("n3")), "voter"))
    one.finish()
    assert one.raft.node.voters == {"n0", "n1", "n2", "n3"}
    assert one.storage.hard.members.voters == one.raft.node.voters


def test_a_change_waits_for_the_one_before() -> None:
    one = elected()
    one.hear(has(one, 20))
    one.step(ChangeMembers((*THREE.all, Member("n3", False)), "first"))
    one.finish()
    one.step(ChangeMembers(THREE.all, "second"))
    fault = "a majority does not have the last change of members, or the whole log, yet: try again"
    assert Answered("second", fault) in one.others
