"""In which topic and queue a message is stored first."""

import pytest

from kourou.broker.events import Refused
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.broker.placement import Candidate, DelayLevels, Placement, is_half
from kourou.broker.settings import BrokerSettings
from kourou.broker.transactions.half_records import HalfMessages
from kourou.protocol.codes import ResponseCode, SysFlag
from kourou.protocol.properties import Property
from kourou.store.commit_log import NewMessage

LEVELS = DelayLevels({1: 1_000, 2: 5_000})


def candidate(
    properties: dict[str, str], *, sys_flag: int = 0, tries: int = 0, is_sent: bool = True, topic: str = "orders"
) -> Candidate:
    message = NewMessage(topic, 3, b"body", b"", 0, bytes(8), 0, sys_flag, tries)
    return Candidate(message, properties, 1_000, is_sent)


def usual() -> Placement:
    return Placement((HalfMessages(BrokerSettings()).place, LEVELS.place))


def place_of(given: Candidate) -> tuple[str, int]:
    usual().place(given)
    return given.message.topic, given.message.queue_id


def test_a_message_is_stored_where_it_was_sent_to() -> None:
    assert place_of(candidate({"KEYS": "k"})) == ("orders", 3)


@pytest.mark.parametrize(("level", "queue_id"), [("1", 0), ("2", 1), ("99", 1)])
def test_a_delayed_message_is_stored_in_the_queue_of_its_level(level: str, queue_id: int) -> None:
    given = candidate({Property.DELAY_LEVEL: level, Property.TIMER_DELAY_SEC: "5"})
    assert place_of(given) == (SCHEDULE_TOPIC, queue_id)
    assert given.properties == {
        Property.DELAY_LEVEL: str(queue_id + 1),
        Property.REAL_TOPIC: "orders",
        Property.REAL_QUEUE_ID: "3",
    }


@pytest.mark.parametrize("level", ["0", "-1"])
def test_a_level_of_zero_or_less_is_not_a_delay(level: str) -> None:
    assert place_of(candidate({Property.DELAY_LEVEL: level})) == ("orders", 3)


@pytest.mark.parametrize("flag", [SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK])
def test_an_undecided_message_is_not_delayed(flag: SysFlag) -> None:
    given = candidate({Property.DELAY_LEVEL: "1", Property.TIMER_DELAY_SEC: "1"}, sys_flag=int(flag))
    assert place_of(given) == ("orders", 3)


def test_a_message_in_the_schedule_topic_is_not_delayed_again() -> None:
    assert place_of(candidate({Property.DELAY_LEVEL: "1"}, topic=SCHEDULE_TOPIC)) == (SCHEDULE_TOPIC, 3)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({Property.DELAY_LEVEL: "soon"}, ResponseCode.SYSTEM_ERROR),
        ({Property.TRANSACTION_PREPARED: "true", Property.DELAY_LEVEL: "1"}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_refused(properties: dict[str, str], code: ResponseCode) -> None:
    with pytest.raises(Refused) as refused:
        place_of(candidate(properties))
    assert refused.value.code == code


def test_a_half_message_is_stored_in_the_half_topic() -> None:
    given = candidate({Property.TRANSACTION_PREPARED: "true", Property.UNIQUE_KEY: "U1"}, sys_flag=0x5)
    assert place_of(given) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert given.message.sys_flag == 0x1
    assert given.properties[Property.REAL_TOPIC] == "orders"
    assert given.properties[Property.REAL_QUEUE_ID] == "3"
    assert given.properties[Property.TRANSACTION_ID] == "U1"


def test_what_the_broker_stores_again_is_not_a_half_message() -> None:
    assert place_of(candidate({Property.TRANSACTION_PREPARED: "true"}, is_sent=False)) == ("orders", 3)


def test_the_retry_of_a_committed_message_is_not_a_half_message() -> None:
    prepared = {Property.TRANSACTION_PREPARED: "True"}
    assert is_half(candidate(prepared))
    assert is_half(candidate(prepared, tries=1))
    assert not is_half(candidate({**prepared, Property.DELAY_LEVEL: "3"}, tries=1))


def test_kinds_are_asked_in_order_until_one_decides() -> None:
    asked: list[str] = []

    def kind(name: str, *, decides: bool) -> bool:
        asked.append(name)
        return decides

    placement = Placement(
        [
            lambda _: kind("first", decides=False),
            lambda _: kind("second", decides=True),
            lambda _: kind("third", decides=True),
        ]
    )
    placement.place(candidate({}))
    assert asked == ["first", "second"]
