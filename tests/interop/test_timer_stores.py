"""A store with pending timers goes from Apache's broker to ours and back: each message is delivered once, on time."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_equal

from kourou.protocol.codes import RequestCode
from kourou.protocol.record import StoredMessage, decode_records

from .servers import ApacheStage, KourouRun
from .wire import Answer, Connection
from .worlds import needed

pytestmark = pytest.mark.interop

TOPIC = "reminders"
PATIENCE_S = 120
SETTINGS = ("recallMessageEnable=true", "timerFlushIntervalMs=500", "flushIntervalCommitLog=100")


def send(address: str, body: str, **properties: object) -> Answer:
    text = "".join(f"{name}\x01{value}\x02" for name, value in {"UNIQ_KEY": body.rjust(32, "0"), **properties}.items())
    header = {"a": "senders", "b": TOPIC, "c": "TBW102", "d": 4, "e": 1, "f": 0, "h": 7, "i": text, "j": 0}
    with Connection(address) as connection:
        header["g"] = int(time.time() * 1000)
        return connection.ask(RequestCode.SEND_MESSAGE_V2, header, body.encode())


def recall(address: str, handle: str, topic: str = TOPIC) -> Answer:
    with Connection(address) as connection:
        ext = {"producerGroup": "senders", "topic": topic, "recallHandle": handle}
        return connection.ask(RequestCode.RECALL_MESSAGE, ext)


def delivered(address: str) -> list[StoredMessage]:
    ext: dict[str, Any] = {
        "consumerGroup": "readers",
        "topic": TOPIC,
        "queueId": 1,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    with Connection(address) as connection:
        return decode_records(connection.ask(RequestCode.PULL_MESSAGE, ext).body)


def bodies(address: str) -> list[str]:
    return [bytes(message.body).decode() for message in delivered(address)]


def queue_offset(store: Path) -> int:
    """Up to where the timer files have the messages of the timer topic."""
    return int.from_bytes((store / "config" / "timercheck").read_bytes()[16:24])


def read_ms(store: Path) -> int:
    """Up to which second messages are delivered."""
    return int.from_bytes((store / "config" / "timercheck").read_bytes()[:8])


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
def test_pending_timers_change_brokers(how: str, tmp_path: Path) -> None:
    with needed():
        apache = ApacheStage(tmp_path / "apache", *SETTINGS)
    ours: KourouRun | None = None
    try:
        # Apache's broker: messages that are due here, there, and back here; and one that is recalled.
        begin_ms = now_ms()
        for body, delay_ms in (("here", 1_000), ("there", 30_000), ("back", 100_000), ("later", 105_000)):
            assert send(apache.address, body, TIMER_DELIVER_MS=begin_ms + delay_ms).code == 0
        never = send(apache.address, "never", TIMER_DELIVER_MS=begin_ms + 30_000)
        assert recall(apache.address, never.ext["recallHandle"]).code == 0
        late = send(apache.address, "cancelled", TIMER_DELIVER_MS=begin_ms + 100_000)
        wait_equal(lambda: bodies(apache.address), ["here"], PATIENCE_S)
        wait_equal(lambda: queue_offset(apache.broker.home / "store"), 7, PATIENCE_S)
        # Delivered again after a kill: messages after the checkpoint.
        wait_equal(lambda: read_ms(apache.broker.home / "store") > begin_ms + 1_000, True, PATIENCE_S)
        getattr(apache, how)()

        # Ours goes on, to the millisecond.
        (tmp_path / "kourou").mkdir()
        (tmp_path / "kourou" / "store").symlink_to(apache.broker.home / "store")
        ours = KourouRun(tmp_path / "kourou", *SETTINGS)
        assert recall(ours.address, late.ext["recallHandle"]).code == 0
        assert send(ours.address, "from ours", TIMER_DELIVER_MS=begin_ms + 100_500).code == 0
        soon_ms = now_ms() + 1_234
        assert send(ours.address, "soon", TIMER_DELIVER_MS=soon_ms).code == 0
        wait_equal(lambda: sorted(bodies(ours.address)), ["here", "soon", "there"], PATIENCE_S)
        stored_ms = {bytes(message.body): message.stored_ms for message in delivered(ours.address)}
        assert stored_ms[b"there"] >= begin_ms + 30_000
        assert stored_ms[b"soon"] >= soon_ms
        # Apache's broker delivers messages after the checkpoint again.
        wait_equal(lambda: read_ms(tmp_path / "kourou" / "store") > begin_ms + 30_000, True, PATIENCE_S)
        assert queue_offset(tmp_path / "kourou" / "store") == 10
        getattr(ours, how)()

        # And back.
        apache.restart()
        wait_equal(
            lambda: sorted(bodies(apache.address)), ["back", "from ours", "here", "later", "soon", "there"], PATIENCE_S
        )
        assert send(apache.address, "last", TIMER_DELAY_MS=1_000).code == 0
        wait_equal(lambda: bodies(apache.address)[-1], "last", PATIENCE_S)
        assert len(bodies(apache.address)) == 7
    finally:
        apache.kill_all()
        if ours is not None:
            ours.kill()


def test_both_answer_alike(tmp_path: Path) -> None:
    with needed():
        apache = ApacheStage(tmp_path / "apache", *SETTINGS)
    (tmp_path / "kourou").mkdir()
    ours = KourouRun(tmp_path / "kourou", *SETTINGS)
    try:
        theirs, mine = [_answers(broker.address) for broker in (apache, ours)]
        assert mine == theirs
    finally:
        apache.kill_all()
        ours.kill()


def _answers(address: str) -> dict[str, object]:
    """The answers and records of a broker, without times and ids."""
    far_ms = now_ms() + 3_600_000
    slot_ms = (far_ms - 1) // 1000 * 1000
    found: dict[str, object] = {}
    assert send(address, "plain").code == 0
    timed = send(address, "timed", TIMER_DELIVER_MS=far_ms)
    found["fields"] = sorted(timed.ext)
    words = base64.urlsafe_b64decode(timed.ext["recallHandle"]).decode().split(" ")
    assert words == ["v1", TOPIC, "broker-a", str(slot_ms + 1), "timed".rjust(32, "0")]
    whole = send(address, "whole", TIMER_DELIVER_MS=slot_ms)
    assert base64.urlsafe_b64decode(whole.ext["recallHandle"]).decode().split(" ")[3] == str(slot_ms - 999)
    sends: list[dict[str, object]] = [
        {"TIMER_DELIVER_MS": "x"},
        {"TIMER_DELAY_SEC": 259_201},
        {"TIMER_DELAY_MS": 259_300_000},
        {"TIMER_DELIVER_MS": 1},
        {"TIMER_DELIVER_MS": 1, "TIMER_DEL_UNIQKEY": "k"},
        {"DELAY": 18, "TIMER_DELAY_SEC": 5},
        {"TIMER_OUT_MS": 5, "TIMER_DELAY_SEC": 500},
        {"TIMER_DELAY_SEC": 500},
    ]
    answers = [send(address, "x", **properties) for properties in sends]
    found["codes"] = [(answer.code, "recallHandle" in answer.ext) for answer in answers]
    handles = [
        "",
        "bm90aGluZw==",
        _handle("other", "broker-a", far_ms),
        _handle(TOPIC, "broker-b", far_ms),
        _handle(TOPIC, "broker-a", 1),
        _handle(TOPIC, "broker-a", far_ms + 300_000_000),
        timed.ext["recallHandle"],
    ]
    recalls = [recall(address, handle) for handle in handles] + [recall(address, handles[-1], "nowhere")]
    found["recalls"] = [(answer.code, answer.ext.get("msgId")) for answer in recalls]
    send(address, "soon", TIMER_DELAY_MS=1_500, KEYS="k")
    wait_equal(lambda: bodies(address)[-1], "soon", PATIENCE_S)
    soon = delivered(address)[-1].properties
    found["properties"] = sorted(name for name in soon if name not in ("MIN_OFFSET", "MAX_OFFSET"))
    with Connection(address) as connection:
        found["checkpoint"] = len(connection.ask(RequestCode.GET_TIMER_CHECK_POINT).body)
        found["metrics"] = sorted(connection.ask(RequestCode.GET_TIMER_METRICS).json()["timingCount"])
        info = connection.ask(RequestCode.GET_BROKER_RUNTIME_INFO).json()["table"]
        found["info"] = sorted(name for name in info if name.startswith("timer"))
    return found


def _handle(topic: str, broker: str, time_ms: int) -> str:
    return base64.urlsafe_b64encode(f"v1 {topic} {broker} {time_ms} key".encode()).decode()
