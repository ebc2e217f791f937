"""The codec under random and hostile bytes; the compiled one beside the plain one, whose answer is the truth.

Mutations start from valid frames, because random bytes hardly ever get past the first few: the interesting inputs are
almost right.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings, strategies as st
from tests.examples import examples

from kourou.protocol import command, frame
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, LocalProtocolError

try:
    from kourou.protocol import _wire
except ImportError:
    _wire = None  # type: ignore[assignment]

needs_compiled = pytest.mark.skipif(_wire is None, reason="the compiled codec is not built, or KOUROU_PURE=1")

LIMIT = frame.FRAME_SIZE_MAX

# ── What is drawn ───────────────────────────────────────────────────────────────────────────────────────────────────

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([0, 1, 2, 3, 105, 310, 513])
plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
odd_text = st.text(st.sampled_from('"\\/\b\f\n\r\t\x00\x01\x02\x1f\x7f\x80aé中🚀'), max_size=20)
text = plain_text | odd_text | st.sampled_from(["", "topic", "a", "b", "i", "null", "TopicTest", "x" * 64, "y" * 65])
bodies = st.binary(max_size=40)
languages = st.sampled_from(["JAVA", "GO", "CPP", "PYTHON", "OTHER", "NODE_JS"])

json_commands = st.builds(
    Command,
    code=int32,
    opaque=int32,
    flag=int32,
    version=int32,
    language=languages | plain_text.filter(bool),
    remark=st.none() | text,
    ext=st.none() | st.dictionaries(text, text, min_size=1, max_size=6),
    body=bodies,
)
binary_commands = st.builds(
    Command,
    code=int16,
    opaque=int32,
    flag=int32,
    version=int16,
    language=languages,
    remark=st.none() | text.filter(bool),
    ext=st.none() | st.dictionaries(text, text, min_size=1, max_size=6),
    body=bodies,
    binary=st.just(True),
)
commands = json_commands | binary_commands
streams = st.lists(commands.map(command.encode), max_size=4).map(b"".join)


def framed(kind: int, header: bytes, body: bytes) -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4) + (kind << 24 | len(header)).to_bytes(4) + header + body


TOKENS = [
    *(
        '{"}',
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        '"',
        "null",
        "true",
        "-",
        "0",
        "00",
        "-0",
        "1",
        "105",
        "2147483647",
        "1e3",
        "1.0",
    ),
    *(
        '"code"',
        '"opaque"',
        '"flag"',
        '"version"',
        '"language"',
        '"remark"',
        '"extFields"',
        '"serializeTypeCurrentRPC"',
    ),
    *('"JSON"', '"JAVA"', '"a"', '""', '"topic":"T"', '"\\u0001"', '"\\ud83d\\ude80"', '"\\ud800"', '"é🚀"', " ", "\n"),
    *(
        '{"code":1',
        ',"extFields":{',
        '"a":"b"',
        "2147483648",
        "-2147483648",
        "-2147483649",
        '"\\',
        '"\\"',
        '"\x01"',
        "\ufeff",
    ),
]
json_soup = st.lists(st.sampled_from(TOKENS), max_size=14).map(lambda parts: "".join(parts).encode())
MEMBERS = [
    '"code":%s',
    '"opaque":%s',
    '"flag":%s',
    '"version":%s',
    '"language":%s',
    '"remark":%s',
    '"serializeTypeCurrentRPC":%s',
    '"extFields":{"a":%s}',
    '"extFields":{"a":"1","b":%s}',
    '"extFields":{%s:"1"}',
    '"extFields":%s',
    '"other":%s',
]
VALUES = [
    *("0", "-0", "1", "-1", "00", "01", "+1", "1.0", "1e2", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *(
        "12345678901234567890",
        "0.0",
        "-",
        "",
        "null",
        "true",
        "{}",
        "[]",
        '{"a":"b"}',
        "{",
        '"JSON"',
        '"ROCKETMQ"',
        '""',
    ),
    *(
        '"a"',
        '"\\n"',
        '"\\u0041"',
        '"\\ud83d\\ude80"',
        '"\\ud83d"',
        '"\\ude80"',
        '"\\u00"',
        '"\\q"',
        '"',
        '"\\"',
        '"\\\\"',
    ),
    *(
        '"é"',
        '"🚀"',
        '"\x7f"',
        '"\x01"',
        '"%s"' % ("x" * 64),
        '"%s"' % ("x" * 65),
        '"%s"' % ("\\u0001" * 30),
        ' "a"',
        '"a" ',
    ),
]
json_almost = st.lists(st.tuples(st.sampled_from(MEMBERS), st.sampled_from(VALUES)), max_size=5).map(
    lambda parts: ("{" + ",".join(member % value for member, value in parts) + "}").encode()
)
odd_headers = st.builds(framed, st.sampled_from([0, 0, 0, 0, 1, 2, 255]), json_soup | json_almost | bodies, bodies)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid stream, or one with odd headers, with some bytes replaced, removed, repeated or put in."""
    data = bytearray(draw(streams | odd_headers))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 5)):
            case 0:
                data[at : at + 1] = bytes([draw(st.integers(0, 255))])
            case 1:
                del data[at : at + draw(st.integers(1, 8))]
            case 2:
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
            case 3:
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case 4:
                data[at:at] = draw(st.sampled_from(TOKENS)).encode()
            case _:
                data[at : at + 4] = draw(st.sampled_from([0, 3, 4, 5, 2**24, 2**31 - 1, 2**32 - 1])).to_bytes(4)
    return bytes(data)


@st.composite
def mended(draw: st.DrawFn) -> bytes:
    """A mutated header in a frame whose lengths are right, so that the mutation gets as far as the header."""
    data = draw(mutated())
    cut = draw(st.integers(0, len(data)))
    return framed(draw(st.sampled_from([0, 0, 1])), data[8:][:cut], data[8:][cut:])


any_bytes = streams | odd_headers | mutated() | mended() | st.binary(max_size=60)


def outcome(split: Callable[[bytes, int], Any], data: bytes, limit: int = LIMIT) -> tuple[object, ...]:
    """What `split` gives, in a form that can be compared; only the protocol's own error is an outcome."""
    found, used, need, error = split(data, limit)
    assert error is None or type(error) is FrameError
    assert 0 <= used <= len(data)
    assert all(type(made) is Command for made in found)
    return found, used, need, None if error is None else str(error)


# ── Properties of the codec that runs by default, and of the plain one ──────────────────────────────────────────────


@settings(deadline=None)
@given(commands)
def test_what_is_encoded_decodes_to_the_same(made: Command) -> None:
    for split, encode in ((frame.split, frame.encode), (frame.split_plain, command.encode)):
        data = encode(made)
        assert split(data, LIMIT) == ([made], len(data), 4, None)


@settings(deadline=None, max_examples=examples(200))
@given(any_bytes)
def test_any_bytes_are_commands_or_a_frame_error(data: bytes) -> None:
    for split in (frame.split, frame.split_plain):
        found, *_ = split(data, LIMIT)
        outcome(split, data)
        # Whatever was understood can be sent on. A binary frame's unknown language becomes OTHER.
        for made in found:
            again = frame.encode(made)
            assert split(again, len(again)) == ([made], len(again), 4, None)


@settings(deadline=None)
@given(any_bytes, st.integers(0, 100))
def test_a_low_limit_is_kept(data: bytes, limit: int) -> None:
    for split in (frame.split, frame.split_plain):
        *_, used, need, error = split(data, limit)
        assert need <= max(limit + 4, 4)
        if error is None and len(data) - used >= 4:
            assert int.from_bytes(data[used : used + 4]) <= limit


@settings(deadline=None)
@given(streams | mutated(), st.data())
def test_pieces_give_what_the_whole_gives(data: bytes, draw: st.DataObject) -> None:
    whole = frame.Decoder()
    wanted = whole.feed(data)
    decoder = frame.Decoder()
    found: list[Command] = []
    at = 0
    while at < len(data):
        size = draw.draw(st.integers(1, max(1, len(data) // 3)))
        found += decoder.feed(data[at : at + size])
        at += size
        assert decoder.buffered <= len(data)
    assert found == wanted
    assert str(decoder.error) == str(whole.error)
    assert decoder.buffered == whole.buffered


@settings(deadline=None)
@given(commands, commands)
def test_every_cut_of_two_frames(first: Command, second: Command) -> None:
    data = command.encode(first) + command.encode(second)
    for cut in range(len(data) + 1):
        decoder = frame.Decoder()
        assert decoder.feed(data[:cut]) + decoder.feed(data[cut:]) == [first, second]


# ── Compiled beside plain ───────────────────────────────────────────────────────────────────────────────────────────


@needs_compiled
@settings(deadline=None, max_examples=examples(500))
@given(any_bytes)
@example(framed(0, b'{"code":-0}', b""))
@example(framed(0, b'{"extFields":{"a":"1","a":"2"},"extFields":{}}', b""))
@example(framed(0, b'{"remark":"\xed\xa0\x80"}', b""))
@example(framed(0, b'{"serializeTypeCurrentRPC":"\xff"}', b""))
@example(framed(0, b'{"serializeTypeCurrentRPC":"JSON"', b"}"))
def test_both_split_alike(data: bytes) -> None:
    assert outcome(_wire.split, data) == outcome(frame.split_plain, data)


@needs_compiled
@settings(deadline=None, max_examples=examples(200))
@given(any_bytes, st.integers(0, 80))
def test_both_split_alike_under_a_limit(data: bytes, limit: int) -> None:
    assert outcome(_wire.split, data, limit) == outcome(frame.split_plain, data, limit)


@needs_compiled
@settings(deadline=None, max_examples=examples(200))
@given(st.lists(json_almost.map(lambda header: framed(0, header, b"body")), min_size=1, max_size=3).map(b"".join))
def test_both_split_alike_what_is_almost_right(data: bytes) -> None:
    assert outcome(_wire.split, data) == outcome(frame.split_plain, data)


like_fields = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "bb", "é"]), st.sampled_from(["", "0", "same", "\\u0001", "z" * 65, "é", "\\x"])
    ),
    max_size=4,
)


@needs_compiled
@settings(deadline=None, max_examples=examples(300))
@given(st.lists(like_fields, min_size=2, max_size=30), st.sampled_from([b"}", b"", b",}", b'"']))
def test_both_split_alike_what_follows_its_like(headers: list[list[tuple[str, str]]], end: bytes) -> None:
    """A header that looks like one before it is made from that one, and must be the same nonetheless."""
    for fields in (*headers, *headers):
        inside = ",".join(f'"{name}":"{value}"' for name, value in fields)
        for stop in (b"}", end):
            data = framed(0, b'{"code":1,"extFields":{%b%b}' % (inside.encode(), stop), b"body")
            assert outcome(_wire.split, data) == outcome(frame.split_plain, data)


@needs_compiled
def test_header_made_from_its_like_shares_nothing_with_it() -> None:
    data = framed(0, b'{"extFields":{"only-here":"1","other":"2"}}', b"")
    for _ in range(3):
        (made,), *_ = _wire.split(data, LIMIT)
        assert made.ext == {"only-here": "1", "other": "2"}
        made.ext["other"] = "changed"
        made.ext["more"] = "3"


@needs_compiled
@settings(deadline=None)
@given(commands)
def test_both_encode_alike(made: Command) -> None:
    assert _wire.encode(made) == command.encode(made)


anything = st.text(max_size=10)
odd_commands = st.builds(
    Command,
    code=st.integers(),
    opaque=st.integers(),
    flag=int32,
    version=int32,
    language=anything,
    remark=st.none() | anything,
    ext=st.none() | st.dictionaries(anything, anything, max_size=4),
    body=bodies,
    binary=st.booleans(),
)


@needs_compiled
@settings(deadline=None)
@given(odd_commands)
def test_both_refuse_alike(made: Command) -> None:
    assert _encoded(_wire.encode, made) == _encoded(command.encode, made)


def _encoded(encode: Callable[[Command], bytes], made: Command) -> bytes | str:
    try:
        return encode(made)
    except LocalProtocolError as error:
        return str(error)


@needs_compiled
@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "topic", "queueId", "x" * 64, ""]), text), min_size=2, max_size=12)
)
def test_what_is_remembered_is_never_mixed_up(fields: list[tuple[str, str]]) -> None:
    """The compiled codec keeps the last name and value of each slot: a stranger must not be taken for them."""
    made = [Command(1, opaque, 0, 513, "JAVA", None, {name: value}) for opaque, (name, value) in enumerate(fields)]
    data = b"".join(map(_wire.encode, made))
    assert _wire.split(data, LIMIT)[0] == made
    assert _wire.split(data, LIMIT)[0] == made


@needs_compiled
@settings(deadline=None)
@given(json_commands)
def test_decoded_values_are_their_own(made: Command) -> None:
    """What one frame gave is not changed by what comes later."""
    assume(made.ext)
    (first,) = _wire.split(command.encode(made), LIMIT)[0]
    copy = msgspec.structs.replace(first, ext=dict(first.ext or {}))
    other = msgspec.structs.replace(made, ext={key: value[::-1] + "!" for key, value in (made.ext or {}).items()})
    _wire.split(command.encode(other), LIMIT)
    assert first == copy == made
