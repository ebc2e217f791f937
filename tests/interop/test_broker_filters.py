"""Real clients filter by SQL92 expressions, alike with our broker and with Apache's."""

import json

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode

from .clients import Kind
from .scenarios import ClientError, Scene, bodies, properties
from .wire import Connection

pytestmark = pytest.mark.interop


@pytest.fixture
def topic(scene: Scene) -> str:
    """A topic whose queue 1 has messages `0-0` to `9-0` with n = 0 to 9; even ones are red, 9 has no color."""
    topic = scene.new_topic("sql", queues=())
    for number in range(10):
        colors = {"color": "blue" if number % 2 else "red"} if number < 9 else {}
        (sent,) = scene.send(topic, str(number), how="queue", queue=1, **properties(n=str(number), **colors))
    scene.wait_for_end(topic, 1, int(sent["offset"]) + 1)
    return topic


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("n BETWEEN 3 AND 6 AND color = 'red'", ["4", "6"]),
        ("n > 6 AND color <> 'red'", ["7"]),  # null is neither
        ("n IS NOT NULL AND color IS NULL", ["9"]),
        ("n > 6 AND 'red' <> color", ["7", "9"]),  # null on the right is not equal
        ("n IN ('1', '2') OR not (n < 9)", ["1", "2", "9"]),
    ],
)
def test_a_push_consumer_gets_what_matches(scene: Scene, topic: str, expression: str, expected: list[str]) -> None:
    name = scene.consume(topic, scene.name("group"), sql=expression)
    assert sorted(bodies(scene.received(name, len(expected)))) == [f"{number}-0" for number in expected]
    scene.close(name)


def test_a_pull_that_waits_is_woken_by_what_matches(scene: Scene, topic: str) -> None:
    name = scene.consume(topic, scene.name("group"), sql="n > 8")
    assert bodies(scene.received(name, 1)) == ["9-0"]
    for number in (1, 2, 10):
        scene.send(topic, str(number), how="queue", queue=1, **properties(n=str(number)))
    assert bodies(scene.received(name, 1)) == ["10-0"]
    scene.close(name)


@pytest.mark.parametrize(
    ("expression", "kind"), [("n > > 1", "SQL92"), ("n = 1;", "SQL92"), ("n = 0.0", "SQL92"), ("n > 1", "SQL99")]
)
def test_a_consumer_whose_expression_does_not_compile_does_not_start(
    scene: Scene, topic: str, expression: str, kind: str
) -> None:
    if scene.kind is Kind.GO:
        pytest.skip("the Go client does not ask the broker to check an expression")
    with pytest.raises(ClientError, match="CODE: 23"):
        scene.consume(topic, scene.name("group"), sql=expression, type=kind)


def test_retries_are_not_filtered(scene: Scene, topic: str) -> None:
    group = scene.new_group()
    name = scene.consume(topic, group, sql="n = 4", fail=1)
    assert bodies(scene.received(name, 2)) == ["4-0", "4-0"]
    scene.close(name)


def test_answers_to_requests_by_hand(scene: Scene, topic: str) -> None:
    """The one difference is wanted: see docs/differences.md."""
    ext = {
        "consumerGroup": scene.name("group"),
        "topic": topic,
        "queueId": 1,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subVersion": 0,
        "expressionType": "SQL92",
    }
    is_ours = "kourou" in type(scene.broker).__name__.lower()
    with Connection(scene.broker.address) as connection:
        found = connection.ask(RequestCode.PULL_MESSAGE, ext | {"subscription": "n > 7"})
        assert found.code == 0 and b"8-0" in found.body and b"9-0" in found.body and b"7-0" not in found.body
        nothing = connection.ask(RequestCode.PULL_MESSAGE, ext | {"subscription": "n > 70"})
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(nothing.ext["nextBeginOffset"]) == scene.end_of(topic, 1)
        assert connection.ask(RequestCode.PULL_MESSAGE, ext | {"subscription": ""}).code == 23
        broken = connection.ask(RequestCode.PULL_MESSAGE, ext | {"subscription": "n > >"})
        assert broken.code == (ResponseCode.SUBSCRIPTION_PARSE_FAILED if is_ours else 0)


def test_a_heartbeat_with_an_expression_that_does_not_compile(scene: Scene, topic: str) -> None:
    group = scene.name("group")

    def beat(expression: str, version: int) -> bytes:
        wanted = {
            "topic": topic,
            "subString": expression,
            "expressionType": "SQL92",
            "subVersion": version,
            "classFilterMode": False,
            "tagsSet": [],
            "codeSet": [],
        }
        consumer = {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "BROADCASTING",  # no member is told of changes, and only answers come
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [wanted],
            "unitMode": False,
        }
        return json.dumps({"clientID": "me", "consumerDataSet": [consumer], "producerDataSet": []}).encode()

    pull = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 1,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 0,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
    }
    with Connection(scene.broker.address) as connection:
        codes = []
        for expression, version in (("n > >", 1), ("n > 7", 2), ("n > 8", 2), ("n > > 8", 3)):
            assert connection.ask(RequestCode.HEART_BEAT, body=beat(expression, version)).code == 0
            codes.append(connection.ask(RequestCode.PULL_MESSAGE, pull | {"subVersion": version}).code)
        assert codes == [ResponseCode.FILTER_DATA_NOT_EXIST, 0, 0, ResponseCode.FILTER_DATA_NOT_EXIST]
