"""Producers and consumers as simple state machines: each does a little at its turn, and loses its connection at times.

They speak to the broker as clients do: heartbeats, rebalancing by the list of members, queue locks for orderly
consumption, held pulls, send-back, commits. What a client keeps in memory it forgets with its connection, so that all
that counts afterwards is what the broker knows.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou.protocol import bodies, headers, properties as _properties
from kourou.protocol.batch import encode_batch
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import Message, MessageQueue
from kourou.protocol.record import StoredMessage, decode_records

if TYPE_CHECKING:
    from kourou.testing.broker import SimulatedClient

    from .broker_run import BrokerRun

BROKER = "broker-a"
PATIENCE_MS = 60_000
"""No request stays without an answer for longer."""

HEARTBEAT_MS = 10_000
REBALANCE_MS = 5_000
LOCK_MS = 20_000
HOLD_MS = 5_000


class Actor(ABC):
    """A client and its connection."""

    def __init__(self, run: "BrokerRun", name: str) -> None:
        self.run = run
        self.name = name
        self.client: SimulatedClient | None = None
        self._waiting: dict[int, tuple[int, Callable[[Command], None]]] = {}

    def turn(self) -> None:
        if self.client is None:
            self.client = self.run.world.connect()
            self.connected()
        self._take_answers()
        self.act()

    def connected(self) -> None:
        """A connection is open; nothing is known of earlier ones."""
        self._waiting.clear()

    @abstractmethod
    def act(self) -> None:
        """Its actions in a turn."""

    def lost(self) -> None:
        """The connection is gone, by accident or with the broker."""
        self.client = None
        self._waiting.clear()

    def call(self, command: Command, then: Callable[[Command], None]) -> None:
        self.call_all([(command, then)])

    def call_all(self, requests: list[tuple[Command, Callable[[Command], None]]]) -> None:
        """Send requests in one read."""
        assert self.client is not None
        numbers = self.client.send(*(command for command, _ in requests))
        for number, (_, then) in zip(numbers, requests, strict=True):
            self._waiting[number] = self.run.world.now_ms, then

    def _take_answers(self) -> None:
        assert self.client is not None
        for number, (asked_ms, then) in list(self._waiting.items()):
            answer = self.client.answers.pop(number, None)
            if answer is not None:
                del self._waiting[number]
                then(answer)
            else:
                waited_ms = self.run.world.now_ms - asked_ms
                assert waited_ms < PATIENCE_MS, f"{self.name}: request {number} has no answer after {waited_ms} ms"


def request(code: int, header: headers.Header | None = None, body: bytes = b"") -> Command:
    """A request."""
    return Command(code, version=513, ext=None if header is None else header.encode(), body=body)


# ── Producers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Sent:
    """A message that a producer has sent, and its state at the producer."""

    body: bytes
    topic: str
    queue_id: int
    level: int
    acked: bool = False
    physical: int = -1
    queue_offset: int = -1


class Producer(Actor):
    """Sends numbered messages to random queues: some delayed, some together in a batch, some several in one read."""

    def __init__(self, run: "BrokerRun", name: str) -> None:
        super().__init__(run, name)
        self.count = 0

    def act(self) -> None:
        chance = self.run.chance
        if len(self._waiting) >= 4 or not self.run.producing:
            return
        requests = [
            self._send_batch() if chance.random() < 0.1 else self._send() for _ in range(chance.choice((1, 1, 3)))
        ]
        self.call_all(requests)

    def _send(self) -> tuple[Command, Callable[[Command], None]]:
        chance = self.run.chance
        topic = chance.choice(list(self.run.queues))
        level = chance.choice((0, 0, 0, 1, 2, 99)) if topic not in self.run.ordered else 0
        sent = self._new(topic, chance.randrange(self.run.queues[topic]), level)
        properties = {"KEYS": f"{self.name}-{self.count}"} | ({"DELAY": str(level)} if level else {})
        if chance.random() < 0.9:  # without, the broker makes one
            properties["UNIQ_KEY"] = f"{self.name}-{self.count}-unique"
        command = request(RequestCode.SEND_MESSAGE_V2, self._header(sent, properties), sent.body)
        return command, lambda answer: self._answered([sent], answer)

    def _send_batch(self) -> tuple[Command, Callable[[Command], None]]:
        chance = self.run.chance
        topic = chance.choice(list(self.run.queues))
        queue_id = chance.randrange(self.run.queues[topic])
        all_sent = [self._new(topic, queue_id, 0) for _ in range(chance.randrange(1, 4))]
        entries = [
            Message(topic=topic, body=sent.body, properties={"UNIQ_KEY": f"{self.name}-{sent.body[:12]!r}"})
            for sent in all_sent
        ]
        header = self._header(all_sent[0], {"UNIQ_KEY": f"{self.name}-{self.count}-batch"}, batch=True)
        command = request(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(entries))
        return command, lambda answer: self._answered(all_sent, answer)

    def _new(self, topic: str, queue_id: int, level: int) -> Sent:
        self.count += 1
        body = f"{self.name}-{self.count}-".encode() + bytes(self.run.chance.randrange(300))
        self.run.sent[body] = sent = Sent(body, topic, queue_id, level)
        return sent

    def _header(self, sent: Sent, properties: dict[str, str], *, batch: bool = False) -> headers.SendMessageV2:
        return headers.SendMessageV2(
            producer_group="producers",
            topic=sent.topic,
            default_topic="TBW102",
            default_topic_queue_nums=self.run.queues[sent.topic],
            queue_id=sent.queue_id,
            sys_flag=0,
            born_timestamp=self.run.world.now_ms,
            flag=0,
            properties=_properties.encode(properties),
            batch=batch,
        )

    def _answered(self, all_sent: list[Sent], answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            self.run.say(f"{self.name}: {all_sent[0].body[:20]!r} refused: {answer.code} {answer.remark}")
            return
        assert answer.ext is not None
        ids = answer.ext["msgId"].split(",")
        for number, (sent, message_id) in enumerate(zip(all_sent, ids, strict=True)):
            sent.acked = True
            sent.physical = int(message_id[-16:], 16)
            sent.queue_offset = int(answer.ext["queueOffset"]) + number


# ── Consumers ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Share:
    """A queue that a consumer has got."""

    topic: str
    queue_id: int
    offset: int = -1  # where to pull next; -1: not known yet
    asked: bool = False  # a request of this queue is under way
    batch: deque[StoredMessage] = field(default_factory=deque)
    locked_ms: int = -1


class Consumer(Actor):
    """A member of a group that shares the queues with the others."""

    def __init__(self, run: "BrokerRun", name: str, group: str, *, orderly: bool = False) -> None:
        super().__init__(run, name)
        self.group = group
        self.orderly = orderly
        self.topics = sorted(run.ordered) if orderly else [name for name in run.queues if name not in run.ordered]
        self.shares: dict[tuple[str, int], Share] = {}
        self._beat_ms = self._balance_ms = self._lock_ms = 0

    def connected(self) -> None:
        self._beat_ms = self._balance_ms = self._lock_ms = 0

    def lost(self) -> None:
        super().lost()
        self.shares.clear()

    def act(self) -> None:
        assert self.client is not None
        now_ms = self.run.world.now_ms
        if now_ms - self._beat_ms >= HEARTBEAT_MS:
            self._beat_ms = now_ms
            self.call(self._heartbeat(), lambda _: None)
        if self.client.told or now_ms - self._balance_ms >= REBALANCE_MS:
            self.client.told.clear()
            self._balance_ms = now_ms
            self.call(
                request(
                    RequestCode.GET_CONSUMER_LIST_BY_GROUP, headers.GetConsumerListByGroup(consumer_group=self.group)
                ),
                self._balance,
            )
        if self.orderly and now_ms - self._lock_ms >= LOCK_MS:
            self._lock_ms = now_ms
            self._lock(list(self.shares.values()))
        for share in list(self.shares.values()):
            if not share.asked and (not self.orderly or share.locked_ms >= 0):
                self._go_on(share)

    # ── Sharing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self) -> Command:
        wanted = [bodies.SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in self.topics]
        wanted.append(bodies.SubscriptionData(topic=f"%RETRY%{self.group}", sub_string="*", sub_version=1))
        data = bodies.ConsumerData(
            group_name=self.group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=wanted,
        )
        beat = bodies.HeartbeatData(client_id=self.name, consumer_data_set=[data])
        return request(RequestCode.HEART_BEAT, body=beat.encode())

    def _balance(self, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        members = sorted(bodies.GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list or [])
        if self.name not in members:
            return
        queues = [(topic, queue_id) for topic in self.topics for queue_id in range(self.run.queues[topic])]
        if not self.orderly:
            queues.append((f"%RETRY%{self.group}", 0))
        mine = set(queues[members.index(self.name) :: len(members)])
        for key in self.shares.keys() - mine:
            share = self.shares.pop(key)
            if self.orderly:
                self._unlock(share)
        for topic, queue_id in sorted(mine - self.shares.keys()):
            self.shares[topic, queue_id] = Share(topic, queue_id)
        if self.orderly:
            self._lock([share for share in self.shares.values() if share.locked_ms < 0])

    def _lock(self, shares: list[Share]) -> None:
        if not shares:
            return
        queues = [MessageQueue(share.topic, BROKER, share.queue_id) for share in shares]
        body = bodies.LockBatchRequestBody(consumer_group=self.group, client_id=self.name, mq_set=queues)
        self.call(request(RequestCode.LOCK_BATCH_MQ, body=body.encode()), lambda answer: self._locked(shares, answer))

    def _locked(self, shares: list[Share], answer: Command) -> None:
        got = {(queue.topic, queue.queue_id) for queue in bodies.LockBatchResponseBody.decode(answer.body).locked}
        for share in shares:
            if self.shares.get((share.topic, share.queue_id)) is not share:
                continue
            had = share.locked_ms >= 0
            share.locked_ms = self.run.world.now_ms if (share.topic, share.queue_id) in got else -1
            if share.locked_ms >= 0 and not had:
                self.run.took_over(self, share)
                share.offset, share.asked = -1, False
                share.batch.clear()

    def _unlock(self, share: Share) -> None:
        queue = MessageQueue(share.topic, BROKER, share.queue_id)
        body = bodies.UnlockBatchRequestBody(consumer_group=self.group, client_id=self.name, mq_set=[queue])
        self.call(request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()), lambda _: None)

    # ── Consuming ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _go_on(self, share: Share) -> None:
        if share.batch:
            self._consume(share)
        elif share.offset < 0:
            header = headers.QueryConsumerOffset(
                consumer_group=self.group, topic=share.topic, queue_id=share.queue_id, set_zero_if_not_found=False
            )
            self._about(share, request(RequestCode.QUERY_CONSUMER_OFFSET, header), self._begin)
        else:
            self._about(share, self._pull(share), self._pulled)

    def _about(self, share: Share, command: Command, then: Callable[[Share, Command], None]) -> None:
        """Ask something about a queue; one request at a time, and not if it belongs to another consumer meanwhile."""
        share.asked = True

        def answered(answer: Command) -> None:
            share.asked = False
            if self.shares.get((share.topic, share.queue_id)) is share:
                then(share, answer)

        self.call(command, answered)

    def _begin(self, share: Share, answer: Command) -> None:
        share.offset = int((answer.ext or {})["offset"]) if answer.code == ResponseCode.SUCCESS else 0

    def _pull(self, share: Share) -> Command:
        header = headers.PullMessage(
            consumer_group=self.group,
            topic=share.topic,
            queue_id=share.queue_id,
            queue_offset=share.offset,
            max_msg_nums=self.run.chance.randrange(1, 8),
            sys_flag=int(PullSysFlag.SUSPEND),
            commit_offset=0,
            suspend_timeout_millis=HOLD_MS,
            sub_version=1,
        )
        return request(RequestCode.PULL_MESSAGE, header)

    def _pulled(self, share: Share, answer: Command) -> None:
        code = answer.code
        if code == ResponseCode.SUCCESS:
            share.batch.extend(decode_records(answer.body, crc=True))
            for message in share.batch:
                self.run.was_seen(message)
            return  # the offset moves as they are consumed
        if code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
            self.run.say(f"{self.name}: {share.topic} {share.queue_id} at {share.offset}: {answer.remark} {answer.ext}")
            share.offset = int((answer.ext or {})["nextBeginOffset"])
        elif code not in (
            ResponseCode.PULL_NOT_FOUND,
            ResponseCode.TOPIC_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ) and not (self.run.faults and "can't be read" in (answer.remark or "")):
            raise AssertionError(f"{self.name}: a pull was answered with {code} {answer.remark}")

    def _consume(self, share: Share) -> None:
        message = share.batch[0]
        assert message.queue_offset >= share.offset, "a pull gave messages from before what was asked for"
        fails = self.run.chance.random() < self.run.failing
        if fails and self.orderly:
            return  # again, and nothing behind it before
        if fails:
            header = headers.ConsumerSendMsgBack(
                offset=message.physical_offset, group=self.group, delay_level=0, origin_topic=share.topic
            )
            self._about(share, request(RequestCode.CONSUMER_SEND_MSG_BACK, header), self._sent_back)
            return
        self.run.was_consumed(self, message)
        self._advance(share)

    def _sent_back(self, share: Share, answer: Command) -> None:
        if answer.code == ResponseCode.SUCCESS:
            if share.batch:
                self.run.was_sent_back(self, share.batch[0])
                self._advance(share)
        else:
            self.run.say(f"{self.name}: send-back refused: {answer.code} {answer.remark}")

    def _advance(self, share: Share) -> None:
        share.offset = share.batch.popleft().queue_offset + 1
        if not share.batch or self.run.chance.random() < 0.5:
            self._commit(share)

    def _commit(self, share: Share) -> None:
        assert self.client is not None
        header = headers.UpdateConsumerOffset(
            consumer_group=self.group, topic=share.topic, queue_id=share.queue_id, commit_offset=share.offset
        )
        if self.client.ask(request(RequestCode.UPDATE_CONSUMER_OFFSET, header)).code == ResponseCode.SUCCESS:
            self.run.was_committed(f"{share.topic}@{self.group}", share.queue_id, share.offset)
