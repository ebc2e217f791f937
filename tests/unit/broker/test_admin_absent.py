"""Requests about what Apache's broker has and ours has not; and the modes of groups."""

import json

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, ok, request, send

from kourou.protocol import headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.testing.broker import SimulatedBroker, SimulatedClient


@pytest.fixture
def client() -> SimulatedClient:
    made = SimulatedBroker().connect()
    ok(made, send(b"x"))
    return made


def ask(
    client: SimulatedClient, code: int, ext: dict[str, str] | None = None, body: bytes = b""
) -> tuple[int, str | None]:
    command = request(code, body=body)
    command.ext = ext
    answer = client.ask(command)
    return answer.code, answer.remark


INVALID = int(ResponseCode.INVALID_PARAMETER)


@pytest.mark.parametrize(
    ("code", "ext", "expected"),
    [
        (2004, {"READ_AHEAD_MODE": "1"}, (0, "set commitlog readahead mode success, mode: 1")),
        (2004, {"READ_AHEAD_MODE": "7"}, (INVALID, "set commitlog readahead mode param value error")),
        (2004, {}, (1, "set commitlog readahead mode failed")),
        (2004, {"READ_AHEAD_MODE": "x"}, (1, "set commitlog readahead mode failed")),
        (908, {"masterFlushOffset": "5"}, (0, None)),
        (5001, {"E_T": "F"}, (0, "switch timer engine success")),
        (5001, {"E_T": "R"}, (INVALID, "timerRocksDBEnable must be configured true when broker start")),
        (5001, {"E_T": "Z"}, (INVALID, "param error")),
        (355, {"configType": "topics;subscriptionGroups"}, (0, "export done.")),
        (355, {"configType": "x"}, (1, "Unknown config type: x")),
        (200056, None, (0, None)),
        (1007, None, (1, "this request only for controllerMode ")),
        (200075, {"topic": TOPIC}, (INVALID, f"Topic [{TOPIC}] type not match.")),
        (200075, {"topic": "nope"}, (17, "Topic [nope] not exist.")),
        (200076, {"parentTopic": TOPIC, "liteTopic": "l"}, (INVALID, f"Topic [{TOPIC}] type not match.")),
        (200077, {"parentTopic": TOPIC, "group": GROUP}, (INVALID, f"Topic [{TOPIC}] type not match.")),
        (200078, {"group": GROUP}, (INVALID, f"Group [{GROUP}] is not a LITE group.")),
        (200079, {"group": GROUP}, (INVALID, f"Group [{GROUP}] is not a LITE group.")),
    ],
)
def test_answers_as_apaches(
    client: SimulatedClient, code: int, ext: dict[str, str] | None, expected: tuple[int, str | None]
) -> None:
    assert ask(client, code, ext) == expected


def test_limits_on_cold_data(client: SimulatedClient) -> None:
    def limits() -> dict[str, object]:
        shown = json.loads(ok(client, request(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)
        assert shown.pop("configTable") is not None
        assert shown == {
            "runtimeTable": {},
            "cgColdReadThreshold": 3145728,
            "globalColdReadThreshold": 104857600,
            "globalAcc": 0,
        }
        table = json.loads(ok(client, request(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)).body)["configTable"]
        assert isinstance(table, dict)
        return table

    assert limits() == {}
    assert ask(client, 2001, body=b"g1=100\ng2=200\ng3=x\n") == (0, None)
    assert limits() == {"g1": 100, "g2": 200}
    assert ask(client, 2002, body=b"g1") == (0, None)
    assert limits() == {"g2": 200}


def test_light_topics(client: SimulatedClient) -> None:
    shown = json.loads(ok(client, request(RequestCode.GET_BROKER_LITE_INFO)).body)
    assert (shown["storeType"], shown["maxLmqNum"], shown["currentLmqNum"]) == ("default", 20_000, 0)
    assert (shown["topicMeta"], shown["groupMeta"]) == ({}, {})
    check = request(RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, headers.CheckRocksdbCqWriteProgress(topic=TOPIC))
    assert json.loads(ok(client, check).body) == {"checkStatus": 2}


# ── Modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def mode(topic: str, group: str = GROUP, word: str = "POP") -> bytes:
    return json.dumps({"topic": topic, "consumerGroup": group, "mode": word, "popShareQueueNum": 3}).encode()


def test_request_modes_are_kept() -> None:
    world = SimulatedBroker()
    client = world.connect()
    ok(client, send(b"x"))
    assert ask(client, 401, body=mode(TOPIC)) == (0, None)
    expected = {TOPIC: {GROUP: {"consumerGroup": GROUP, "mode": "POP", "popShareQueueNum": 3, "topic": TOPIC}}}
    for how in (None, "stop", "crash"):
        world = world if how is None else getattr(world, how)()
        answer = ok(world.connect(), request(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE))
        assert json.loads(answer.body) == {"messageRequestModeMap": expected}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (mode(f"%RETRY%{GROUP}"), ResponseCode.NO_PERMISSION),
        (mode("nope"), ResponseCode.TOPIC_NOT_EXIST),
        (mode(TOPIC, "no group!"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (mode(TOPIC, word="PUSH"), ResponseCode.INVALID_PARAMETER),
    ],
)
def test_modes_that_are_refused(client: SimulatedClient, body: bytes, code: int) -> None:
    assert ask(client, 401, body=body)[0] == code
