"""Consumer groups by request."""

from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, ok, request

from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.testing.broker import SimulatedBroker


def update(group: str = GROUP, **fields: Any) -> Command:
    body = SubscriptionGroupConfig(group_name=group, **fields)
    return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body.encode())


def show(group: str = GROUP) -> Command:
    return request(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, headers.GetSubscriptionGroupConfig(group=group))


def delete(group: str = GROUP, *, clean_offset: bool = False) -> Command:
    header = headers.DeleteSubscriptionGroup(group_name=group, clean_offset=clean_offset)
    return request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)


def forbid(topic: str = TOPIC, group: str = GROUP, readable: bool | None = None) -> Command:
    header = headers.UpdateGroupForbidden(group=group, topic=topic, readable=readable)
    return request(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


def test_group_is_made_changed_and_kept(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, update(retry_max_times=3))
    ok(client, update(retry_max_times=5, consume_enable=False, attributes={"+priority.factor": "7"}))
    world = world.crash()
    group = SubscriptionGroupConfig.decode(ok(world.connect(), show()).body)
    assert (group.retry_max_times, group.consume_enable) == (5, False)
    assert group.attributes == {"priority.factor": "7"}


@pytest.mark.parametrize(
    ("group", "fields", "code", "remark"),
    [
        ("bad group", {}, 29, "illegal characters"),
        ("", {}, 29, "The specified group is blank."),
        ("x" * 121, {}, 29, "longer than group max length: 120"),
        (GROUP, {"attributes": {"+priority.factor": "101"}}, 1, "value is not in range(0, 100)"),
        (GROUP, {"attributes": {"+lite.sub.reset.offset.exclusive": "x"}}, 1, "boolean attribute format is wrong."),
        (GROUP, {"attributes": {"+nonsense": "1"}}, 1, "unsupported key: nonsense"),
    ],
)
def test_refused(world: SimulatedBroker, group: str, fields: dict[str, Any], code: int, remark: str) -> None:
    answer = world.connect().ask(update(group, **fields))
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert world.machine.groups.get(group) is None


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff"])
def test_body_that_makes_no_sense(world: SimulatedBroker, body: bytes) -> None:
    answer = world.connect().ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_list_is_made_or_nothing_is(world: SimulatedBroker) -> None:
    client = world.connect()

    def make(*names: str) -> Command:
        groups = [SubscriptionGroupConfig(group_name=name) for name in names]
        body = bodies.SubscriptionGroupList(group_config_list=groups).encode()
        return request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)

    ok(client, make("one", "two"))
    assert {"one", "two"} <= world.machine.groups.table.keys()
    assert client.ask(make("three", "b@d")).code == ResponseCode.INVALID_PARAMETER
    assert world.machine.groups.get("three") is None


def test_deleted_group_keeps_its_offsets_unless_told(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, update())
    world.machine.offsets.commit(GROUP, TOPIC, 0, 7)
    ok(client, delete())
    assert world.machine.groups.get(GROUP) is None
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == 7
    ok(client, delete(clean_offset=True))
    assert world.machine.offsets.get(GROUP, TOPIC, 0) == -1


def test_unknown_group_is_made_when_groups_make_themselves(world: SimulatedBroker) -> None:
    group = SubscriptionGroupConfig.decode(ok(world.connect(), show("new")).body)
    assert group == world.machine.groups.get("new")


def test_unknown_group_is_refused_when_they_do_not() -> None:
    world = SimulatedBroker(settings=BrokerSettings(auto_create_groups=False))
    answer = world.connect().ask(show("new"))
    assert (answer.code, answer.remark) == (26, "No group in this broker")


def test_all_groups_and_pages_of_them(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, update("a"))
    ok(client, update("b"))
    ok(client, forbid(group="b", readable=False))
    answer = ok(client, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    everything = bodies.SubscriptionGroupWrapper.decode(answer.body)
    assert everything.subscription_group_table == world.machine.groups.table
    assert everything.forbidden_table == {"b": {TOPIC: 4}}
    assert answer.ext == {"totalGroupNum": str(len(everything.subscription_group_table))}
    header = headers.GetAllSubscriptionGroup(group_seq=0, max_group_num=1)
    answer = ok(client, request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header))
    page = bodies.SubscriptionGroupWrapper.decode(answer.body)
    assert list(page.subscription_group_table) == sorted(world.machine.groups.table)[:1]
    assert page.forbidden_table == {}


def test_topic_is_forbidden_and_allowed_again(world: SimulatedBroker) -> None:
    client = world.connect()

    def readable(command: Command) -> bool | None:
        return bodies.GroupForbidden.decode(ok(client, command).body).readable

    assert readable(forbid()) is True
    assert readable(forbid(readable=False)) is False
    assert readable(forbid()) is False
    world = world.crash()
    client = world.connect()
    assert readable(forbid()) is False
    assert readable(forbid("other")) is True
    assert readable(forbid(readable=True)) is True
    assert world.machine.groups.forbidden == {}


def test_nonsense_is_not_forbidden(world: SimulatedBroker) -> None:
    assert world.connect().ask(forbid("b@d", readable=False)).code == ResponseCode.INVALID_PARAMETER
    assert world.connect().ask(forbid(group="b@d", readable=False)).code == ResponseCode.INVALID_PARAMETER
