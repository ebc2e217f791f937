"""One simulated life of a broker: clients at work, lost connections, stops, kills, power cuts; then peace, and checks.

    faults and work ─▶ no more faults, no more sends ─▶ until everything is consumed ─▶ what must hold, holds

What must hold: nothing that was acknowledged is lost, as far as the flush mode promises it; the messages of a producer
are in the order in which it sent them; each group has consumed everything; an orderly group in order, one consumer at a
time; committed offsets change by commits alone, and come back after an end as they were last kept; delayed and timed
messages are never early, and delivered once, whatever happened; so are those of transactions, if they are committed,
and never if they are not.
"""

import errno
import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import get_args

from kourou.broker.events import Save
from kourou.broker.machine import OFFSETS
from kourou.broker.settings import BrokerSettings
from kourou.protocol.record import Found, Scanner, StoredMessage
from kourou.store.metadata import ConsumerOffsets
from kourou.store.settings import FlushMode, delay_table
from kourou.testing.broker import SMALL_STORE, SimulatedBroker
from kourou.testing.disk import SimulatedDisk
from kourou.testing.disk_parts import Call

from .broker_actors import Actor, Consumer, Producer, Sent, Share
from .broker_timers import TIMER, Alarm, TimedMessages
from .broker_transactions import Payer, Payments

LEVELS = "1s 2s 3s 4s 6s"
SCHEDULE = b"SCHEDULE_TOPIC_XXXX"
SYSTEM_GROUP = "@CID_RMQ_SYS_TRANS"
HOUR_MS = 3_600_000
CALLS: tuple[Call, ...] = get_args(Call)
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES)
DRAIN_MS = 900_000
"""How much simulated time there is to consume everything once there is peace."""


class BrokerRun:
    """A run from a seed."""

    def __init__(
        self, seed: int, steps: int = 1_500, mode: str | None = None, *, faults: bool = False, lane: bool | None = None
    ) -> None:
        """`faults`: now and then, the disk refuses to sync or to make files.

        `lane`: usual requests take the fast lane, where it is compiled; None: the seed decides.
        """
        self.chance = Random(seed)
        self.lane = Random(~seed).random() < 0.5 if lane is None else lane
        self.in_lane = 0  # bytes of requests that the lane has served
        mode = mode or self.chance.choice(("sync", "async"))
        self.is_sync = mode == "sync"
        store = replace(
            SMALL_STORE,
            flush_mode=FlushMode.SYNC if self.is_sync else FlushMode.ASYNC,
            delay_levels=LEVELS,
            mapped_queues_max=self.chance.choice((2, 4096)),
            timer_precision_ms=self.chance.choice((100, 1_000)),
        )
        self.delay_ms = delay_table(LEVELS)
        self.steps = steps
        self.trace: list[str] = [f"seed {seed}, {mode} flush, {'fast lane' if self.lane else 'general path'}"]
        self.queues = {"plain": 3, "ordered": 2}
        self.ordered = {"ordered"}
        self.failing = self.chance.choice((0.0, 0.05, 0.3))
        self.harm = self.chance.choice((0.0, 0.002, 0.01))  # how often something happens to the broker
        self.faults = faults
        self.producing = True
        self.sent: dict[bytes, Sent] = {}
        self.consumed: dict[str, Counter[bytes]] = defaultdict(Counter)
        self.committed: dict[str, dict[int, int]] = {}
        self.kept: dict[str, dict[int, int]] = {}
        self.excused: set[tuple[str, bytes]] = set()  # (group, message) that need not be consumed
        self.ends: Counter[str] = Counter()
        self._holders: dict[tuple[str, int], tuple[Consumer, Share]] = {}
        self._last: dict[tuple[str, int], int] = {}  # by ordered queue: the offset consumed last
        disk = SimulatedDisk(Random(seed), forgiving=False)
        settings = BrokerSettings(
            delay_offsets_interval_ms=self.chance.choice((100, 10_000)),
            transaction_timeout_ms=self.chance.choice((500, 2_000)),
            transaction_check_interval_ms=self.chance.choice((1_000, 5_000)),
            transaction_check_max=self.chance.choice((4, 1_000_000)),
            transaction_op_size=self.chance.choice((20, 4_096)),
            transaction_op_interval_ms=self.chance.choice((100, 3_000)),
            timer_roll_slots=self.chance.choice((5, 172_800)),
            timer_flush_ms=self.chance.choice((10, 1_000)),
            recall=True,
        )
        self.payments = Payments()
        self.timed = TimedMessages()
        self.world = SimulatedBroker(disk, settings, store, lazy=True, chance=Random(seed), lane=self.lane)
        self.actors: list[Actor] = [
            *(Producer(self, f"p{number}") for number in range(2)),
            *(Payer(self, f"t{number}") for number in range(2)),
            *(Alarm(self, f"a{number}") for number in range(2)),
            *(Consumer(self, f"c{number}", "billing") for number in range(2)),
            Consumer(self, "d0", "audit"),
            *(Consumer(self, f"o{number}", "strict", orderly=True) for number in range(2)),
        ]

    def say(self, what: str) -> None:
        self.trace.append(f"{self.world.now_ms - 1_700_000_000_000:>8} {what}")

    # ── What actors report ────────────────────────────────────────────────────────────────────────────────────────

    def was_seen(self, message: StoredMessage) -> None:
        self.payments.check_visible(message)
        if self.is_sync:
            end = message.physical_offset + message.size
            flushed = self.world.store.durability.flushed
            assert end <= flushed, "under sync flush, a consumer got what a crash may take back"
        if message.prepared_offset < 0:
            original = self._record_at(~message.prepared_offset)
            if original.raw_topic == TIMER:
                self.timed.check_visible(message, original, self.world.stamp_ms)
                return
            assert original.raw_topic == SCHEDULE, "a copy without its original"
            due_ms = original.stored_ms + self._delay_of(original)
            assert self.world.stamp_ms >= due_ms, f"{due_ms - self.world.stamp_ms} ms too early: {message}"

    def was_consumed(self, consumer: Consumer, message: StoredMessage) -> None:
        body = bytes(message.body)
        self.consumed[consumer.group][body] += 1
        if consumer.orderly:
            key = message.topic, message.queue_id
            holder, _ = self._holders[key]
            assert holder is consumer, f"{consumer.name} consumes {key}, and {holder.name} has its lock"
            last = self._last.get(key, -1)
            assert message.queue_offset <= last + 1, f"{consumer.name} passes over messages of {key} after {last}"
            self._last[key] = max(message.queue_offset, last)

    def was_sent_back(self, consumer: Consumer, message: StoredMessage) -> None:
        self.say(f"{consumer.name} sends back {bytes(message.body)[:12]!r} ({message.reconsume_times})")

    def was_committed(self, name: str, queue_id: int, offset: int) -> None:
        self.committed.setdefault(name, {})[queue_id] = offset

    def took_over(self, consumer: Consumer, share: Share) -> None:
        """An orderly consumer has a queue's lock now: no other consumer may have it."""
        key = share.topic, share.queue_id
        before = self._holders.get(key)
        if before is not None:
            holder, held = before
            is_stale = held.locked_ms < 0 or holder.shares.get(key) is not held
            assert holder is consumer or is_stale, f"{holder.name} and {consumer.name} both have the lock of {key}"
        self._holders[key] = consumer, share

    # ── Running ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        for _ in range(self.steps):
            self._step()
            self._check_offsets()
        self._drain()
        self._check_log()
        self.in_lane += self.world.in_lane

    def _step(self) -> None:
        chance, world = self.chance, self.world
        dice = chance.random()
        if dice < self.harm:
            self._end()
        elif dice < 2 * self.harm:
            self._lose_a_connection()
        elif dice < 0.2:
            world.pass_time(chance.choice((1, 10, 100, 1_000)))
        elif dice < 0.45:
            self._work()
        elif dice < 0.4895:
            world.disk.write_back(chance.random())
        elif dice < 0.49:
            self._set_clock()
        elif dice < 0.5:
            self._harm_disk()
        else:
            chance.choice(self.actors).turn()

    def _work(self) -> None:
        """A worker does the oldest job, or the writer the oldest table."""
        kinds = [isinstance(work, Save) for work in self.world.undone]
        if not kinds:
            return
        at = kinds.index(self.chance.choice(sorted(set(kinds))))
        work = self.world.undone[at]
        self.world.work(choose=lambda _: at, limit=1)
        if isinstance(work, Save) and work.name == OFFSETS and self._is_on_disk(work):
            self.kept = _table(work.content)

    def _is_on_disk(self, save: Save) -> bool:
        return self.world.disk.peek(save.file.path) == _text(save.content)

    def _harm_disk(self) -> None:
        """The disk fails for a while, or is well again."""
        if not self.faults:
            return
        if self.chance.random() < 0.5:
            self.say("the disk is well")
            self.world.disk.heal()
            return
        call, code = self.chance.choice(CALLS), self.chance.choice(ERRORS)
        times = self.chance.choice((1, 3, math.inf))
        places = ("*commitlog*", "*consumequeue*", "*index*", "*config*", "*checkpoint*", "*timer*", "*")
        where = self.chance.choice(places)
        self.say(f"the disk fails: {call} {times} times at {where} with {errno.errorcode[code]}")
        self.world.disk.fail(call, code, where=where, times=times)

    def _set_clock(self) -> None:
        """The time of day is set, or drifts. Nothing that runs by the steady clock may notice."""
        ms = self.chance.choice((-HOUR_MS, HOUR_MS, -24 * HOUR_MS, 24 * HOUR_MS, -50, 50, -3, 3))
        self.say(f"the clock is set by {ms} ms")
        self.world.set_clock(ms)

    def _lose_a_connection(self) -> None:
        actor = self.chance.choice(self.actors)
        if actor.client is not None:
            self.say(f"{actor.name} loses its connection")
            client = actor.client
            actor.lost()
            client.close()

    def _end(self) -> None:
        """The broker ends in one way or another, and starts again."""
        how = self.chance.choice(("stop", "kill", "crash"))
        self.world.disk.heal()  # nobody starts on a disk that fails
        self.ends[how] += 1
        durable, end = self.world.store.durability.flushed, self.world.store.log.end
        self.say(f"{how}: the log is safe to {durable} of {end}")
        if how == "crash" and not self.is_sync:
            self._promise_no_more(durable)
        if how == "stop":
            self.kept = {name: dict(queues) for name, queues in self.committed.items()}
        self.in_lane += self.world.in_lane
        self.world = getattr(self.world, how)()
        self._check_kept()
        for actor in self.actors:
            actor.lost()
        self._holders.clear()

    def _promise_no_more(self, durable: int) -> None:
        """Under async flush a power failure may lose acknowledged messages, and those that were sent back."""
        for sent in self.sent.values():
            if sent.acked and sent.physical >= durable:
                sent.acked = False
        self.timed.promise_no_more(durable)
        for message in self._records():
            real_topic = message.properties.get("REAL_TOPIC", "")
            if message.physical_offset >= durable and real_topic.startswith("%RETRY%"):
                self.excused.add((real_topic.removeprefix("%RETRY%"), bytes(message.body)))

    def _drain(self) -> None:
        """No more trouble: everything is consumed in the end."""
        self.producing = False
        self.world.disk.heal()
        self.failing = min(self.failing, 0.05)
        self.say("peace")
        until_ms = self.world.now_ms + DRAIN_MS
        while self.world.now_ms < until_ms:
            for actor in self.actors:
                actor.turn()
            while self.world.undone:
                self._work()
            self.world.pass_time(50)
            has_open = self.world.machine.transactions.halves.has_open or self.world.undone
            if self.world.now_ms % 1_000 < 50 and not has_open and not self._missing():
                break
        missing = self._missing()
        assert not missing, f"never consumed: {missing[:5]}"

    # ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_offsets(self) -> None:
        assert self._committed() == self.committed, "committed offsets changed without a commit"

    def _committed(self) -> dict[str, dict[int, int]]:
        """What groups have committed; the broker itself notes how far transactions are."""
        table = self.world.machine.offsets.table
        return {name: dict(queues) for name, queues in table.items() if queues and not name.endswith(SYSTEM_GROUP)}

    def _check_kept(self) -> None:
        """After an end, offsets are those that were last saved or, if a power failure has cut a queue, its end."""
        table = self.world.machine.offsets.table
        for name, queues in self.kept.items():
            topic = name.partition("@")[0]
            for queue_id, offset in queues.items():
                _, end = self.world.store.reader.offsets(topic, queue_id)
                assert self.is_sync is False or end >= offset, f"{name} {queue_id}: committed {offset} of {end}"
                found, expected = table[name][queue_id], min(offset, end)
                if found != expected:  # a delayed message may have been delivered since the offset was limited
                    expected = min(offset, self._end_at_start(topic, queue_id))
                assert found == expected, f"{name} {queue_id}: kept {offset}, found {found}, the queue ends at {end}"
                self._last[topic, queue_id] = min(self._last.get((topic, queue_id), -1), end - 1)
        self.committed = self._committed()
        self.kept = self._committed()

    def _end_at_start(self, topic: str, queue_id: int) -> int:
        """The end of a queue when the broker started, before it delivered anything."""
        until, place = self.world.store.report.log_end, (topic, queue_id)
        records = (one for one in self._records() if one.physical_offset < until)
        return max((one.queue_offset + 1 for one in records if (one.topic, one.queue_id) == place), default=0)

    def _records(self) -> Iterator[StoredMessage]:
        log = self.world.store.log
        size, at = log.segments.file_size, log.start
        while at < log.end:
            base = at - at % size
            scanner = Scanner(log.segments.file(at).buffer, at - base, min(log.end - base, size), crc=True, base=base)
            while (found := scanner.step()) == Found.RECORD:
                yield scanner.message()
            assert found in (Found.END, Found.FILLER), scanner.reason
            at = base + size

    def _record_at(self, offset: int) -> StoredMessage:
        """A record as it is in its file, whether or not the disk fails at present."""
        segments = self.world.store.log.segments
        base = offset - offset % segments.file_size
        content = self.world.disk.peek(segments.path(base))
        assert content is not None, f"there is no file for offset {offset}"
        scanner = Scanner(content, offset - base, segments.file_size, base=base)
        assert scanner.step() == Found.RECORD, scanner.reason
        return scanner.message()

    def _missing(self) -> list[tuple[str, str, bytes]]:
        """Messages that a group has to consume and has not; delayed ones first have to be delivered."""
        missing: list[tuple[str, str, bytes]] = []
        groups = {"plain": ("billing", "audit"), "ordered": ("strict",)}
        for message in self._records():
            if message.topic.startswith("%DLQ%"):
                self.excused.add((message.topic.removeprefix("%DLQ%"), bytes(message.body)))
        for message in self._records():
            topic, body = message.topic, bytes(message.body)
            if message.raw_topic in (SCHEDULE, TIMER):
                topic = message.properties["REAL_TOPIC"]
                if message.raw_topic == TIMER and (body == b"0" or self.timed.is_excused(body)):
                    continue
            wanted = [group for group in groups.get(topic, ()) if not self.consumed[group][body]]
            missing += [(group, topic, body[:12]) for group in wanted if (group, body) not in self.excused]
        return missing

    def _check_log(self) -> None:
        records = list(self._records())
        self._check_promises(records)
        self._check_order(records)
        self._check_delays(records)
        self.payments.check(records)
        self.timed.check(records, self.world.stamp_ms)

    def _check_promises(self, records: list[StoredMessage]) -> None:
        by_place = {int(message.physical_offset): message for message in records}
        for body, sent in self.sent.items():
            if sent.acked:
                message = by_place.get(sent.physical)
                assert message is not None, f"acknowledged and lost: {body[:12]!r} at {sent.physical}"
                assert bytes(message.body) == body and message.queue_offset == sent.queue_offset, f"{sent} {message}"

    def _check_order(self, records: list[StoredMessage]) -> None:
        last: dict[tuple[str, int, str], int] = {}
        next_offset: dict[tuple[str, int], int] = defaultdict(int)
        for message in records:
            assert message.queue_offset == next_offset[message.topic, message.queue_id], (
                f"no place of its own: {message}"
            )
            next_offset[message.topic, message.queue_id] += 1
            if message.topic in self.queues and not message.prepared_offset and not message.sys_flag & 0xC:
                producer, number, _ = bytes(message.body).split(b"-", 2)
                key = message.topic, message.queue_id, producer.decode()
                assert int(number) > last.get(key, 0), f"{key}: {number!r} after {last[key]}"
                last[key] = int(number)

    def _check_delays(self, records: list[StoredMessage]) -> None:
        originals = {int(message.physical_offset): message for message in records if message.raw_topic == SCHEDULE}
        copies = Counter(~message.prepared_offset for message in records if message.prepared_offset < 0)
        timed = {int(message.physical_offset) for message in records if message.raw_topic == TIMER}
        for message in records:
            if message.prepared_offset < 0 and ~message.prepared_offset not in timed:
                original = originals[~message.prepared_offset]
                waited_ms = message.stored_ms - original.stored_ms
                assert waited_ms >= self._delay_of(original), f"delivered after {waited_ms} ms: {message}"
                assert message.topic == original.properties["REAL_TOPIC"]
        assert not [at for at, count in copies.items() if count > 1], f"delivered twice: {copies.most_common(3)}"
        for at, original in originals.items():
            if original.stored_ms + self._delay_of(original) < self.world.stamp_ms:
                assert copies[at] == 1, f"never delivered: {original}"

    def _delay_of(self, original: StoredMessage) -> int:
        return self.delay_ms[original.queue_id + 1]


def _table(content: bytes | list[bytes]) -> dict[str, dict[int, int]]:
    table = ConsumerOffsets.decode(_text(content), trusted=True).offset_table
    return {name: dict(queues) for name, queues in table.items() if not name.endswith(SYSTEM_GROUP)}


def _text(content: bytes | list[bytes]) -> bytes:
    return b"".join(content) if isinstance(content, list) else content
