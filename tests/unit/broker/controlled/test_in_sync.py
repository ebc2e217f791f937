"""What senders wait for while the in-sync set changes."""

from kourou.broker.controlled.in_sync import InSyncSet


class Replicas(dict[int, int]):
    """How far each replica is."""

    def acknowledged_by(self, broker_id: int) -> int | None:
        return self.get(broker_id)


def test_all_members_count() -> None:
    in_sync = InSyncSet(1, frozenset({1, 2, 3}), 4)
    assert in_sync.had_by_all(Replicas({2: 70, 3: 50, 4: 10}), 100) == 50
    assert in_sync.had_by_all(Replicas({2: 70}), 100) == 0
    assert InSyncSet(1, frozenset({1}), 4).had_by_all(Replicas({2: 70}), 100) == 100


def test_so_many_members_count() -> None:
    in_sync = InSyncSet(1, frozenset({1, 2, 3}), 4)
    replicas = Replicas({2: 70, 3: 50, 4: 90})
    assert [in_sync.had_by(count, replicas, 100) for count in (1, 2, 3, 4)] == [100, 70, 50, 0]


def test_while_a_change_is_under_way_both_sets_must_have_it() -> None:
    in_sync = InSyncSet(1, frozenset({1, 2}), 4, proposed=frozenset({1, 3}))
    replicas = Replicas({2: 70, 3: 50})
    assert in_sync.had_by_all(replicas, 100) == 50
    assert in_sync.had_by(2, replicas, 100) == 0  # 2 may be out, and 3 not yet in
    assert in_sync.both == {1}


def test_a_replica_that_joins_is_waited_for_before_it_is_a_member() -> None:
    in_sync = InSyncSet(1, frozenset({1}), 4, joining=frozenset({2}))
    assert in_sync.had_by_all(Replicas({2: 70}), 100) == 70
    assert in_sync.known(frozenset({1, 2}), 5)
    assert in_sync.members == {1, 2}
    assert not in_sync.joining


def test_an_older_set_is_ignored() -> None:
    in_sync = InSyncSet(1, frozenset({1, 2}), 4, proposed=frozenset({1}))
    assert not in_sync.known(frozenset({1, 2, 3}), 3)
    assert in_sync.proposed is not None
    assert not in_sync.known(frozenset({1, 2}), 4)  # nothing new, but the change was not made
    assert in_sync.proposed is None
