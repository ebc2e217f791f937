"""Producers of timed messages, and what became of them.

    message ─▶ waits ─▶ recalled, or delivered at its time
                └ rolls: it is stored again, and waits on

Nobody gets a message before its time, nor twice, nor one whose recall was acknowledged; all others are delivered.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kourou.protocol import headers, properties as _properties
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.record import StoredMessage

from .broker_actors import Actor, Sent, request

if TYPE_CHECKING:
    from .broker_run import BrokerRun

TIMER = b"rmq_sys_wheel_timer"


@dataclass(slots=True)
class Timed:
    """A message that waits."""

    sent: Sent
    given: dict[str, str]
    handle: str | None = None
    recall_asked: bool = False
    recall_physical_end: int = -1  # the log ended here when the recall was acknowledged
    recalled: bool = False  # acknowledged

    def due_ms(self, stored_ms: int) -> int:
        """When it is due, if it was stored at this time."""
        if "TIMER_DELIVER_MS" in self.given:
            return int(self.given["TIMER_DELIVER_MS"])
        return stored_ms + int(self.given["TIMER_DELAY_MS"])


class TimedMessages:
    """All of them."""

    def __init__(self) -> None:
        self.by_body: dict[bytes, Timed] = {}

    def check_visible(self, message: StoredMessage, original: StoredMessage, stamp_ms: int) -> None:
        """A consumer got a copy of a message that waited."""
        timed = self.by_body[bytes(message.body)]
        if "TIMER_ROLL_TIMES" not in original.properties:
            due_ms = timed.due_ms(original.stored_ms)
            assert message.stored_ms >= due_ms, f"{due_ms - message.stored_ms} ms too early: {message}"
        assert not timed.recalled, f"recalled, and delivered: {message}"

    def promise_no_more(self, durable: int) -> None:
        """A power cut under async flush may take recalls that were acknowledged."""
        for timed in self.by_body.values():
            if timed.recall_physical_end > durable:
                timed.recalled = False

    def is_excused(self, body: bytes) -> bool:
        """Need a message not be consumed, because of an attempt to recall it?"""
        timed = self.by_body.get(body)
        return timed is not None and timed.recall_asked

    def check(self, records: list[StoredMessage], stamp_ms: int) -> None:
        """All is quiet."""
        originals = {int(message.physical_offset): message for message in records if message.raw_topic == TIMER}
        copies: Counter[int] = Counter(~message.prepared_offset for message in records if message.prepared_offset < 0)
        first_ms: dict[bytes, int] = {}
        delivered: Counter[bytes] = Counter()
        for message in records:
            body = bytes(message.body)
            if message.raw_topic == TIMER:
                if body in self.by_body:  # and not a recall
                    first_ms.setdefault(body, message.stored_ms)
            elif message.prepared_offset < 0 and ~message.prepared_offset in originals:
                delivered[body] += 1
                due_ms = self.by_body[body].due_ms(first_ms[body])
                assert message.stored_ms >= due_ms, f"{due_ms - message.stored_ms} ms too early: {message}"
        for at, original in originals.items():
            assert copies[at] <= 1, f"delivered twice: {original}"
        for body, stored_ms in first_ms.items():
            timed = self.by_body[body]
            assert delivered[body] <= 1, f"delivered twice: {body[:12]!r}"
            if timed.due_ms(stored_ms) < stamp_ms - 5 and not timed.recall_asked:
                assert delivered[body] == 1, f"never delivered: {body[:12]!r}"
            assert not (timed.recalled and delivered[body]), f"recalled, and delivered: {body[:12]!r}"


class Alarm(Actor):
    """Sends timed messages, and recalls some."""

    def __init__(self, run: "BrokerRun", name: str) -> None:
        super().__init__(run, name)
        self.count = 0
        self._mine: list[Timed] = []

    def act(self) -> None:
        chance = self.run.chance
        if len(self._waiting) >= 4 or not self.run.producing:
            return
        if self._mine and chance.random() < 0.3:
            timed = self._mine.pop(chance.randrange(len(self._mine)))
            if timed.handle is not None:
                self._recall(timed)
                return
        self.call_all([self._send() for _ in range(chance.choice((1, 1, 4)))])

    def _send(self) -> tuple[Command, Callable[[Command], None]]:
        run, chance = self.run, self.run.chance
        self.count += 1
        delay_ms = chance.choice((1, chance.randrange(1, 2_000), 1_000, chance.randrange(1, 20_000)))
        given = (
            {"TIMER_DELAY_MS": str(delay_ms)}
            if chance.random() < 0.5
            else {"TIMER_DELIVER_MS": str(run.world.stamp_ms + delay_ms)}
        )
        body = f"{self.name}-{self.count}-".encode() + bytes(chance.randrange(300))
        sent = Sent(body, "plain", chance.randrange(run.queues["plain"]), 0)
        timed = Timed(sent, given)
        run.sent[body] = sent
        run.timed.by_body[body] = timed
        header = headers.SendMessageV2(
            producer_group="producers",
            topic="plain",
            default_topic="TBW102",
            default_topic_queue_nums=run.queues["plain"],
            queue_id=sent.queue_id,
            sys_flag=0,
            born_timestamp=run.world.now_ms,
            flag=0,
            properties=_properties.encode({**given, "UNIQ_KEY": f"{self.name}-{self.count}-unique"}),
        )
        command = request(RequestCode.SEND_MESSAGE_V2, header, body)
        return command, lambda answer: self._stored(timed, answer)

    def _stored(self, timed: Timed, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self.run.say(f"{self.name}: {timed.sent.body[:12]!r} refused: {answer.code} {answer.remark}")
            return
        assert answer.ext is not None
        timed.sent.acked = True
        timed.sent.physical = int(answer.ext["msgId"][-16:], 16)
        timed.sent.queue_offset = int(answer.ext["queueOffset"])
        timed.handle = answer.ext.get("recallHandle")
        self._mine.append(timed)

    def _recall(self, timed: Timed) -> None:
        assert timed.handle is not None
        timed.recall_asked = True
        header = headers.RecallMessage(topic="plain", recall_handle=timed.handle, producer_group="producers")
        self.call(request(RequestCode.RECALL_MESSAGE, header), lambda answer: self._recalled(timed, answer))

    def _recalled(self, timed: Timed, answer: Command) -> None:
        if answer.code == ResponseCode.SUCCESS:
            self.run.say(f"{self.name}: {timed.sent.body[:12]!r} recalled")
            timed.recalled = True
            timed.recall_physical_end = self.run.world.store.log.end
