"""Both header forms against vectors and against bytes that the Java classes of RocketMQ 5.5.0 and 4.9.8 wrote.

Everything here runs with the plain codec and, where it is built, with the compiled one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from kourou.protocol import command, frame
from kourou.protocol.codes import CURRENT_VERSION
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, LocalProtocolError

try:
    from kourou.protocol import _wire
except ImportError:
    _wire = None  # type: ignore[assignment]

DATA = Path(__file__).parents[2] / "data"
LIMIT = frame.FRAME_SIZE_MAX


class Codec(NamedTuple):
    split: Callable[[bytes, int], tuple[list[Command], int, int, FrameError | None]]
    encode: Callable[[Command], bytes]

    def decode(self, data: bytes) -> Command:
        """The one command in `data`. Raises FrameError."""
        commands, used, _, error = self.split(data, LIMIT)
        if error is not None:
            raise error
        (found,) = commands
        assert used == len(data)
        return found


CODECS = {"plain": Codec(frame.split_plain, command.encode)}
if _wire is not None:
    CODECS["compiled"] = Codec(_wire.split, _wire.encode)


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest) -> Codec:
    return CODECS[request.param]


@pytest.mark.skipif(
    _wire is None, reason="the compiled codec is not built, or KOUROU_PURE=1: only the plain one is tested"
)
def test_both_codecs_are_tested() -> None:
    assert list(CODECS) == ["plain", "compiled"]
    assert frame.split is CODECS["compiled"].split


def json_frame(header: bytes | str, body: bytes = b"") -> bytes:
    """A frame around a JSON header as a peer might write it, whatever it holds."""
    text = header.encode() if isinstance(header, str) else header
    return (4 + len(text) + len(body)).to_bytes(4) + len(text).to_bytes(4) + text + body


def binary_frame(header: bytes, body: bytes = b"") -> bytes:
    return (4 + len(header) + len(body)).to_bytes(4) + (1 << 24 | len(header)).to_bytes(4) + header + body


def header_of(data: bytes) -> bytes:
    """The header's bytes in a frame."""
    return data[8 : 8 + (int.from_bytes(data[4:8]) & 0xFFFFFF)]


# ── Bytes from Java ─────────────────────────────────────────────────────────────────────────────────────────────────


def recorded_frames() -> list[Any]:
    lines = [
        (version, json.loads(line))
        for version in ("5.5.0", "4.9.8")
        for line in (DATA / f"java-{version}.jsonl").read_text().splitlines()
    ]
    return [pytest.param(line, id=f"{version} {line['name']}") for version, line in lines if line["kind"] == "frame"]


def test_enough_was_recorded() -> None:
    assert len(recorded_frames()) > 200


@pytest.mark.parametrize("recorded", recorded_frames())
def test_recorded_frame_decodes_to_what_java_reads(recorded: Any, codec: Codec) -> None:
    found, wanted = codec.decode(bytes.fromhex(recorded["hex"])), recorded["fields"]
    assert found.code == wanted["code"]
    assert found.flag == wanted["flag"]
    assert found.language == wanted["language"]
    assert found.version == wanted["version"]
    assert found.opaque == wanted["opaque"]
    assert found.binary == (wanted["type"] == "ROCKETMQ")
    assert found.body.hex() == wanted["body"]
    # Java reads an absent remark of the binary form as null, and an empty value as null: text is empty here.
    assert (found.remark or None) == (wanted["remark"] or None)
    assert (found.ext or {}) == {key: value or "" for key, value in (wanted["ext"] or {}).items()}


@pytest.mark.parametrize("recorded", recorded_frames())
def test_recorded_frame_is_written_alike(recorded: Any, codec: Codec) -> None:
    data = bytes.fromhex(recorded["hex"])
    again = codec.encode(codec.decode(data))
    if recorded["fields"]["type"] == "ROCKETMQ":
        assert again == data
    else:
        assert _meaning(again) == _meaning(data)


def _meaning(data: bytes) -> tuple[object, bytes]:
    """A JSON frame as Java understands it: no header fields and none that are there are the same."""
    header = header_of(data)
    value = json.loads(header)
    if not value.get("extFields"):
        value.pop("extFields", None)
    return value, data[8 + len(header) :]


# ── Vectors ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BINARY_VECTOR = bytes.fromhex(
    "000000320100002b 0069 00 0201 00000007 00000000 00000002 6869 00000014"
    " 0005 746f706963 00000009 546f70696354657374 010203"
)
JSON_VECTOR = json_frame(
    '{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
    '"serializeTypeCurrentRPC":"JSON","version":513}'
)


def test_binary_vector(codec: Codec) -> None:
    wanted = Command(105, 7, 0, 513, "JAVA", "hi", {"topic": "TopicTest"}, b"\x01\x02\x03", True)
    assert codec.decode(BINARY_VECTOR) == wanted
    assert codec.encode(wanted) == BINARY_VECTOR


def test_json_vector(codec: Codec) -> None:
    assert JSON_VECTOR[:15] == bytes.fromhex("00000087 00000083 7b22636f646522")
    wanted = Command(105, 7, 0, 513, "JAVA", None, {"topic": "TopicTest"})
    assert codec.decode(JSON_VECTOR) == wanted
    assert codec.encode(wanted) == JSON_VECTOR


def test_defaults_are_ours() -> None:
    made = Command(105)
    assert (made.version, made.language, made.flag, made.binary) == (CURRENT_VERSION, "PYTHON", 0, False)


# ── JSON headers as others write them ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        pytest.param("{}", Command(0, version=0, language="OTHER"), id="all fields absent"),
        pytest.param('{"code":105}', Command(105, version=0, language="OTHER"), id="only a code"),
        pytest.param(
            '{"code":310,"language":"CPP","version":333,"opaque":1,"flag":0,'
            '"extFields":{"d":4,"e":-1,"g":"1700000000000","k":"false","m":true,"x":1.5,"n":null,"Signature":""}}',
            Command(
                310,
                1,
                version=333,
                language="CPP",
                ext={"d": "4", "e": "-1", "g": "1700000000000", "k": "false", "m": "true", "x": "1.5", "Signature": ""},
            ),
            id="the C++ client's numbers, and a null left out",
        ),
        pytest.param(
            '{"code":1,"extFields":{"list":[1,"a"],"object":{"a":{}}}}',
            Command(1, version=0, language="OTHER", ext={"list": '[1,"a"]', "object": '{"a":{}}'}),
            id="lists and objects stay as they were written",
        ),
        pytest.param(
            '{"code":null,"extFields":null,"flag":null,"language":null,"opaque":null,"remark":null,"version":null}',
            Command(0, version=0, language="OTHER"),
            id="null everywhere",
        ),
        pytest.param(
            '{"code":1,"opaque":-2147483648,"flag":3,"version":2147483647,"language":"GO"}',
            Command(1, -(2**31), 3, 2**31 - 1, "GO"),
            id="the ends of 32 bits",
        ),
        pytest.param(
            r'{"code":1,"language":"","remark":"","extFields":{}}',
            Command(1, version=0, language="OTHER", remark="", ext={}),
            id="empty text",
        ),
        pytest.param(
            ' {\t"code" : 1 ,\n"extFields" : { "a" : "b" , "c" : "d" } , "remark" : "r" } \r\n',
            Command(1, version=0, language="OTHER", remark="r", ext={"a": "b", "c": "d"}),
            id="whitespace",
        ),
        pytest.param(
            '{"code":1,"unknown":{"deep":[1,2,{"x":null}]},"flag":2,"later":"added","n":1e9,"b":true}',
            Command(1, flag=2, version=0, language="OTHER"),
            id="unknown top-level fields",
        ),
        pytest.param(
            r'{"code":1,"remark":"\"\\\/\b\f\n\r\t\u0041\u4e2d\ud83d\ude80","extFields":{"\u0061\n":"\u0001\u0002"}}',
            Command(1, version=0, language="OTHER", remark='"\\/\b\f\n\r\tA中🚀', ext={"a\n": "\x01\x02"}),
            id="escapes",
        ),
        pytest.param(
            '{"code":1,"remark":"🚀 订单","extFields":{"ключ":"значение é","\x7f":"\x7f"}}',
            Command(1, version=0, language="OTHER", remark="🚀 订单", ext={"ключ": "значение é", "\x7f": "\x7f"}),
            id="text beyond ASCII",
        ),
        pytest.param(
            '{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"b":"2","b":"3"}}',
            Command(2, version=0, language="OTHER", ext={"b": "3"}),
            id="the last of repeated keys wins",
        ),
        pytest.param(
            '{"code":1,"serializeTypeCurrentRPC":"ROCKETMQ","language":"COBOL"}',
            Command(1, version=0, language="COBOL"),
            id="a language nobody knows, a form that the frame contradicts",
        ),
    ],
)
def test_json_header(header: str, wanted: Command, codec: Codec) -> None:
    assert codec.decode(json_frame(header, b"body")) == msgspec.structs.replace(wanted, body=b"body")


@pytest.mark.parametrize(
    "header",
    [
        "",
        "{",
        "[]",
        "null",
        "7",
        '"text"',
        '{"code":105',
        '{"code":105}x',
        '{"code":105}{}',
        '{"code":105,}',
        "{code:105}",
        '{"code":"105"}',
        '{"code":1.5}',
        '{"code":01}',
        '{"code":2147483648}',
        '{"code":-2147483649}',
        '{"code":99999999999999999999999999}',
        '{"code":[]}',
        '{"opaque":{}}',
        '{"language":1}',
        '{"remark":1}',
        '{"remark":"' + "\n" + '"}',
        '{"extFields":[]}',
        '{"extFields":"a"}',
        '{"extFields":{"a":}}',
        '{"extFields":{"a"}}',
        '{"extFields":{1:"a"}}',
        '{"extFields":{"a":"b"}',
        r'{"remark":"\ud800"}',
        r'{"remark":"\ud83dx"}',
        r'{"remark":"\ude80\ud83d"}',
        r'{"remark":"\u12"}',
        r'{"remark":"\x41"}',
        '{"remark":"\\',
        '{"remark":"open',
        b'{"remark":"\xff"}',
        b'{"remark":"\xed\xa0\x80"}',
        b'{"remark":"\xc0\x80"}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"extFields":{"\xff":"a"}}',
        b"\x00\x01\x02\x03",
        "[" * 100_000,
        '{"extFields":{"a":' + "[" * 100_000,
    ],
    ids=lambda header: repr(header[:40]),
)
def test_json_header_that_makes_no_sense(header: bytes | str, codec: Codec) -> None:
    with pytest.raises(FrameError, match="JSON header"):
        codec.decode(json_frame(header))


# ── Binary headers ──────────────────────────────────────────────────────────────────────────────────────────────────

FIXED = bytes.fromhex("0069 00 0201 00000007 00000000")


@pytest.mark.parametrize(
    ("rest", "what"),
    [
        ("", "does not decode"),
        ("0000", "does not decode"),
        ("00000001", "remark of 1 bytes"),
        ("ffffffff", "remark of -1 bytes"),
        ("7fffffff 00", "remark of 2147483647 bytes"),
        ("00000001 ff 00000000", "does not decode"),
        ("00000000", "header fields of -1 bytes"),
        ("00000000 000000", "header fields of -1 bytes"),
        ("00000000 00000001", "header fields of 1 bytes"),
        ("00000000 ffffffff", "header fields of -1 bytes"),
        ("00000000 00000001 00", "a field is truncated"),
        ("00000000 00000002 0001", "field name of 1 bytes"),
        ("00000000 00000002 ffff", "field name of -1 bytes"),
        ("00000000 00000003 0001 61", "has no value"),
        ("00000000 00000007 0001 61 00000001", "field value of 1 bytes"),
        ("00000000 00000007 0001 61 ffffffff", "field value of -1 bytes"),
        ("00000000 00000008 0001 61 00000001 ff", "does not decode"),
        ("00000000 00000008 0001 ff 00000001 61", "does not decode"),
    ],
)
def test_binary_header_that_makes_no_sense(rest: str, what: str, codec: Codec) -> None:
    with pytest.raises(FrameError, match=what):
        codec.decode(binary_frame(FIXED + bytes.fromhex(rest)))


def test_binary_header_with_more_behind_it(codec: Codec) -> None:
    """Java reads what it knows and skips to the body, so a later version may add something."""
    found = codec.decode(binary_frame(FIXED + bytes(8) + b"later", b"body"))
    assert found == Command(105, 7, 0, 513, "JAVA", None, None, b"body", True)


def test_binary_languages(codec: Codec) -> None:
    unknown = codec.decode(binary_frame(bytes.fromhex("0069 63 0201 00000007 00000000") + bytes(8)))
    assert unknown.language == "OTHER"
    assert codec.decode(codec.encode(Command(1, language="COBOL", binary=True))).language == "OTHER"
    assert codec.decode(codec.encode(Command(1, language="NODE_JS", binary=True))).language == "NODE_JS"


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_keys_stand_in_javas_order(codec: Codec) -> None:
    data = codec.encode(Command(1, 2, 3, 4, "GO", "r", {"b": "2", "a": "1"}))
    assert header_of(data) == (
        b'{"code":1,"extFields":{"b":"2","a":"1"},"flag":3,"language":"GO","opaque":2,"remark":"r",'
        b'"serializeTypeCurrentRPC":"JSON","version":4}'
    )


def test_nothing_is_written_for_nothing(codec: Codec) -> None:
    assert codec.encode(Command(1, ext={})) == codec.encode(Command(1))
    assert b"remark" not in codec.encode(Command(1))
    assert b'"remark":""' in codec.encode(Command(1, remark=""))


@pytest.mark.parametrize("size", [10, 4_000, 12_000, 70_000, 170_000])
@pytest.mark.parametrize("char", ["a", "\x01", "中", "🚀"])
def test_long_text_survives(size: int, char: str, codec: Codec) -> None:
    """The compiled codec has a work space of fixed size: what does not fit goes another way, with the same result."""
    made = Command(1, 2, 0, 513, "JAVA", char * 3, {"k": char * size, char * 5: "v"}, b"body")
    assert codec.encode(made) == command.encode(made)
    assert codec.decode(codec.encode(made)) == made


def test_many_fields_survive(codec: Codec) -> None:
    made = Command(1, 2, 0, 513, "JAVA", None, {f"key-{n}": "\x01" * (n % 50) for n in range(5_000)})
    assert codec.encode(made) == command.encode(made)
    assert codec.decode(codec.encode(made)) == made


@pytest.mark.parametrize("binary", [False, True])
def test_a_header_that_is_too_large_to_be_read(binary: bool, codec: Codec) -> None:
    rest = len(header_of(codec.encode(Command(1, remark="r", binary=binary)))) - 1
    fitting = codec.encode(Command(1, remark="r" * (command.HEADER_SIZE_MAX - rest), binary=binary))
    assert len(header_of(fitting)) == command.HEADER_SIZE_MAX
    assert codec.decode(fitting).remark == "r" * (command.HEADER_SIZE_MAX - rest)
    with pytest.raises(LocalProtocolError, match="header of 1048577 bytes; the limit is 1048576"):
        codec.encode(Command(1, remark="r" * (command.HEADER_SIZE_MAX - rest + 1), binary=binary))
    grown = fitting[4:5] + (command.HEADER_SIZE_MAX + 1).to_bytes(3) + fitting[8:] + b"r"
    with pytest.raises(FrameError, match="header of 1048577 bytes; the limit is 1048576"):
        codec.decode(len(grown).to_bytes(4) + grown)


@pytest.mark.parametrize("form", ["json", "lenient", "binary"])
def test_a_header_with_too_many_fields(form: str, codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(count: int) -> bytes:
        fields = {str(n): "" for n in range(count)}
        if count > command.FIELDS_MAX:
            with pytest.raises(LocalProtocolError, match="header of 10001 fields; the limit is 10000"):
                codec.encode(Command(1, ext=fields, binary=form == "binary"))
        with monkeypatch.context() as patch:  # a peer that knows no limit
            patch.setattr(command, "FIELDS_MAX", count)
            data = command.encode(Command(1, ext=fields, binary=form == "binary"))
        return json_frame(header_of(data).replace(b'"7":""', b'"7":7')) if form == "lenient" else data

    assert len(codec.decode(encode(command.FIELDS_MAX)).ext or {}) == command.FIELDS_MAX
    with pytest.raises(FrameError, match="more than 10000 fields"):
        codec.decode(encode(command.FIELDS_MAX + 1))


@pytest.mark.parametrize("number", [0, -1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**63, 10**30])
def test_numbers_are_written_alike(number: int, codec: Codec) -> None:
    made = Command(number, number, number, number)
    assert codec.encode(made) == command.encode(made)
    assert header_of(codec.encode(made)).startswith(b'{"code":%d,' % number)


@pytest.mark.parametrize(
    "made", [Command(1, remark="\ud800"), Command(1, ext={"a": "\udfff"}), Command(1, ext={"\ud800": "a"})]
)
@pytest.mark.parametrize("binary", [False, True])
def test_half_a_character_is_not_sent(made: Command, binary: bool, codec: Codec) -> None:
    with pytest.raises(LocalProtocolError, match="not valid Unicode"):
        codec.encode(msgspec.structs.replace(made, binary=binary))


@pytest.mark.parametrize("made", [Command(32768), Command(200_050), Command(-32769), Command(1, version=40_000)])
def test_binary_form_has_sixteen_bits_for_codes(made: Command, codec: Codec) -> None:
    with pytest.raises(LocalProtocolError, match="does not fit a binary header"):
        codec.encode(msgspec.structs.replace(made, binary=True))


def test_binary_form_has_fifteen_bits_for_a_names_length(codec: Codec) -> None:
    assert codec.decode(codec.encode(Command(1, ext={"k" * 0x7FFF: "v"}, binary=True))).ext == {"k" * 0x7FFF: "v"}
    with pytest.raises(LocalProtocolError, match="field name of 32768 bytes"):
        codec.encode(Command(1, ext={"k" * 0x8000: "v"}, binary=True))


def test_a_frame_has_31_bits_for_its_length() -> None:
    assert command.encode_head(Command(1), 2**31 - 200)
    with pytest.raises(LocalProtocolError, match="2147483647"):
        command.encode_head(Command(1), 2**31 - 100)


def test_head_and_body_may_be_sent_apart(codec: Codec) -> None:
    for binary in (False, True):
        made = Command(1, 2, 0, 513, "JAVA", "r", {"a": "b"}, b"the body", binary)
        assert command.encode_head(made, 8) + b"the body" == codec.encode(made)


# ── Answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_answer_echoes_the_request() -> None:
    asked = Command(105, -7, 0, 401, "GO", ext={"topic": "t"}, body=b"b")
    answer = asked.answer(17, "none", {"a": "b"}, b"c")
    assert answer == Command(17, -7, 1, CURRENT_VERSION, "PYTHON", "none", {"a": "b"}, b"c")
    assert answer.is_response and not asked.is_response


def test_an_answer_has_the_requests_form_if_its_code_fits() -> None:
    asked = Command(105, 1, binary=True)
    assert asked.answer().binary
    assert asked.answer(-1006).binary
    assert not asked.answer(200_050).binary


def test_flags() -> None:
    assert Command(1, flag=2).is_one_way and not Command(1, flag=2).is_response
    assert Command(1, flag=1).is_response and not Command(1, flag=1).is_one_way


def test_a_header_with_far_too_many_fields_is_not_decoded_twice(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first number or null in a header makes it unusual, and it may be the last of 70,000 fields."""

    def encode(count: int, value: str) -> bytes:
        fields = {f"f{number}": "" for number in range(count - 2)}
        return json_frame(json.dumps({"code": 1, "extFields": {**fields, "i": value, "last": 1}}).encode())

    value = ":" * 32_767
    found = codec.decode(encode(command.FIELDS_MAX, value)).ext or {}
    assert len(found) == command.FIELDS_MAX
    assert (found["i"], found["last"]) == (value, "1")
    with pytest.raises(FrameError, match="more than 10000 fields"):
        codec.decode(encode(command.COLONS_MAX, ""))
    monkeypatch.setattr(command, "_decode_lenient", None)
    with pytest.raises(FrameError, match="more than 10000 fields"):
        codec.decode(encode(command.COLONS_MAX, ""))
