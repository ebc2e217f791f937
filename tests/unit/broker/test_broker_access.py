"""What requests touch, and where access control is asked."""

import inspect
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, pull, request, send

from kourou.access.touches import Touch, names_in, touches
from kourou.access.user_requests import Question
from kourou.broker.access import GRANTS_MAX, Access, Grants
from kourou.broker.events import Asked, Peer, Request
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Direction, RequestInfo, Resource, Right
from kourou.protocol.headers.table import GET, PUB, SUB, UPDATE
from kourou.protocol.signing import Credentials
from kourou.testing.broker import SimulatedBroker, SimulatedClient

KEY = {"UNIQ_KEY": "7F00000100002A139A5500000000001A"}

TO_CLIENTS = (Direction.BROKER_TO_CLIENT,)
"""Never refused: a client serves the requests of its broker."""


class Counting:
    """Rules that note what they were asked, and refuse what touches the name."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.asked: list[tuple[int, list[Touch]]] = []

    refusal_code: int = ResponseCode.NO_PERMISSION
    exempt_codes: frozenset[int] = frozenset()

    def secret_of(self, access_key: str) -> str | None:
        """No request is signed."""

    def authenticate(self, peer: Peer, command: Command, now_ms: int) -> None:
        """Every sender is authenticated."""

    def verdict(self, asked: Asked, touches: Sequence[Touch]) -> str | None:
        self.asked.append((asked.command.code, list(touches)))
        return f"{self.refused} is not for you" if any(touch.name == self.refused for touch in touches) else None

    def name_of(self, asked: Asked) -> str | None:
        """No request is signed."""

    def may_still(self, name: str | None, peer: Peer, code: int, touches: Sequence[Touch]) -> bool:
        return all(touch.name != self.refused for touch in touches)


def guarded(rules: Counting, *, lane: bool = True) -> tuple[SimulatedBroker, SimulatedClient]:
    world = SimulatedBroker(lane=lane)
    client = world.connect()
    ok(client, send(b"first"))
    ok(client, heartbeat("c1", group=GROUP))
    ok(client, pull())
    world.machine.access.change(rules)
    world.tick()  # rules change in steps, and the lane compares what it knows after each step
    return world, client


# ── The table ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "info", [info for info in REQUESTS.values() if info.direction not in TO_CLIENTS], ids=lambda info: info.name
)
def test_every_request_says_what_it_touches_and_which_right_it_needs(info: RequestInfo) -> None:
    assert info.access is not None, "declare `access`: which topic, group or cluster, and which right"
    assert info.access.rights, "no right"
    assert info.access.targets or info.access.in_body, "no resource"
    if info.access.in_body:
        assert isinstance(info.body, type)
        assert list(names_in(info.body())) == [], "`access.names_in` must know this body"


def test_functions_get_the_header_that_is_declared_for_their_code() -> None:
    table = SimulatedBroker().machine._serving._table
    assert len(table) > 80
    for code, (serve, declared) in table.items():
        assert code in REQUESTS
        serve = inspect.unwrap(serve)
        if "<locals>" in serve.__qualname__:
            continue  # it is around another function
        (wanted, *_) = get_type_hints(serve).values()
        if wanted is Asked:
            continue
        assert get_origin(wanted) in (Request, Question), serve
        (header,) = get_args(wanted)
        assert declared is header or declared in get_args(header), (serve, declared)


@pytest.mark.parametrize(
    ("code", "header", "expected"),
    [
        (
            RequestCode.GET_MAX_OFFSET,
            headers.GetMaxOffset(topic="t", queue_id=0),
            [Touch(GET, Resource.TOPIC, "t")],
        ),
        (
            RequestCode.QUERY_CONSUMER_OFFSET,
            headers.QueryConsumerOffset(topic="t", queue_id=0, consumer_group="g"),
            [Touch(SUB | GET, Resource.TOPIC, "t"), Touch(SUB | GET, Resource.GROUP, "g")],
        ),
        (
            RequestCode.UPDATE_CONSUMER_OFFSET,
            headers.UpdateConsumerOffset(topic="%RETRY%g", queue_id=0, consumer_group="g", commit_offset=1),
            [Touch(SUB | UPDATE, Resource.GROUP, "g"), Touch(SUB | UPDATE, Resource.GROUP, "g")],
        ),
        (RequestCode.GET_BROKER_CONFIG, None, [Touch(GET, Resource.CLUSTER)]),
    ],
)
def test_touches(code: int, header: headers.Header | None, expected: list[Touch]) -> None:
    assert list(touches(code, header)) == expected


def test_a_send_to_a_retry_topic_needs_what_its_consumers_need() -> None:
    def of(topic: str) -> list[Touch]:
        return list(touches(RequestCode.SEND_MESSAGE_V2, headers.SendMessageV2.decode(send(topic=topic).ext)))

    assert of("t") == [Touch(PUB, Resource.TOPIC, "t")]
    assert of("%RETRY%g") == [Touch(SUB, Resource.GROUP, "g")]


def test_several_names_in_one_field() -> None:
    header = headers.QueryCorrectionOffset(filter_groups="a,b,", compare_group="c", topic="t")
    found = [(touch.resource, touch.name) for touch in touches(RequestCode.QUERY_CORRECTION_OFFSET, header)]
    groups = [(Resource.GROUP, name) for name in "abc"]
    assert found == [*groups, (Resource.TOPIC, "t")]


def test_names_in_bodies() -> None:
    subscriptions = [bodies.SubscriptionData(topic=topic, sub_string="*") for topic in ("t", "%RETRY%g")]
    beat = bodies.HeartbeatData(
        consumer_data_set=[bodies.ConsumerData(group_name="g", subscription_data_set=subscriptions)],
        producer_data_set=[bodies.ProducerData(group_name="p")],
    )
    assert list(names_in(beat)) == [(Resource.GROUP, "g"), (Resource.TOPIC, "t"), (Resource.TOPIC, "%RETRY%g")]
    with pytest.raises(TypeError, match="not known"):
        list(names_in(bodies.TopicList()))


# ── The hook ────────────────────────────────────────────────────────────────────────────────────────────────────────

REQUESTS_OF_A_CLIENT: list[tuple[Command, list[tuple[Right, Resource, str | None]]]] = [
    (send(), [(PUB, Resource.TOPIC, TOPIC)]),
    (pull(), [(SUB, Resource.TOPIC, TOPIC), (SUB, Resource.GROUP, GROUP)]),
    (heartbeat("c1", group=GROUP), [(SUB, Resource.GROUP, GROUP), (SUB, Resource.TOPIC, TOPIC)]),
    (
        request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, headers.GetConsumerListByGroup(consumer_group=GROUP)),
        [(SUB | GET, Resource.GROUP, GROUP)],
    ),
    (request(RequestCode.GET_BROKER_RUNTIME_INFO), [(GET, Resource.CLUSTER, None)]),
]


@pytest.mark.parametrize(("command", "expected"), REQUESTS_OF_A_CLIENT, ids=lambda value: getattr(value, "code", ""))
def test_each_request_is_judged_once(command: Command, expected: list[tuple[Any, ...]]) -> None:
    rules = Counting()
    world, client = guarded(rules)
    client.send(command)
    world.take_turns()
    assert rules.asked == [(command.code, [Touch(*touch) for touch in expected])]


@pytest.mark.parametrize("lane", [True, False])
@pytest.mark.parametrize("command", [send(b"second", properties=KEY), pull(), heartbeat("c2", group=GROUP)])
def test_what_is_refused_changes_nothing(command: Command, lane: bool) -> None:
    world, client = guarded(Counting(refused=TOPIC), lane=lane)
    end, members = world.store.log.end, len(world.machine.clients.by_id)
    answer = client.ask(command)
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, f"{TOPIC} is not for you")
    assert (world.store.log.end, len(world.machine.clients.by_id)) == (end, members)


def test_unsupported_codes_are_not_checked() -> None:
    rules = Counting()
    _, client = guarded(rules)
    assert client.ask(request(4711)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert not rules.asked


# ── The lane ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [send(properties=KEY), pull()])
def test_what_was_allowed_stays_in_the_lane(command: Command) -> None:
    rules = Counting()
    world, client = guarded(rules)
    if world.lane is None:
        pytest.skip("the lane is not compiled")
    for _ in range(5):
        ok(client, command)
    assert len(rules.asked) == 1, "the first one took the general path, the others the lane"
    other = world.connect()
    ok(other, command)
    assert len(rules.asked) == 2, "what one connection may is not what another may"


@pytest.mark.parametrize("command", [send(properties=KEY), pull()])
def test_other_rules_are_asked_again(command: Command) -> None:
    world, client = guarded(Counting())
    ok(client, command)
    ok(client, command)
    world.machine.access.change(Counting(refused=TOPIC))
    world.tick()
    assert client.ask(command).code == ResponseCode.NO_PERMISSION
    world.machine.access.change(None)
    world.tick()
    ok(client, command)


@pytest.mark.parametrize("command", [send(properties=KEY), pull()])
def test_signed_requests_are_judged_each_time(command: Command) -> None:
    rules = Counting()
    world, client = guarded(rules)
    Credentials("rocketmq2", "12345678").sign(command)
    for _ in range(3):
        ok(client, command)
    assert len(rules.asked) == 3
    world.machine.access.change(None)
    world.tick()
    before = world.in_lane
    ok(client, command)
    assert world.lane is None or world.in_lane > before, "without access control, signatures are ignored"


def test_grants_are_bounded() -> None:
    grants = Grants(1)
    for number in range(GRANTS_MAX + 1):
        grants.add(headers.PullMessage.decode(pull(topic=f"t{number}").ext))
    assert len(grants.pulls) == 1
    grants.add(None)
    assert len(grants.pulls) == 1


def test_grants_of_old_rules_do_not_count() -> None:
    access, peer = Access(), Peer("1.2.3.4:5", bytes(8))
    grants = access.grants_of(peer)
    assert access.grants_of(peer) is grants
    access.change(Counting())
    assert access.grants_of(peer) is not grants
