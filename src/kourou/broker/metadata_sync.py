"""A slave's tables: it regularly fetches topics, groups, offsets, delay offsets and request modes from its master.

    21 topics ─▶ 43 consumer offsets ─▶ 45 delay offsets ─▶ 201 groups ─▶ 402 request modes ─▶ a pause ─▶ …

The requests are those of Apache's slaves, so a master of either kind answers them. Topics and groups have a version,
which a page with one entry includes: the whole table is fetched, page by page, only if the version has changed. Tables
without a version are fetched each time; the pause grows with their size (`PAUSE_PER_MIB_MS`).

While the master is away, groups commit their offsets to the slave. When it is back, those that are higher than the
master's are committed to the master (15) before its table replaces the slave's. The slave must follow it then: before,
its log may have messages that the master lacks.

A table is replaced once all of it has arrived, and is written to its file like any change. A table that can't be
decoded is logged, and fetched again in the next round.

Java: SlaveSynchronize.
"""

import logging
import re
from collections.abc import Generator
from functools import partial
from typing import Final, TypeAlias, TypeVar

import msgspec

from kourou.broker.delays import DelayOffsets, Delays
from kourou.broker.events import Outbox
from kourou.broker.groups import Groups
from kourou.broker.offsets import Offsets
from kourou.broker.replication import Replication
from kourou.broker.request_modes import RequestModes
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.topics import Topics
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.store.metadata import ConsumerOffsets, OffsetTable
from kourou.store.store import Store
from kourou.turns import Slices, Turns

log = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_MS: Final = 1_000
"""The pause between two rounds. A change reaches the slave within this time plus that of one round."""

PAUSE_PER_MIB_MS: Final = 1_000
"""How much longer the pause is for each MiB of tables that are fetched each time."""

TIMEOUT_MS: Final = 3_000
PAGE: Final = 2_000
"""Topics or groups in one answer."""

ENTRIES_MAX: Final = 1_000_000
"""The most topics or groups that are accepted from a master."""

NAMES_IN_SLICE: Final = 500
"""The most entries that are decoded in one slice."""

_TABLE: Final = b'"offsetTable":{'
_ENTRY: Final = re.compile(rb'("(?:[^"\\]|\\.)*"):\{([0-9:,"-]*)\},?')

_Asking: TypeAlias = Generator[Command, Command, T]
"""Yields requests, and is sent their answers."""


class FailedAnswerError(Exception):
    """The master refused a request."""


class MetadataSync:
    """Keeps a slave's tables equal to its master's."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        groups: Groups,
        offsets: Offsets,
        delays: Delays,
        request_modes: RequestModes,
        outbox: Outbox,
        turns: Turns,
        store: Store,
        replication: Replication,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._request_modes = request_modes
        self._outbox = outbox
        self._turns = turns
        self._store = store
        self._replication = replication
        self._round: _Asking[None] | None = None  # the current round
        self._fetched = 0  # bytes fetched in this round
        self._handing_over: tuple[str, int] | None = None  # an offset that the master has not confirmed
        self._next_ms = 0
        self._problem = ""  # as last logged
        self.master: str | None = None  # address of the broker to ask
        self.synced_ms: int | None = None  # when the last round was completed
        if settings.role is Role.SLAVE:
            self.begin()

    def follow(self, master: str | None) -> None:
        """Fetch the tables from this master; None: stop fetching."""
        if master != self.master:
            self.master = master
            self._next_ms = 0

    def begin(self) -> None:
        """The broker is a slave from now on."""
        self._offsets.committed_here = set()

    def stop(self) -> None:
        """The broker becomes a master: discard the current round."""
        self.master, self._round = None, None
        self._offsets.committed_here = None
        self._turns.drop(self)

    def step(self, now_ms: int) -> None:
        """Begin a round if it is due."""
        if self._settings.role is not Role.SLAVE or self.master is None or self._round is not None:
            return
        if now_ms >= self._next_ms:
            self._fetched = 0
            self._round = self._ask_all()
            self._go_on(None, now_ms)

    def due_ms(self) -> int | None:
        """When `step` is due."""
        is_waiting = self._settings.role is Role.SLAVE and self.master is not None and self._round is None
        return self._next_ms if is_waiting else None

    def _go_on(self, answer: Command | None, now_ms: int) -> None:
        """Send the next request of the round; `answer` is the answer to the last one, None at the beginning."""
        assert self._round is not None
        problem = ""
        try:
            command = next(self._round) if answer is None else self._round.send(answer)
        except StopIteration:
            self.synced_ms = now_ms
        except (ProtocolError, FailedAnswerError) as error:
            problem = str(error)
        else:
            if self.master is not None:
                self._outbox.ask_broker(self.master, command, TIMEOUT_MS, partial(self._answered, self._round))
                return
        self._end_round(problem, now_ms)

    def _answered(self, asked_in: _Asking[None], answer: Command | None, now_ms: int) -> None:
        if self._round is not asked_in:
            return
        if answer is None:
            self._end_round("no answer", now_ms)
            return
        self._fetched += len(answer.body)
        self._go_on(answer, now_ms)

    def _end_round(self, problem: str, now_ms: int) -> None:
        self._round = None
        if self._handing_over is not None and self._offsets.committed_here is not None:
            self._offsets.committed_here.add(self._handing_over)
        self._handing_over = None
        self._next_ms = now_ms + PAUSE_MS + PAUSE_PER_MIB_MS * self._fetched // 1024**2
        if problem != self._problem:
            self._problem = problem
            if problem:
                log.warning("fetching tables failed and will be retried master=%s: %s", self.master, problem)
            else:
                log.info("the tables are in sync with master=%s", self.master)

    # ── A round ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ask_all(self) -> _Asking[None]:
        yield from self._ask_topics()
        yield from self._ask_offsets()
        yield from self._ask_delays()
        yield from self._ask_groups()
        yield from self._ask_modes()

    def _ask_topics(self) -> _Asking[None]:
        def page(start: int, count: int, version: str | None) -> Command:
            header = headers.GetAllTopicConfig(topic_seq=start, max_topic_num=count, data_version=version)
            return Command(RequestCode.GET_ALL_TOPIC_CONFIG, ext=header.encode())

        first = _body(bodies.TopicConfigAndMappingSerializeWrapper, (yield page(0, 1, None)))
        version = first.data_version
        if version == self._topics.version:
            return
        table: dict[str, bodies.TopicConfig] = {}
        while True:
            answer = yield page(len(table), PAGE, version.encode().decode())
            part = _body(bodies.TopicConfigAndMappingSerializeWrapper, answer)
            if part.data_version != version:
                return  # the table has just changed: the next round fetches it
            before = len(table)
            table |= part.topic_config_table
            if _is_all(answer, "totalTopicNum", before, len(table)):
                break
        if not table:
            raise FailedAnswerError("the master has no topics")
        self._turns.start(self, self._topics.adopt(table, version))

    def _ask_groups(self) -> _Asking[None]:
        def page(start: int, count: int, version: str | None) -> Command:
            header = headers.GetAllSubscriptionGroup(group_seq=start, max_group_num=count, data_version=version)
            return Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, ext=header.encode())

        first = _body(bodies.SubscriptionGroupWrapper, (yield page(0, 1, None)))
        version = first.data_version
        if version == self._groups.version:
            return
        table: dict[str, bodies.SubscriptionGroupConfig] = {}
        forbidden: dict[str, dict[str, int]] = {}
        while True:
            answer = yield page(len(table), PAGE, version.encode().decode())
            part = _body(bodies.SubscriptionGroupWrapper, answer)
            if part.data_version != version:
                return
            before = len(table)
            table |= part.subscription_group_table
            forbidden |= part.forbidden_table
            if _is_all(answer, "totalGroupNum", before, len(table)):
                break
        self._turns.start(self, self._groups.adopt(table, forbidden, version))

    def _ask_offsets(self) -> _Asking[None]:
        if self._offsets.committed_here:
            if not self._replication.has_master:
                return  # it is about to compare its log with the master's
            yield from self._hand_over()
        answer = yield Command(RequestCode.GET_ALL_CONSUMER_OFFSET)
        _check(answer)
        self._turns.start(self, self._adopt_offsets(answer.body))

    def _hand_over(self) -> _Asking[None]:
        """Commit the offsets that groups have committed to this slave to the master, unless the master's are higher."""
        offsets, count, refused, reason = self._offsets, 0, 0, ""
        while offsets.committed_here:
            name, queue_id = self._handing_over = offsets.committed_here.pop()
            topic, _, group = name.partition("@")
            known = headers.QueryConsumerOffset(
                consumer_group=group, topic=topic, queue_id=queue_id, set_zero_if_not_found=False
            )
            answer = yield Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=known.encode())
            there = headers.OffsetAnswer.decode(answer.ext).offset if answer.code == ResponseCode.SUCCESS else -1
            offset = offsets.table.get(name, {}).get(queue_id, -1)  # a cut of the log may have lowered it
            if offset > there:
                header = headers.UpdateConsumerOffset(
                    consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
                )
                answer = yield Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=header.encode())
                if answer.code == ResponseCode.SUCCESS:
                    count += 1
                else:
                    refused, reason = refused + 1, f"{name} queue {queue_id}: code {answer.code}: {answer.remark}"
            self._handing_over = None
        if count:
            log.info("%d offsets that groups have committed to this slave were committed to the master", count)
        if refused:
            log.warning("the master refused %d offsets that groups have committed here: %s", refused, reason)

    def _adopt_offsets(self, body: bytes) -> Slices[None]:
        try:
            table = yield from offsets_of(body)
            if not self._offsets.committed_here:  # otherwise the next round hands it over first
                yield from self._offsets.adopt(table)
        except BodyError as error:
            log.warning("the master's consumer offsets can't be decoded: %s", error)

    def _ask_delays(self) -> _Asking[None]:
        delays = _body(DelayOffsets, (yield Command(RequestCode.GET_ALL_DELAY_OFFSET)))
        # The delivered messages must be in this log as well; otherwise this broker would skip them as a master.
        if delays.delivered_to is None or delays.delivered_to <= self._store.log.end:
            self._delays.adopt(delays)

    def _ask_modes(self) -> _Asking[None]:
        answer = yield Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:  # brokers of 4.9 have none
            self._request_modes.adopt(_body(bodies.MessageRequestModeSerializeWrapper, answer))


def _check(answer: Command) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise FailedAnswerError(f"code {answer.code}: {answer.remark}")


Decoded = TypeVar("Decoded", bound=bodies.base.Body)


def _body(kind: type[Decoded], answer: Command) -> Decoded:
    _check(answer)
    return kind.decode(answer.body)


def _is_all(answer: Command, name: str, before: int, count: int) -> bool:
    """Was that the last page? An answer without a total has all entries."""
    total = (answer.ext or {}).get(name)
    if total is None or count == before or count > ENTRIES_MAX:
        return True
    try:
        return count >= int(total)
    except ValueError:
        return True


def offsets_of(body: bytes) -> Slices[OffsetTable]:
    """The consumer offsets of an answer; large tables are decoded in slices. Raises BodyError."""
    begin = body.find(_TABLE)
    if begin < 0:
        return ConsumerOffsets.decode(body).offset_table
    at, table = begin + len(_TABLE), OffsetTable()
    while body[at : at + 1] != b"}":
        entry = _ENTRY.match(body, at)
        if entry is None:  # not in the usual form
            return ConsumerOffsets.decode(body).offset_table
        try:
            name = msgspec.json.decode(entry[1], type=str)
            pairs = [pair.split(b":") for pair in entry[2].replace(b'"', b"").split(b",") if pair]
            table[name] = {int(queue_id): int(offset) for queue_id, offset in pairs}
        except (ValueError, msgspec.DecodeError) as error:
            raise BodyError(f"offsets at {at}: {error}") from None
        at = entry.end()
        if len(table) % NAMES_IN_SLICE == 0:
            yield len(body)
    return table
