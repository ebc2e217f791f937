"""The doctor of a group: each cause is found from what brokers and members say, and a healthy group has none."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.client.admin import Progress
from kourou.console.facts import GroupOnBroker
from kourou.console.views import doctor
from kourou.console.views.doctor import Evidence, Finding, diagnosis
from kourou.console.views.groups import Waiting
from kourou.protocol.bodies import (
    Connection,
    ConsumerConnection,
    ConsumerRunningInfo,
    OffsetWrapper,
    ProcessQueueInfo,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicOffset,
)
from kourou.protocol.message import MessageQueue

NOW = 1_790_000_000_000
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(2)]


def member(client: str = "a@1", address: str = "10.0.0.7:5") -> Connection:
    return Connection(client_id=client, client_addr=address)


def subscribed(text: str = "*", *tags: str) -> SubscriptionData:
    return SubscriptionData(topic="orders", sub_string=text, tags_set=list(tags))


def running(
    queues: Sequence[MessageQueue] = QUEUES,
    subscription: SubscriptionData | None = None,
    properties: Mapping[str, str] | None = None,
    **state: Any,
) -> ConsumerRunningInfo:
    told = ProcessQueueInfo(**{"last_consume_timestamp": NOW, "locked": True, **state})
    return ConsumerRunningInfo(
        properties={"PROP_CONSUMER_START_TIMESTAMP": str(NOW - 600_000), **(properties or {})},
        subscription_set=[subscription or subscribed()],
        mq_table=dict.fromkeys(queues, told),
    )


def progress(end: int = 10, committed: int = 10) -> Progress:
    return Progress({queue: OffsetWrapper(broker_offset=end, consumer_offset=committed) for queue in QUEUES}, 0.0)


def connections(*members: Connection, **changes: Any) -> ConsumerConnection:
    given = {"message_model": "CLUSTERING", "consume_from_where": "CONSUME_FROM_FIRST_OFFSET", **changes}
    return ConsumerConnection(
        connection_set=list(members or (member(),)),
        subscription_table=given.pop("subscription_table", {"orders": subscribed()}),
        **given,
    )


HEALTHY = Evidence(
    group="billing",
    on=[GroupOnBroker("broker-a", "10.0.0.5:10911", SubscriptionGroupConfig())],
    connections=connections(),
    infos={"a@1": running()},
    progress=progress(),
    ends={queue: TopicOffset(min_offset=0, max_offset=10) for queue in QUEUES},
    perms={"orders": 6},
    tags={},
    dead=0,
    waiting=Waiting(),
    lag_ms=0,
    now_ms=NOW,
)


def found(**changes: Any) -> dict[str, Finding]:
    return {one.code: one for one in diagnosis(msgspec.structs.replace(HEALTHY, **changes)).findings}


def test_a_healthy_group() -> None:
    assert found().keys() == {"ok"}
    assert found()["ok"].severity == "good"


CAUSES: list[tuple[str, str, dict[str, Any]]] = [
    ("no_members", "bad", {"connections": None}),
    (
        "different_subscriptions",
        "bad",
        {"infos": {"a@1": running(), "b@2": running([], subscribed("paid", "paid"))}},
    ),
    ("same_client_id", "bad", {"connections": connections(member(), member(address="10.0.0.8:5"))}),
    (
        "more_members_than_queues",
        "doubtful",
        {"connections": connections(*(member(name) for name in ("a@1", "b@2", "c@3")))},
    ),
    ("no_permission", "bad", {"perms": {"orders": 2}}),
    (
        "consume_disabled",
        "bad",
        {"on": [GroupOnBroker("broker-a", "10.0.0.5:1", SubscriptionGroupConfig(consume_enable=False))]},
    ),
    (
        "started_at_end",
        "good",
        {"connections": connections(consume_from_where="CONSUME_FROM_LAST_OFFSET")},
    ),
    ("offset_outside", "bad", {"ends": {QUEUES[0]: TopicOffset(min_offset=20, max_offset=30)}}),
    (
        "tag_not_subscribed",
        "doubtful",
        {
            "connections": connections(subscription_table={"orders": subscribed("paid", "paid")}),
            "tags": {"orders": ["returned", None]},
        },
    ),
    ("held", "bad", {"infos": {"a@1": running(cached_msg_count=3, last_consume_timestamp=NOW - 61_000)}}),
    (
        "order_lock",
        "doubtful",
        {"infos": {"a@1": running(properties={"PROP_CONSUMEORDERLY": "true"}, locked=False)}},
    ),
    ("unassigned", "doubtful", {"infos": {"a@1": running(QUEUES[:1])}, "progress": progress(committed=5)}),
    ("retrying", "doubtful", {"waiting": Waiting(3)}),
    ("dead_letters", "doubtful", {"dead": 37}),
    ("slow", "doubtful", {"progress": progress(committed=5), "lag_ms": 61_000}),
    ("broadcast", "doubtful", {"connections": connections(message_model="BROADCASTING")}),
]


@pytest.mark.parametrize(("code", "severity", "changes"), CAUSES)
def test_each_cause(code: str, severity: str, changes: dict[str, Any]) -> None:
    others = {"ok"} if severity == "good" else set()
    findings = found(**changes)
    assert findings.keys() == {code} | others
    assert findings[code].severity == severity
    assert findings[code].text and findings[code].remedy


@pytest.mark.parametrize(
    ("started", "consumed", "text"),
    [
        (NOW - 600_000, 0, "nothing consumed for 10 min"),
        (NOW - 600_000, NOW - 120_000, "nothing consumed for 2 min"),
        (0, 0, "nothing consumed yet"),
    ],
)
def test_since_when_messages_are_held(started: int, consumed: int, text: str) -> None:
    """A member that has not consumed anything did not do so since it started, not since 1970."""
    properties = {"PROP_CONSUMER_START_TIMESTAMP": str(started)}
    info = running(QUEUES[:1], properties=properties, cached_msg_count=3, last_consume_timestamp=consumed)
    assert [row[-1] for row in found(infos={"a@1": info})["held"].evidence] == [text]


def test_a_member_that_has_just_started_holds_nothing() -> None:
    properties = {"PROP_CONSUMER_START_TIMESTAMP": str(NOW - 1000)}
    info = running(properties=properties, cached_msg_count=3, last_consume_timestamp=0)
    assert found(infos={"a@1": info}).keys() == {"ok"}


def test_chinese() -> None:
    """Each finding has Chinese words, and values for what is left open in them."""
    static = Path(doctor.__file__).parents[1] / "static"
    texts: dict[str, list[str]] = json.loads((static / "words" / "findings.zh.json").read_text())
    assert list(texts) == sorted(set(re.findall(r'Finding\(\s*"(\w+)"', Path(doctor.__file__).read_text())))
    values = {code: {"group", *found(**changes)[code].args} for code, _, changes in CAUSES}
    values["ok"] = {"group", *found()["ok"].args}
    for code, words in texts.items():
        assert len(words) == 2
        assert set(re.findall(r"\{(\w+)\}", " ".join(words))) <= values[code], code


def test_text_of_members_is_escaped() -> None:
    info = running(cached_msg_count=3, last_consume_timestamp=NOW - 61_000)
    cells = found(infos={"a\x1b[2J": info})["held"].evidence[0]
    assert cells[0] == "a\\x1b[2J"
