"""The filter language: what it accepts, what it says of mistakes, and that it never takes long."""

import time

import pytest
from hypothesis import given, settings, strategies as st

from kourou.client import Delivery
from kourou.console.errors import ConsoleError
from kourou.console.filters import compare, parse
from kourou.protocol import properties as _properties
from kourou.protocol.message import MessageQueue, PhysicalOffset, QueueOffset
from kourou.protocol.record import StoredMessage

BODY = b'{"order": 42, "city": "Lyon", "paid": true, "user": {"name": "Anna"}, "list": [1], "none": null}'


def message(body: bytes = BODY, *, tag: str = "paid", retries: int = 0, **properties: str) -> Delivery:
    named = {"TAGS": tag, "KEYS": "42 43", "UNIQ_KEY": "AC01", **properties}
    record = StoredMessage(
        raw_topic=b"orders",
        body=body,
        raw_properties=_properties.encode(named).encode(),
        queue_id=3,
        queue_offset=QueueOffset(7),
        physical_offset=PhysicalOffset(0),
        flag=0,
        sys_flag=0,
        born_ms=1,
        born_host=bytes(8),
        stored_ms=2,
        store_host=bytes(8),
        reconsume_times=retries,
        prepared_offset=PhysicalOffset(0),
        body_crc=0,
        magic=0,
        size=0,
    )
    return Delivery(record, MessageQueue("orders", "broker-a", 3), "orders", None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lyon",
        "LYON anna",
        '"\\"city\\": \\"lyon\\""',
        "body~Lyon",
        "-Paris",
        "tag:paid",
        "-tag:new",
        "tag!=new",
        "key:42",
        "key:43",
        "id:AC01",
        "queue:3 offset<8 offset>=7",
        "broker:broker-a",
        "retries=0",
        "size>10",
        "order=42",
        "order>41.5",
        "order<=42",
        "order!=43",
        "city=Lyon",
        "city~yo",
        "paid=true",
        "none=null",
        "user.name=Anna",
        "amount>100",
        "amount<1000 amount!=5",
        "nothing!=1",
        "-nothing=1",
        "TAGS=paid",
    ],
)
def test_what_matches(text: str) -> None:
    assert parse(text).matches(message(amount="500"))


@pytest.mark.parametrize(
    "text",
    [
        "paris",
        "-lyon",
        "tag:new",
        "key:4",
        "id:AC0",
        "queue:2",
        "order>42",
        "city=lyon",
        "city>Z",
        "amount>500",
        "user=Anna",
        "nothing=1",
        "nothing>0",
        "retries>0",
        "lyon paris",
    ],
)
def test_what_does_not_match(text: str) -> None:
    assert not parse(text).matches(message(amount="500"))


@pytest.mark.parametrize(
    ("text", "at"),
    [('"open', 0), ("tag: x", 4), ("queue:x", 0), ("city:Lyon", 0), ("retries~1", 0), ("a=1 " * 17, 64), ('x "y', 2)],
)
def test_mistakes(text: str, at: int) -> None:
    with pytest.raises(ConsoleError) as caught:
        parse(text)
    assert (caught.value.code, caught.value.facts["at"]) == ("bad_filter", at)


@settings(deadline=None)
@given(st.text(max_size=100))
def test_any_text_is_a_filter_or_a_mistake(text: str) -> None:
    mistake: ConsoleError | None = None
    try:
        found = parse(text)
    except ConsoleError as error:
        mistake = error
    if mistake is None:
        assert found.matches(message()) in (True, False)
    else:
        assert mistake.code == "bad_filter" and 0 <= mistake.facts["at"] <= len(text)


@settings(deadline=None)
@given(st.text(alphabet='ab"\\ -', min_size=1, max_size=30))
def test_a_text_in_quotes_is_found_as_it_is(text: str) -> None:
    quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    assert parse(quoted).matches(message(f"x{text}y".encode()))


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63), st.integers(-(2**63), 2**63))
def test_numbers_are_compared_as_numbers(left: int, right: int) -> None:
    assert compare(str(left), "<", str(right)) is (left < right)
    assert compare(left, ">=", str(right)) is (left >= right)
    assert compare(left, "=", str(right)) is (left == right)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"{" * 100_000, b"[1]", b'{"a": ' + b"9" * 5000 + b"}", b"", b"{}"])
def test_bodies_that_are_not_what_they_look(body: bytes) -> None:
    assert not parse("a.b=1").matches(message(body))


def test_a_long_body_and_a_long_text_take_little_time() -> None:
    subject = message(b"a" * 4_000_000)
    began = time.process_time()
    assert not parse("a" * 1000 + "b").matches(subject)
    assert time.process_time() - began < 2
