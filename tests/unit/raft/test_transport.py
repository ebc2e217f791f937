"""Connections between members."""

import pytest

from kourou.raft.messages import AppendRequest, TakeOver
from kourou.raft.transport import HELLO_MS, INCOMING_MAX, RETRY_MAX_MS, RETRY_MIN_MS, Transport
from kourou.raft.wire import Hello, encode
from kourou.replication.links import (
    Accepted,
    Closed,
    Connect,
    Connected,
    HangUp,
    Link,
    NotConnected,
    Received,
    Transfer,
)

ADDRESSES = {"n1": "10.0.0.6:40911", "n2": "broker.example:40911"}


def transport() -> Transport:
    made = Transport("g0", "n0")
    made.use(ADDRESSES)
    return made


def accepted(made: Transport, address: str = "10.0.0.6:50000") -> Link:
    link = Link(address)
    made.happen(Accepted(link), 0)
    return link


def hung_up(made: Transport) -> list[str]:
    return [effect.reason for effect in made.take_effects() if isinstance(effect, HangUp)]


def test_a_member_connects_to_all_others_and_sends_its_id() -> None:
    made = transport()
    made.step(0)
    assert made.take_effects() == [Connect("10.0.0.6:40911"), Connect("broker.example:40911")]
    link = Link("10.0.0.6:40911")
    made.happen(Connected(link), 1)
    assert made.take_effects() == [Transfer(link, encode(Hello("g0", "n0", "n1")))]
    made.send("n1", TakeOver("n0", 3), None)
    assert made.take_effects() == [Transfer(link, encode(TakeOver("n0", 3)), None)]
    assert made.connected == {"n1"}


def test_what_can_not_be_sent_is_dropped() -> None:
    made = transport()
    made.send("n1", TakeOver("n0", 3))
    made.send("stranger", TakeOver("n0", 3))
    assert made.take_effects() == []


def test_a_lost_connection_is_made_again_after_growing_pauses() -> None:
    made = transport()
    made.step(0)
    made.take_effects()
    now_ms, pauses = 0, []
    for _ in range(6):
        made.happen(NotConnected("10.0.0.6:40911", "refused"), now_ms)
        due_ms = made.due_ms()
        assert due_ms is not None
        pauses.append(due_ms - now_ms)
        now_ms = due_ms
        made.step(now_ms)
        assert made.take_effects() == [Connect("10.0.0.6:40911")]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (RETRY_MIN_MS, RETRY_MAX_MS)


def test_messages_of_a_member_that_has_said_hello_are_taken() -> None:
    made = transport()
    link = accepted(made)
    frames = encode(Hello("g0", "n1", "n0")) + encode(TakeOver("n1", 7))
    assert made.happen(Received(link, frames), 0) == [TakeOver("n1", 7)]
    assert made.take_effects() == []


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        (encode(TakeOver("n1", 7)), "on a connection of None"),
        (encode(Hello("g1", "n1", "n0")), "dLegerGroup"),
        (encode(Hello("g0", "n1", "n2")), "dLegerSelfId"),
        (encode(Hello("g0", "n9", "n0")), "not another member"),
        (encode(Hello("g0", "n0", "n0")), "not another member"),
        (encode(Hello("g0", "n1", "n0")) * 2, "a second greeting"),
        (encode(Hello("g0", "n1", "n0")) + encode(TakeOver("n2", 7)), "a message of n2 on a connection of n1"),
        (b"GET / HTTP/1.1\r\n\r\n", "is not one of a Raft group"),
    ],
)
def test_others_are_hung_up(frames: bytes, reason: str) -> None:
    made = transport()
    link = accepted(made)
    assert made.happen(Received(link, frames), 0) == []
    assert reason in hung_up(made)[0]


def test_nothing_long_is_kept_before_a_hello() -> None:
    made = transport()
    link = accepted(made)
    frame = encode(AppendRequest("n1", 7, 1, 0, 0, 7, 0), 1_000_000)
    made.happen(Received(link, frame), 0)
    assert "is not one of a Raft group" in hung_up(made)[0]
    link = accepted(made)
    assert made.happen(Received(link, encode(Hello("g0", "n1", "n0")) + frame), 0) == []
    assert hung_up(made) == []
    (request,) = made.happen(Received(link, bytes(1_000_000)), 0)
    assert isinstance(request, AppendRequest)


def test_a_member_that_moves_is_connected_to_where_it_is() -> None:
    made = transport()
    link = Link("10.0.0.6:40911")
    made.happen(Connected(link), 0)
    made.take_effects()
    made.use(ADDRESSES | {"n1": "10.0.0.8:40911"})
    made.step(0)
    assert made.take_effects() == [
        HangUp(link, "n1 has another address"),
        Connect("10.0.0.8:40911"),
        Connect("broker.example:40911"),
    ]
    made.happen(Closed(link), 1)
    assert made.connected == frozenset()


def test_only_addresses_of_members_may_connect() -> None:
    made = transport()
    accepted(made, "10.0.0.99:50000")
    assert "no member of the group has this address" in hung_up(made)[0]
    accepted(made, "[::ffff:10.0.0.6]:50000")
    assert hung_up(made) == []


def test_the_address_behind_a_name_is_known_once_it_was_reached() -> None:
    made = transport()
    accepted(made, "192.0.2.7:50000")
    assert len(hung_up(made)) == 1
    reached = Link("broker.example:40911")
    reached.ip = "192.0.2.7"
    made.happen(Connected(reached), 0)
    accepted(made, "192.0.2.7:50000")
    assert hung_up(made) == []


def test_silent_connections_and_too_many_are_ended() -> None:
    made = transport()
    for _ in range(INCOMING_MAX):
        accepted(made)
    accepted(made)
    assert len(hung_up(made)) == 1
    made.step(HELLO_MS)
    assert len(hung_up(made)) == INCOMING_MAX


def test_a_newer_connection_of_a_member_ends_the_older_one() -> None:
    made = transport()
    hello = encode(Hello("g0", "n1", "n0"))
    old, new = accepted(made), accepted(made)
    made.happen(Received(old, hello), 0)
    made.happen(Received(new, hello), 0)
    assert hung_up(made) == ["n1 has connected again"]
    made.happen(Closed(old), 0)
    assert made.happen(Received(new, encode(TakeOver("n1", 7))), 0) == [TakeOver("n1", 7)]


def test_a_member_that_was_removed_is_hung_up() -> None:
    made = transport()
    made.happen(Connected(Link("10.0.0.6:40911")), 0)
    made.take_effects()
    made.use({"n2": ADDRESSES["n2"]})
    assert hung_up(made) == ["n1 is no longer a member"]
