"""Checks: producers are asked what became of their transactions.

    every transactionCheckInterval: a round over all open half messages, in slices
        due ─▶ a newer copy of it is appended ─▶ … readers see it … ─▶ a producer of its group is asked (39)
        asked transactionCheckMax times ─▶ TRANS_CHECK_MAX_TIME_TOPIC

The copy takes the half message to the end of the queue, so that the position moves on and old segments may go. The
producer gets the place of the copy, and names it when it ends the transaction. It is asked when readers see the copy,
otherwise its answer might come too early.

A round ends where the half queue ended when it began. It passes over what can't be read, what can't be copied, and what
is too young: nothing waits for one bad entry. Only a disk that refuses everything makes it pause.

Java: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kourou.broker import names
from kourou.broker.clients import Clients
from kourou.broker.events import Outbox, Peer, Refused, Tell
from kourou.broker.message_writer import MessageWriter
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions import half_records
from kourou.broker.transactions.counts import Counts
from kourou.broker.transactions.half_queue import HalfQueue
from kourou.broker.transactions.half_records import HALF_QUEUE, Half
from kourou.broker.transactions.verdicts import Verdict, judge
from kourou.protocol import headers
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.record import CorruptRecordError, decode_record
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.reading import GetStatus
from kourou.store.store import Store

log = logging.getLogger(__name__)

SLICE: Final = 64
"""Half messages that one step looks at."""

SLICE_BYTES: Final = 1024 * 1024
"""And how many bytes of them, unless a single one has more."""

QUESTIONS_MAX: Final = 1_000
"""Questions that wait until readers see the copies that they are about; a round goes on when there are fewer."""

WINDOW_MAX: Final = 16_000_000
"""Half messages from the first open one to the last. Beyond it, a round begins early, and what can't be read is given
up.
"""

RETRY_MS: Final = 1_000
"""How long to wait after the disk refused a copy."""

_ONE_WAY: Final = int(CommandFlag.ONE_WAY)
_DISCARD_QUEUES: Final = 1


class Question(NamedTuple):
    """A producer is to be asked about a copy, once readers see it."""

    log_end: int
    physical_offset: int
    offset: int


@dataclass(slots=True)
class Round:
    """One round over the open half messages."""

    cursor: int  # the next one
    stop: int  # where the queue ended when the round began
    stamp_ms: int  # the store time then
    asked: int = 0
    copied: int = 0
    discarded: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        return f"asked={self.asked} immune={self.copied} discarded={self.discarded} waiting={self.waiting}"


class Checks:
    """Asks producers about open half messages."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        topics: Topics,
        clients: Clients,
        stats: Stats,
        outbox: Outbox,
        halves: HalfQueue,
        counts: Counts,
        store_host: bytes,
        kept_ms: Callable[[], int],
        now_ms: int,
    ) -> None:
        """`kept_ms` says how long messages are kept."""
        self._settings = settings
        self._store = store
        self._writer = writer
        self._topics = topics
        self._stats = stats
        self._outbox = outbox
        self._halves = halves
        self._counts = counts
        self._store_host = store_host
        self._kept_ms = kept_ms
        self._producers = Rota(clients)
        self._next_ms = now_ms + settings.transaction_check_interval_ms
        self._not_before_ms = 0
        self._round: Round | None = None
        self._questions: deque[Question] = deque()
        self._problem: str | None = None

    # ── When ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When there is something to do; None: no half message is open."""
        if self._questions and self._questions[0].log_end <= self._store.dispatched:
            return now_ms
        if self._round is not None:
            full = len(self._questions) >= QUESTIONS_MAX
            return None if full else max(self._not_before_ms, now_ms)
        if not self._halves.has_open:
            return None
        return max(self._not_before_ms, now_ms if self._is_crowded else self._next_ms)

    def first_opened(self, now_ms: int) -> None:
        """A half message is open, and none was before: no round was due for a while."""
        self._set_next(now_ms)

    def _set_next(self, now_ms: int) -> None:
        """Rounds begin at multiples of the interval, also after a pause."""
        interval_ms = self._settings.transaction_check_interval_ms
        if self._next_ms <= now_ms:
            self._next_ms += ((now_ms - self._next_ms) // interval_ms + 1) * interval_ms

    @property
    def _is_crowded(self) -> bool:
        return self._halves.end - self._halves.ledger.position > WINDOW_MAX

    # ── A round ───────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self, now_ms: int) -> None:
        """Do a slice of what is due."""
        self._ask_about_visible_copies()
        due_ms = self.due_ms(now_ms)
        if due_ms is None or due_ms > now_ms:
            return
        if self._round is None:
            position, end = self._halves.ledger.position, self._halves.end
            self._round = Round(position, end, self._store.clock.stamp(now_ms))
            self._producers.renew()
        self._check_slice(self._round, now_ms)

    def log_was_cut(self, end: int) -> None:
        """The log lost what is after this offset."""
        self._questions = deque(question for question in self._questions if question.log_end <= end)
        self._round = None  # the next one looks at what is left

    def _check_slice(self, round_: Round, now_ms: int) -> None:
        count, size = SLICE, SLICE_BYTES
        while count > 0 and size > 0 and len(self._questions) < QUESTIONS_MAX:
            offset = self._halves.ledger.next_open(round_.cursor, round_.stop)
            if offset is None:
                self._end(round_, now_ms)
                return
            round_.cursor = offset
            half = self._read(round_)
            if half is not None:
                size -= half.record.size
                if not self._check(half, round_, now_ms):
                    return  # the disk refuses copies: the same one again, later
                round_.cursor = half.offset + 1
            count -= 1

    def _end(self, round_: Round, now_ms: int) -> None:
        self._round = None
        self._set_next(now_ms)
        if round_.asked or round_.copied or round_.discarded:
            log.info("transactions checked %s", round_)

    def _read(self, round_: Round) -> Half | None:
        """The half message at the cursor. If it can't be read, None, and the cursor is after it."""
        offset = round_.cursor
        result = self._store.reader.get(names.HALF_TOPIC, HALF_QUEUE, offset, 1)
        half = None
        if result.records:
            try:
                half = Half.of(decode_record(result.records[0]))
            except CorruptRecordError as error:
                log.error("half message %d is damaged: %s", offset, error)
        found_at = result.next_offset if half is None else half.offset
        if found_at > offset:
            log.error("half messages %d to %d are gone or damaged, and given up", offset, found_at - 1)
            self._halves.given_up(offset, found_at)
        elif half is None and result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            round_.cursor = round_.stop
            return None
        elif half is None and self._is_crowded:
            log.error("half message %d can't be read, and is given up", offset)
            self._halves.given_up(offset, offset + 1)
        if half is None:
            round_.cursor = max(found_at, offset + 1)
        return half

    def _check(self, half: Half, round_: Round, now_ms: int) -> bool:
        """Deal with one half message; False if the disk refuses to store anything."""
        if self._halves.is_decided(half):
            return True
        stamp_ms = self._store.clock.stamp(now_ms)
        verdict = judge(half, stamp_ms, round_.stamp_ms, self._settings, self._kept_ms())
        try:
            if verdict is Verdict.DISCARD:
                self._discard(half, now_ms)
                round_.discarded += 1
            elif verdict is Verdict.COPY:
                self._copy(half, half_records.immune_copy(half), now_ms)
                round_.copied += 1
            elif verdict is Verdict.ASK and not self._producers.are_busy(half.producer_group):
                self._copy_and_ask(half, now_ms)
                round_.asked += 1
            else:
                round_.waiting += 1
        except (Refused, StoreError, OSError) as error:
            self._pause(str(error), now_ms)
            return False
        if self._problem is not None:
            self._problem = None
            log.warning("transactions are checked again")
        return True

    def _pause(self, problem: str, now_ms: int) -> None:
        self._not_before_ms = now_ms + RETRY_MS
        if self._problem != problem:
            self._problem = problem
            log.error("checks of transactions wait: %s", problem)

    # ── Copies ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, message: NewMessage, now_ms: int) -> Appended | None:
        """None: this message can't be stored. Raises Refused: nothing can."""
        try:
            (stored,) = self._writer.put([message], None, now_ms)
        except Refused as refused:
            if refused.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            log.error("a half message can't be copied: %s", refused.remark)
            return None
        return stored

    def _copy(self, half: Half, copy: NewMessage, now_ms: int) -> Question:
        """Append a copy, if that can be. What is to be asked about then: the copy, or the half message itself."""
        stored = self._put(copy, now_ms)
        if stored is None:  # by settings that have changed meanwhile
            self._halves.given_up(half.offset, half.offset + 1)
            return Question(0, half.record.physical_offset, half.offset)
        log_end = stored.physical_offset + stored.size
        self._halves.copied(half, stored.queue_offset, log_end)
        return Question(log_end, stored.physical_offset, stored.queue_offset)

    def _copy_and_ask(self, half: Half, now_ms: int) -> None:
        question = self._copy(half, half_records.asked_copy(half), now_ms)
        self._questions.append(question)

    def _discard(self, half: Half, now_ms: int) -> None:
        try:
            self._topics.ensure(names.TRANSACTION_CHECK_TOPIC, _DISCARD_QUEUES, now_ms)
        except Refused as refused:  # there are too many topics: its messages are found by their keys
            log.error("topic %s not created: %s", names.TRANSACTION_CHECK_TOPIC, refused.remark)
        stored = self._put(half_records.discarded(half), now_ms)
        log_end = 0 if stored is None else stored.physical_offset + stored.size
        self._halves.given_up(half.offset, half.offset + 1, log_end)
        self._counts.closed(half.real_topic, now_ms)
        log.error(
            "half message discarded topic=%s id=%s group=%s: nobody has decided about it, asked %d times",
            half.real_topic,
            half.unique_key,
            half.producer_group,
            half.check_times,
        )

    # ── Questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask_about_visible_copies(self) -> None:
        size = SLICE_BYTES
        while self._questions and size > 0 and self._questions[0].log_end <= self._store.dispatched:
            question = self._questions.popleft()
            fate = self._halves.ledger.fate(question.offset)
            half = self._halves.half_at(question.physical_offset)
            if half is not None and (fate is None or not fate.is_end):
                size -= half.record.size
                self._ask(half)

    def _ask(self, half: Half) -> None:
        peer, body = self._producers.next(half.producer_group), half_records.question(half)
        if peer is None or body is None:
            log.debug("nobody to ask group=%s id=%s", half.producer_group, half.unique_key)
            return
        record = half.record
        header = headers.CheckTransactionState(
            topic=names.HALF_TOPIC,
            tran_state_table_offset=record.queue_offset,
            commit_log_offset=record.physical_offset,
            msg_id=half.unique_key,
            transaction_id=half.unique_key,
            offset_msg_id=encode_offset_id(self._store_host, PhysicalOffset(record.physical_offset)),
            broker_name=self._settings.name,
        )
        command = Command(RequestCode.CHECK_TRANSACTION_STATE, flag=_ONE_WAY, ext=header.encode(), body=body)
        self._outbox.put(Tell(peer, command))


TRIES_MAX: Final = 3
"""Producers of a group that are looked at, to find one that takes questions."""


class Rota:
    """Whose turn it is, of the producers of each group."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._members: dict[str, list[Peer]] = {}  # as they were when the round began
        self._turn = 0

    def renew(self) -> None:
        self._members.clear()

    def next(self, group: str) -> Peer | None:
        """The next producer that takes questions; None: there is none now."""
        self._turn += 1
        return next((peer for peer in self._candidates(group) if peer.is_writable), None)

    def are_busy(self, group: str) -> bool:
        """Are there producers, and none that takes questions now?"""
        candidates = self._candidates(group)
        return bool(candidates) and not any(peer.is_writable for peer in candidates)

    def _candidates(self, group: str) -> list[Peer]:
        connected = self._clients.producers.get(group)
        if not connected:
            return []
        members = self._members.get(group)
        if members is None or len(members) != len(connected):
            members = self._members[group] = list(connected)
        chosen = [members[(self._turn + number) % len(members)] for number in range(min(TRIES_MAX, len(members)))]
        return [peer for peer in chosen if peer in connected] or [next(iter(connected))]
