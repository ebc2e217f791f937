"""Messages as bytes: round trips in any slices, limits, and bytes that are not messages."""

from contextlib import suppress

import pytest
from hypothesis import given, strategies as st

from kourou.protocol.errors import ProtocolError
from kourou.raft.members import MEMBERS_MAX, Member, Members
from kourou.raft.messages import AppendAnswer, AppendRequest, Message, TakeOver, VoteAnswer, VoteRequest
from kourou.raft.wire import DATA_MAX, HEAD_MAX, Decoder, encode

MOST = Members(tuple(Member(f"{number}".rjust(64, "n"), True, "h" * 300) for number in range(MEMBERS_MAX)), 2**63 - 1)
DATA = b"records of the log"
MESSAGES: list[Message] = [
    VoteRequest("n0", 3, 2, 900, 1, 4, trial=True, is_transfer=False),
    VoteAnswer("n1", 3, granted=False, trial=True, members=MOST),
    AppendRequest("n0", 3, 7 << 20, 900, 2, 3, 850, members=MOST, restart=(2, 300)),
    AppendAnswer("n1", 3, 7 << 20, True, 1_000, 900, 0, 3, 4),
    TakeOver("n0", 3),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Message) -> None:
    assert Decoder().feed(encode(message)) == [message]
    assert len(encode(message)) < HEAD_MAX


@given(st.integers(1, 40))
def test_slices_do_not_matter(size: int) -> None:
    request = AppendRequest("n0", 3, 5, 900, 2, 3, 850)
    stream = encode(MESSAGES[0]) + encode(request, len(DATA)) + DATA + encode(MESSAGES[3])
    decoder = Decoder()
    found = [message for at in range(0, len(stream), size) for message in decoder.feed(stream[at : at + size])]
    assert found == [MESSAGES[0], AppendRequest("n0", 3, 5, 900, 2, 3, 850, data=DATA), MESSAGES[3]]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (b"GET / HTTP/1.1\r\n", "not one of a Raft group"),
        ((4 + HEAD_MAX + 1).to_bytes(4) + (HEAD_MAX + 1).to_bytes(4), "not one of a Raft group"),
        ((4 + 1 + DATA_MAX + 1).to_bytes(4) + (1).to_bytes(4), "not one of a Raft group"),
        ((3).to_bytes(4) + (0).to_bytes(4), "not one of a Raft group"),
        ((5).to_bytes(4) + (1).to_bytes(4) + b"\xc0", "not a message"),
        (encode(TakeOver("n0", 3), 3) + b"xxx", "3 bytes of the log"),
        (encode(TakeOver("", 3)), "not a message"),
        (encode(TakeOver("n0", -1)), "not a message"),
        (encode(AppendRequest("n0", 3, 5, 900, 2, 3, 850, data=DATA)), "inside of a message"),
    ],
)
def test_other_bytes_end_the_stream(stream: bytes, problem: str) -> None:
    with pytest.raises(ProtocolError, match=problem):
        Decoder().feed(stream)


@given(st.binary(max_size=80))
def test_any_bytes_are_messages_or_a_protocol_error(stream: bytes) -> None:
    with suppress(ProtocolError):
        Decoder().feed(stream)
