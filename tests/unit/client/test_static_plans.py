"""Which queues of a static topic are on which broker."""

import pytest

from kourou.client.admin import static_plans
from kourou.client.admin.static_plans import Plan, begun, completed, grow, leaders_of, move, moved
from kourou.client.errors import ClientError
from kourou.protocol.bodies import LogicQueueMappingItem, TopicConfigAndQueueMapping

NOW_MS = 1_700_000_000_000


def pieces(plan: Plan, broker: str, number: int) -> list[LogicQueueMappingItem]:
    detail = plan[broker].mapping_detail
    assert detail is not None
    return detail.hosted_queues[number]


def epoch(plan: Plan) -> int:
    (found,) = {config.mapping_detail.epoch for config in plan.values() if config.mapping_detail is not None}
    return found


def test_new_queues_go_to_the_brokers_with_the_fewest() -> None:
    plan = grow("t", 5, {"a", "b"}, {}, NOW_MS)
    assert leaders_of(plan) == {0: "a", 1: "b", 2: "a", 3: "b", 4: "a"}
    assert [plan[name].write_queue_nums for name in "ab"] == [3, 2]
    assert [pieces(plan, "a", number)[0].queue_id for number in (0, 2, 4)] == [0, 1, 2]
    later = grow("t", 8, {"a", "b", "c"}, plan, NOW_MS)
    assert {number: broker for number, broker in leaders_of(later).items() if number >= 5} == {5: "c", 6: "c", 7: "b"}
    assert epoch(later) == NOW_MS + static_plans.EPOCH_STEP


def test_all_brokers_of_a_cluster_know_the_topic() -> None:
    plan = completed("t", grow("t", 1, {"a"}, {}, NOW_MS), ["a", "b"])
    detail = plan["b"].mapping_detail
    assert detail is not None
    assert (detail.total_queues, detail.epoch, detail.hosted_queues) == (1, NOW_MS, {})
    assert plan["b"].write_queue_nums == 0


def test_queues_move_as_little_as_possible() -> None:
    before = grow("t", 5, {"a", "b"}, {}, NOW_MS)
    after = move("t", {"b", "c"}, before, NOW_MS + 5_000)
    assert moved(before, after) == {0: ("a", "b"), 2: ("a", "c"), 4: ("a", "c")}
    assert [piece.bname for piece in pieces(after, "c", 2)] == ["a", "c"]
    assert pieces(after, "a", 2) == pieces(after, "c", 2)
    assert pieces(after, "c", 2)[-1].logic_offset == -1
    assert move("t", {"a", "b"}, before, NOW_MS).keys() == {"a", "b"}
    assert moved(before, move("t", {"a", "b"}, before, NOW_MS)) == {}


@pytest.mark.parametrize(("end", "first"), [(0, 10_000), (4_999, 10_000), (5_000, 20_000), (10_000, 20_000)])
def test_a_queue_that_moved_goes_on_at_a_later_offset(end: int, first: int) -> None:
    before = grow("t", 1, {"a"}, {}, NOW_MS)
    after = begun(move("t", {"b"}, before, NOW_MS), 0, "b", end)
    assert pieces(after, "b", 0)[-1].logic_offset == first
    assert pieces(after, "a", 0)[-1].logic_offset == first
    assert begun(after, 0, "b", end + 7) == after


def test_plans_that_are_refused() -> None:
    plan = grow("t", 2, {"a", "b"}, {}, NOW_MS)
    with pytest.raises(ClientError, match="has 2 queues"):
        grow("t", 2, {"a", "b"}, plan, NOW_MS)
    with pytest.raises(ClientError, match="brokers that are not given"):
        grow("t", 3, {"a"}, plan, NOW_MS)
    plain = {"a": TopicConfigAndQueueMapping(topic_name="t")}
    with pytest.raises(ClientError, match="not a static topic"):
        grow("t", 3, {"a"}, plain, NOW_MS)
    with pytest.raises(ClientError, match="not a static topic"):
        move("t", {"a"}, plain, NOW_MS)
    with pytest.raises(ClientError, match="not a static topic"):
        move("t", {"a"}, {}, NOW_MS)
    other = grow("t", 2, {"a", "b"}, {}, NOW_MS + 1)
    with pytest.raises(ClientError, match="disagree"):
        grow("t", 3, {"a", "b"}, {"a": plan["a"], "b": other["b"]}, NOW_MS)
