"""RocketMQ's JSON dialect: what it reads, what it refuses, what it writes."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kourou.protocol import bodies, fastjson
from kourou.protocol.errors import BodyError
from kourou.protocol.fastjson import ObjectKey, loads
from kourou.protocol.message import MessageQueue

FRAME_BYTES = 16 * 1024 * 1024
"""The largest body that a frame can bring."""

# ----------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":[1,-2.5,true,false,null,"x"]}', {"a": [1, -2.5, True, False, None, "x"]}),
        ("{0:1,-7:2}", {0: 1, -7: 2}),
        (' { 0 : [ ] , "0" : { } } ', {0: [], "0": {}}),
        ('{{"t":"T","q":0}:7,{}:8}', {ObjectKey(t="T", q=0): 7, ObjectKey(): 8}),
        ('{{"q":0,"t":"T"}:7}', {ObjectKey(t="T", q=0): 7}),
        ('{1:"\\u4e2d\\n\\"\\ud83d\\ude00\\/"}', {1: '中\n"😀/'}),
        ("{1:1e3,2:-0,3:0.5E-1}", {1: 1000.0, 2: 0, 3: 0.05}),
        ("{1:1,1:2}", {1: 2}),
        ('{"a":1,"a":2}', {"a": 2}),
        ("[]", []),
        ("7", 7),
    ],
)
def test_values(text: str, value: object) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("{1:", 3),
        ("{1:}", 4),
        ("{1:2,}", 6),
        ("{1 2}", 4),
        ("[1 2]", 4),
        ("{1:2", 4),
        ('{1:"ab', 3),
        ('{1:"a\tb"}', 3),
        ('{1:"\\x"}', 7),
        ('{1:"\\ud800"}', 11),
        ("{1:tru}", 3),
        ("{1:01}", 5),
        ("{1:2} 3", 5),
        ("{true:1}", 5),
        ("{1.5:1}", 4),
        ("{[1]:1}", 2),
        ('{{"a":[1]}:1}', 10),
        ("{9223372036854775808:1}", 20),
        ("{'a':1}", 1),
        ("{1:1e999}", 8),
    ],
)
def test_what_is_not_json_is_refused_with_its_position(text: str, position: int) -> None:
    with pytest.raises(BodyError, match=f"not JSON at character {position}: "):
        loads(text)


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(BodyError, match="invalid UTF-8 at byte 4"):
        loads(b'{1:"\xff"}')


def test_references_are_replaced() -> None:
    text = (
        r'{"a b":{"q":[5,{"x":6}]},"c":[{"$ref":"$.a\\ b.q[1]"},{"$ref":"$.c[0]"}],"d":{"$ref":"$.a\\ b"},"$ref":"no"}'
    )
    assert loads(text) == {
        "a b": {"q": [5, {"x": 6}]},
        "c": [{"x": 6}, {"x": 6}],
        "d": {"q": [5, {"x": 6}]},
        "$ref": "no",
    }


def test_references_go_through_number_and_object_keys() -> None:
    key = '{"brokerName":"b-1","queueId":0,"topic":"T.x"}'
    name = r"MessageQueue\\ \\[topic\\=T\\.x\\,\\ brokerName\\=b\\-1\\,\\ queueId\\=0\\]"
    text = f'{{"m":{{{key}:[1]}},"n":{{7:[2]}},"r":[{{"$ref":"$.m.{name}"}},{{"$ref":"$.n.7"}},{{"$ref":"$.n[7]"}}]}}'
    assert loads(text)["r"] == [[1], [2], [2]]


@pytest.mark.parametrize("path", ["$", "..", "@", "$.a", "$.b", "$.b.c"])
def test_references_that_make_a_loop_are_refused(path: str) -> None:
    with pytest.raises(BodyError, match=r"loop|deep"):
        loads(f'{{"a":{{"$ref":"{path}"}},"b":{{"c":{{"$ref":"$.a"}}}}}}')


@pytest.mark.parametrize(
    "path", ["$.x", "$.a[1]", "$.a.b", "$.a[0].b", "$a", "$.", "$..a", "$.a[", "a", "", "$[99999999999]"]
)
def test_references_to_nothing_are_refused(path: str) -> None:
    with pytest.raises(BodyError, match="reference"):
        loads(f'{{"a":[1],"b":{{"$ref":"{path}"}}}}')


# -------------------------------------------------------------------------------------------------------- typed reading


class Inner(bodies.Body):
    """Something with a number."""

    number: int = bodies.always(3)


class Sample(bodies.Body):
    """One of each kind of field."""

    name: str | None = None
    count: int = bodies.always(0)
    flag: bool = bodies.always(False)
    names: list[str] = bodies.always(list)
    inner: Inner = bodies.always(Inner())
    by_number: dict[int, str] = bodies.always(dict)
    by_queue: dict[MessageQueue, Inner] = bodies.always(dict)


QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{}", Sample()),
        ('{"name":"x","other":{"deep":[1]}}', Sample(name="x")),
        ('{"byNumber":{0:"x",1:"y"}}', Sample(by_number={0: "x", 1: "y"})),
        ('{"byNumber":{"0":"x"}}', Sample(by_number={0: "x"})),
        ('{"name":"{1:2,3:4","byNumber":{ 0 : "a,1:b"}}', Sample(name="{1:2,3:4", by_number={0: "a,1:b"})),
        ('{"byQueue":{{"brokerName":"b","queueId":1,"topic":"T"}:{"number":4}}}',
         Sample(by_queue={QUEUE: Inner(number=4)})),
        ('{"names":null,"inner":null,"count":null,"name":null,"byNumber":null}', Sample()),
        ('{"count":"7","flag":"true","inner":{"number":null}}', Sample(count=7, flag=True)),
        ('{"inner":{"number":5},"byQueue":{{"brokerName":"b","queueId":1,"topic":"T"}:{"$ref":"$.inner"}}}',
         Sample(inner=Inner(number=5), by_queue={QUEUE: Inner(number=5)})),
        ('{"name":"$ref"}', Sample(name="$ref")),
        ('{"byNumber":{0:"x","1":"y"},"byQueue":{{"brokerName":"b","queueId":1,"topic":"T"}:{}}}',
         Sample(by_number={0: "x", 1: "y"}, by_queue={QUEUE: Inner()})),
    ],
)  # fmt: skip
def test_structs(text: str, value: Sample) -> None:
    assert Sample.decode(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"count":"x"}', '{"count":1.5}', '{"names":{}}', '{"byNumber":{"a":"x"}}', '{"byQueue":{"a":{}}}',
     '{"byQueue":{{"topic":"T"}:{}}}', '{"names":[null]}', '{"inner":{"$ref":"$.x"}}', "\ud800"],
)  # fmt: skip
def test_bodies_of_another_struct_are_refused(text: str) -> None:
    with pytest.raises(BodyError):
        Sample.decode(text.encode("utf-8", "surrogatepass"))


def test_the_refusal_says_where() -> None:
    with pytest.raises(BodyError, match=r"not a Sample: Expected `int`, got `str` - at `\$.inner.number`"):
        Sample.decode(b'{"inner":{"number":"x"}}')


# --------------------------------------------------------------------------------------------------------- strangers


def doubling_references() -> bytes:
    pairs = (b'"a%d":[{"$ref":"$.a%d"},{"$ref":"$.a%d"}]' % (n, n - 1, n - 1) for n in range(1, 60))
    return b'{"a0":[1,1],' + b",".join(pairs) + b"}"


def chained_references() -> bytes:
    return b"{" + b",".join(b'"a%d":{"$ref":"$.a%d"}' % (n, n + 1) for n in range(50_000)) + b"}"


HOSTILE: dict[str, Callable[[], bytes]] = {
    "brackets": lambda: b"[" * FRAME_BYTES,
    "fewer brackets": lambda: b"[" * 400_000,
    "nested maps": lambda: b"{1:" * 400_000,
    "nested keys": lambda: b"{{" * 200_000,
    "empty objects": lambda: b"[" + b"{}," * (FRAME_BYTES // 3),
    "string without end": lambda: b'{1:"' + b'\\"' * (FRAME_BYTES // 2),
    "quotes": lambda: b"{1:" + b'"' * FRAME_BYTES,
    "backslashes": lambda: b"{1:" + b"\\" * FRAME_BYTES,
    "backslashes in a string": lambda: b'{1:"' + b"\\" * FRAME_BYTES,
    "blanks": lambda: b"{" + b" " * FRAME_BYTES,
    "digits": lambda: b"{1:" + b"9" * FRAME_BYTES,
    "digits as key": lambda: b"{" + b"9" * FRAME_BYTES,
    "numbers as keys": lambda: b"{" + b"1:1," * (FRAME_BYTES // 4),
    "commas": lambda: b"{" + b", 1 " * (FRAME_BYTES // 4),
    "references": lambda: b'{"a":[' + b"1," * 400_000 + b'1],"b":[' + b'{"$ref":"$.a"},' * 50_000 + b"1]}",
    "doubling references": doubling_references,
    "chained references": chained_references,
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(60)
def test_large_and_hostile_bodies_are_refused(name: str) -> None:
    """Each takes about a second at most; a quadratic reader would take hours."""
    data = HOSTILE[name]()
    with pytest.raises(BodyError):
        loads(data)
    with pytest.raises(BodyError):
        Sample.decode(data)


def test_nesting_up_to_the_limit_is_read() -> None:
    depth = fastjson.DEPTH_LIMIT - 1
    assert loads(b"{1:" + b"[" * depth + b"]" * depth + b"}")
    with pytest.raises(BodyError, match="nested too deeply"):
        loads(b"{1:" + b"[" * (depth + 1) + b"]" * (depth + 1) + b"}")


def test_integers_that_python_hashes_alike_do_not_slow_the_reader() -> None:
    """Python's hash of n and n + 2^61 - 1 is the same; maps of object keys hash text instead."""
    keys = [ObjectKey(a=a * (2**61 - 1), b=b * (2**61 - 1)) for a in range(-3, 4) for b in range(-3, 4)]
    assert len({hash(key) for key in keys}) == len(keys)


# ----------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({0: "a", 1: {"x": [1, 2.0, None, True]}}, '{0:"a",1:{"x":[1,2.0,null,true]}}'),
        ({"中": "😀</>\x01"}, '{"中":"😀</>\\u0001"}'),
        ({QUEUE: 7}, '{{"topic":"T","brokerName":"b","queueId":1}:7}'),
        ({ObjectKey(a=1): 7}, '{{"a":1}:7}'),
        ([[], {}, (), set()], "[[],{},[],[]]"),
        (Sample(), '{"count":0,"flag":false,"names":[],"inner":{"number":3},"byNumber":{},"byQueue":{}}'),
        (bodies.UserInfo(), "{}"),
        (bodies.ConsumerOffsetSerializeWrapper(offset_table={"T@g": {0: 5}}), '{"offsetTable":{"T@g":{0:5}}}'),
    ],
)
def test_written_form(value: Any, text: str) -> None:
    assert fastjson.encode(value).decode() == text


def test_standard_form_quotes_numbers_and_has_no_objects_as_keys() -> None:
    assert fastjson.encode({"a": {0: 1}}, standard=True) == b'{"a":{"0":1}}'
    assert Sample(by_number={2: "x"}).encode(standard=True) == msgspec.json.encode(Sample(by_number={2: "x"}))
    with pytest.raises(TypeError):
        fastjson.encode({QUEUE: 1}, standard=True)


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(BodyError, match="invalid UTF-8"):
        fastjson.decode(b'{"topicList":["\xff\xfe"]}', bodies.TopicList)
