"""Messages and queues."""

import msgspec
import pytest

from kourou.protocol.codes import SysFlag
from kourou.protocol.errors import BodyError, LocalProtocolError
from kourou.protocol.message import Message, MessageQueue, transaction_of, with_transaction


def test_a_queue_has_javas_names_on_the_wire() -> None:
    queue = MessageQueue("T", "broker-a", 3)
    assert msgspec.json.encode(queue) == b'{"topic":"T","brokerName":"broker-a","queueId":3}'
    assert msgspec.json.decode(b'{"brokerName":"broker-a","queueId":3,"topic":"T"}', type=MessageQueue) == queue


def test_queues_are_keys_and_have_an_order() -> None:
    queues = [MessageQueue("T", "b", 1), MessageQueue("T", "a", 10), MessageQueue("T", "a", 9)]
    assert sorted(queues) == [queues[2], queues[1], queues[0]]
    assert {MessageQueue("T", "b", 1): "same"}[queues[0]] == "same"


def test_a_message_from_what_a_user_says() -> None:
    message = Message.build(
        "T",
        b"body",
        tag="paid",
        keys=["42", "43"],
        properties={"amount": "12"},
        flag=7,
        delay_level=3,
        wait_stored=False,
    )
    assert message == Message(
        "T", b"body", 7, {"amount": "12", "TAGS": "paid", "KEYS": "42 43", "DELAY": "3", "WAIT": "false"}
    )
    assert message.tags == "paid"
    assert message.keys == ["42", "43"]
    assert message.delay_level == 3
    assert not message.wait_stored


def test_a_message_about_which_nothing_is_said() -> None:
    message = Message("T", b"")
    assert message.tags is None
    assert message.keys == []
    assert message.delay_level == 0
    assert message.unique_key is None
    assert message.sharding_key is None
    assert message.wait_stored
    assert Message.build("T", b"").properties == {"WAIT": "true"}


def test_messages_do_not_share_their_default_properties() -> None:
    assert Message("T", b"").properties is not Message("T", b"").properties


def test_system_properties_are_added_to_a_copy() -> None:
    message = Message.build("T", b"", properties={"a": "b"})
    changed = message.with_properties({"UNIQ_KEY": "id", "__SHARDINGKEY": "s"})
    assert changed.unique_key == "id"
    assert changed.sharding_key == "s"
    assert changed.properties["a"] == "b"
    assert message.unique_key is None


def test_a_reserved_name_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="UNIQ_KEY"):
        Message.build("T", b"", properties={"UNIQ_KEY": "mine"})


@pytest.mark.parametrize("key", ["", "two words"])
def test_a_key_that_would_fall_apart_is_refused(key: str) -> None:
    with pytest.raises(LocalProtocolError, match="key"):
        Message.build("T", b"", keys=["fine", key])


def test_a_delay_that_is_not_a_number_is_the_peers_fault() -> None:
    with pytest.raises(BodyError):
        _ = Message("T", b"", properties={"DELAY": "soon"}).delay_level


def test_the_transaction_bits_are_replaced_and_nothing_else() -> None:
    prepared = SysFlag.COMPRESSED | SysFlag.TRANSACTION_PREPARED | SysFlag.BORN_HOST_V6
    assert transaction_of(prepared) == SysFlag.TRANSACTION_PREPARED
    rolled_back = with_transaction(prepared, SysFlag.TRANSACTION_ROLLBACK)
    assert rolled_back == SysFlag.COMPRESSED | SysFlag.TRANSACTION_ROLLBACK | SysFlag.BORN_HOST_V6
    assert with_transaction(rolled_back, 0) == SysFlag.COMPRESSED | SysFlag.BORN_HOST_V6
    assert transaction_of(SysFlag.COMPRESSED) == 0
