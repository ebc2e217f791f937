"""Checks: producers are asked about the state of their transactions.

    every transactionCheckInterval: a round over all open half messages, in slices
        due ─▶ a newer copy of it is appended ─▶ … it is visible … ─▶ a producer of its group is asked (39)
        asked transactionCheckMax times ─▶ TRANS_CHECK_MAX_TIME_TOPIC

The copy moves the half message to the end of the queue, so that the position advances and old segments can be removed.
The producer gets the position of the copy, and names it when it ends the transaction. It is asked only after the copy
has become visible; otherwise its answer might arrive too early.

A round ends where the half queue ended when the round began. It skips half messages that can't be read, can't be copied
or are too young, so that nothing waits for one bad entry. It pauses only if the disk refuses all writes.

Java: TransactionalMessageServiceImpl.check, AbstractTransactionalMessageCheckListener.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kourou.broker import names
from kourou.broker.access import Access
from kourou.broker.clients import Client, Clients
from kourou.broker.events import Outbox, Peer, Refused, Tell
from kourou.broker.message_writer import MessageWriter
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions import half_records
from kourou.broker.transactions.counts import Counts
from kourou.broker.transactions.half_queue import CopiesUnknownError, HalfQueue
from kourou.broker.transactions.half_records import HALF_QUEUE, Half
from kourou.broker.transactions.verdicts import Verdict, judge
from kourou.protocol import headers
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.names import shown
from kourou.protocol.record import CorruptRecordError, decode_record
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.store.errors import StoreError
from kourou.store.reading import GetStatus
from kourou.store.store import Store

log = logging.getLogger(__name__)

SLICE: Final = 64
"""The most half messages that one step examines."""

SLICE_BYTES: Final = 1024 * 1024
"""The most bytes of half messages that one step reads, unless a single one has more."""

QUESTIONS_MAX: Final = 1_000
"""The most questions that wait for their copies to become visible; a round pauses while there are more."""

WINDOW_MAX: Final = 16_000_000
"""The most half messages from the first open one to the last. If there are more, a round begins early, and gives up
half messages that can't be read.
"""

RETRY_MS: Final = 1_000
"""The pause after the disk refused a copy."""

_ONE_WAY: Final = int(CommandFlag.ONE_WAY)
_DISCARD_QUEUES: Final = 1


class Question(NamedTuple):
    """A question to a producer about a copy, to be sent once the copy is visible."""

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
        access: Access,
    ) -> None:
        """`kept_ms` returns how long messages are kept."""
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
        self._producers = Rota(clients, access)
        self.begin_again(now_ms)

    def begin_again(self, now_ms: int) -> None:
        """Forget the current round; the next one begins an interval from now."""
        self._next_ms = now_ms + self._settings.transaction_check_interval_ms
        self._not_before_ms = 0
        self._round: Round | None = None
        self._questions: deque[Question] = deque()
        self._problem: str | None = None

    # ── When ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, now_ms: int) -> int | None:
        """When `step` is due; None if no half message is open."""
        if self._questions and self._questions[0].log_end <= self._store.dispatched:
            return now_ms
        if self._round is not None:
            full = len(self._questions) >= QUESTIONS_MAX
            return None if full else max(self._not_before_ms, now_ms)
        if not self._halves.has_open:
            return None
        return max(self._not_before_ms, now_ms if self._is_crowded else self._next_ms)

    def first_opened(self, now_ms: int) -> None:
        """The first half message was opened after a time without open ones, in which no round was due."""
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
        """Do a slice of the work that is due."""
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
        """The log was cut at this offset."""
        self._questions = deque(question for question in self._questions if question.log_end <= end)
        self._round = None  # the next one examines the rest

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
                    return  # the disk refuses copies: retry the same one later
                round_.cursor = half.offset + 1
            count -= 1

    def _end(self, round_: Round, now_ms: int) -> None:
        self._round = None
        self._set_next(now_ms)
        if round_.asked or round_.copied or round_.discarded:
            log.info("transactions checked %s", round_)

    def _read(self, round_: Round) -> Half | None:
        """The half message at the cursor. If it can't be read, returns None and moves the cursor past it."""
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
            log.error("skipped half messages %d to %d, which are missing or damaged", offset, found_at - 1)
            self._halves.given_up(offset, found_at)
        elif half is None and result.status is GetStatus.OFFSET_OVERFLOW_ONE:
            round_.cursor = round_.stop
            return None
        elif half is None and self._is_crowded:
            log.error("skipped half message %d, which can't be read", offset)
            self._halves.given_up(offset, offset + 1)
        if half is None:
            round_.cursor = max(found_at, offset + 1)
        return half

    def _check(self, half: Half, round_: Round, now_ms: int) -> bool:
        """Check one half message; False if the disk refuses writes."""
        try:
            if self._halves.is_decided(half):
                return True
        except CopiesUnknownError as error:
            if round_.waiting == 0:  # one of many
                log.warning("the check of half message %d and those after it is postponed: %s", half.offset, error)
            round_.waiting += 1
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
            elif verdict is Verdict.ASK and not self._producers.are_busy(half):
                self._copy_and_ask(half, now_ms)
                round_.asked += 1
            else:
                round_.waiting += 1
        except (Refused, StoreError, OSError) as error:
            self._pause(str(error), now_ms)
            return False
        if self._problem is not None:
            self._problem = None
            log.warning("checks of transactions have resumed")
        return True

    def _pause(self, problem: str, now_ms: int) -> None:
        self._not_before_ms = now_ms + RETRY_MS
        if self._problem != problem:
            self._problem = problem
            log.error("checks of transactions are paused: %s", problem)

    # ── Copies ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, message: NewMessage, now_ms: int) -> Appended | None:
        """Append a message; None if this message can't be stored. Raises Refused if no message can be stored."""
        try:
            (stored,) = self._writer.put([message], None, now_ms)
        except Refused as refused:
            if refused.code != ResponseCode.MESSAGE_ILLEGAL:
                raise
            log.error("a half message can't be copied: %s", refused.remark)
            return None
        return stored

    def _copy(self, half: Half, copy: NewMessage, now_ms: int) -> Question:
        """Append a copy if possible. Returns the question: about the copy, or else about the half message itself."""
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
            self._topics.ensure_own(names.TRANSACTION_CHECK_TOPIC, _DISCARD_QUEUES, now_ms)
        except Refused as refused:  # there are too many topics; the messages can still be found by their keys
            log.error("topic %s not created: %s", names.TRANSACTION_CHECK_TOPIC, refused.remark)
        stored = self._put(half_records.discarded(half), now_ms)
        log_end = 0 if stored is None else stored.physical_offset + stored.size
        self._halves.given_up(half.offset, half.offset + 1, log_end)
        self._counts.closed(half.real_topic, now_ms)
        log.error(
            "half message discarded topic=%s id=%s group=%s: not committed or rolled back after %d checks",
            shown(half.real_topic),
            shown(half.unique_key),
            shown(half.producer_group),
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
        peer, body = self._producers.next(half), half_records.question(half)
        if peer is None or body is None:
            log.debug("no producer to ask group=%s id=%s", shown(half.producer_group), shown(half.unique_key))
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
"""How many producers of a group are tried, to find one that accepts questions."""


ROTAS_MAX: Final = 100
"""The most groups and topics whose producers are cached."""


class Rota:
    """The turns of the producers of each group.

    A question has the message in it, and any client may join a group of producers. With access control, only producers
    that may send to the message's topic are asked.
    """

    def __init__(self, clients: Clients, access: Access) -> None:
        self._clients = clients
        self._access = access
        self._epoch = 0  # of access control
        self._members: dict[tuple[str, str], tuple[int, list[Peer]]] = {}
        """By group and topic: the number of members when they were last examined, and those that may be asked."""
        self._round = 0
        self._turn = 0

    def renew(self) -> None:
        """A round begins: each half message is asked about at another producer than in the last one."""
        self._members.clear()
        self._round += 1
        self._turn = self._round

    def next(self, half: Half) -> Peer | None:
        """The next producer that takes questions; None: there is none now."""
        self._turn += 1
        return next((peer for peer in self._candidates(half) if peer.is_writable), None)

    def are_busy(self, half: Half) -> bool:
        """Are there producers, and none that takes questions now?"""
        candidates = self._candidates(half)
        return bool(candidates) and not any(peer.is_writable for peer in candidates)

    def _candidates(self, half: Half) -> list[Peer]:
        connected = self._clients.producers.get(half.producer_group)
        if not connected:
            return []
        if self._epoch != self._access.epoch:
            self._epoch = self._access.epoch
            self._members.clear()
        key = half.producer_group, "" if self._access.rules is None else half.real_topic
        count, members = self._members.get(key, (0, []))
        chosen = self._chosen(members, connected)
        if count != len(connected) or (members and not chosen):
            if len(self._members) >= ROTAS_MAX:
                self._members.clear()
            members = self._who_may(connected, half.real_topic)
            self._members[key] = len(connected), members
            chosen = self._chosen(members, connected)
        return chosen

    def _chosen(self, members: list[Peer], connected: dict[Peer, Client]) -> list[Peer]:
        some = (members[(self._turn + number) % len(members)] for number in range(min(TRIES_MAX, len(members))))
        return [peer for peer in some if peer in connected]

    def _who_may(self, connected: dict[Peer, Client], topic: str) -> list[Peer]:
        if self._access.rules is None:
            return list(connected)
        known: dict[tuple[str | None, str], bool] = {}  # by user and host: most connections are alike
        found: list[Peer] = []
        for peer, client in connected.items():
            one = client.user, peer.address.rpartition(":")[0]
            may = known.get(one)
            if may is None:
                may = known[one] = self._access.may_send(client.user, peer, topic)
            if may:
                found.append(peer)
        return found
