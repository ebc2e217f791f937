"""Storing messages: what sending, retries, delays and replies have in common.

    put ─▶ Placement: in which topic and queue ─▶ Store.append ─▶ … the step ends … ─▶ Store.dispatch ─▶ long polls wake
    answer ─▶ now, or when the message is durable

Java: MessageStore.asyncPutMessage, GroupCommitService.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from kourou.broker.events import Outbox, Peer, Refused, ReplyFrames
from kourou.broker.placement import Candidate, Placement
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import frame, properties as _properties
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.store.durability import COMMITTED, FLUSHED
from kourou.store.errors import DiskFailedError, DiskFullError, IllegalMessageError
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

log = logging.getLogger(__name__)

_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_FLUSH_SLAVE_TIMEOUT = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
_SUCCESS = int(ResponseCode.SUCCESS)
_SYSTEM_ERROR = int(ResponseCode.SYSTEM_ERROR)
_NOT_AVAILABLE = int(ResponseCode.SERVICE_NOT_AVAILABLE)
_LOST = "the message was lost, because the disk failed or another broker became the master: send it again"
_NOT_COMMITTED = (
    "in-sync replicas not enough: the message is stored, but a majority of the group did not have it in time. It may "
    "be delivered nevertheless"
)


@dataclass(slots=True, eq=False)
class PendingAnswer:
    """An answer that waits until its message is durable, and so are the tables that its request has changed."""

    peer: Peer
    answer: Command
    is_durable: bool = False  # the message
    waits_for_tables: bool = False
    is_given: bool = False


@dataclass(slots=True, eq=False)
class PendingFrames:
    """Answers of the lane that wait until their messages are durable."""

    peer: Peer
    frames: bytes
    count: int
    batches: int = 0  # answers to batches among them
    since_ns: int = 0  # when their requests were read; 0: they are not timed


class MessageWriter:
    """Appends to the store."""

    def __init__(
        self, store: Store, settings: StoreSettings, outbox: Outbox, limits: BrokerSettings, placement: Placement
    ) -> None:
        self._store = store
        self._outbox = outbox
        self._limits = limits
        self._durability = store.durability
        self._max_body_size = settings.max_body_size
        self._placement = placement
        self.on_held: Callable[[PendingFrames, int], None] | None = None  # is called with such answers, and their code
        self.waiting = 0  # answers that wait
        self.newest: PendingAnswer | None = None  # the last one that began to wait
        self.failed = 0  # requests whose messages could not be stored
        self.replicas_missing: str | None = None  # why messages are refused: too few replicas are in sync
        self.paused: str | None = None  # why messages are refused now: another member of the group takes over

    @property
    def _waiting_max(self) -> int:
        return self._limits.waiting_sends_max

    def check_load(self) -> None:
        """Raises Refused if too many answers wait, or too few replicas are in sync."""
        if self.paused is not None:
            raise Refused(ResponseCode.SYSTEM_BUSY, self.paused)
        if self.replicas_missing is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, self.replicas_missing)
        if self.waiting >= self._waiting_max:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, {self.waiting} sends wait for the "
                f"disk (sendThreadPoolQueueCapacity {self._waiting_max}): send more slowly, or to another broker",
            )

    def put(
        self,
        messages: Sequence[NewMessage],
        properties: dict[str, str] | None,
        now_ms: int,
        *,
        is_sent: bool = False,
        together: bool = False,
        size: int | None = None,
    ) -> list[Appended]:
        """Append messages. Raises Refused with the reason. `together` and `size` are those of `Store.append`.

        `properties`, those of a single message, are written into it after `Placement` has decided where it is stored.
        `is_sent`: a client sent the message; False: the broker stores it again.
        """
        if self._limits.role is Role.SLAVE:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now. This broker is a slave: send to its master",
            )
        if self.paused is not None:
            raise Refused(ResponseCode.SYSTEM_BUSY, self.paused)
        if properties is not None:
            messages = [self._placed(Candidate(messages[0], properties, now_ms, is_sent))]
        try:
            return self._store.append(messages, now_ms, together=together, size=size)
        except IllegalMessageError as error:
            self.failed += 1
            raise self.illegal(str(error)) from None
        except (DiskFullError, DiskFailedError) as error:
            self.failed += 1
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "service not available now. It may be caused by one of the following reasons: "
                f"the broker's disk is full, messages are put to the slave, message store has been shut down, etc. "
                f"{error}",
            ) from None

    def size_of(self, message: NewMessage) -> int:
        """The size of a message in the log. Raises Refused with the reason."""
        try:
            return self._store.size_of(message)
        except IllegalMessageError as error:
            self.failed += 1
            raise self.illegal(str(error)) from None

    def _placed(self, candidate: Candidate) -> NewMessage:
        """The message as it is stored, where `Placement` says. Raises Refused."""
        self._placement.place(candidate)
        message = candidate.message
        try:
            message.properties = _properties.encode(candidate.properties).encode()
        except LocalProtocolError as error:
            raise self.illegal(str(error)) from None
        return message

    def illegal(self, reason: str) -> Refused:
        """The refusal of a message that can't be stored as it is."""
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._max_body_size}B, msg properties length limit 32KB. {reason}",
        )

    def answer(self, peer: Peer, request: Command, answer: Command, now_ms: int, *, wait: bool = True) -> None:
        """Answer now, or when all appended messages are durable."""
        if request.is_one_way:
            return
        durability = self._durability
        if durability.must_wait and wait:
            unsafe = PendingAnswer(peer, answer)
            if not durability.wait(durability.appended, unsafe, now_ms):
                self.waiting += 1
                self.newest = unsafe
                return
        self._outbox.reply(peer, request, answer)

    def hold(self, peer: Peer, frames: bytes, count: int, now_ms: int, batches: int = 0, since_ns: int = 0) -> None:
        """Send these answers when all appended messages are durable."""
        unsafe = PendingFrames(peer, frames, count, batches, since_ns)
        self.waiting += count
        if self._durability.wait(self._durability.appended, unsafe, now_ms):
            self.now_durable(unsafe)

    def now_durable(self, unsafe: object) -> None:
        """The store returns a token: its answer may be sent."""
        if isinstance(unsafe, PendingFrames):
            self.waiting -= unsafe.count
            self._tell_held(unsafe, _SUCCESS)
            self._outbox.put(ReplyFrames(unsafe.peer, unsafe.frames, unsafe.count))
            return
        assert isinstance(unsafe, PendingAnswer)
        unsafe.is_durable = True
        self._give_whole(unsafe)

    def tables_are_kept(self, pending: PendingAnswer, problem: str | None) -> None:
        """The tables that its request has changed are durable, or they are not, because of a problem."""
        pending.waits_for_tables = False
        if problem is None:
            self._give_whole(pending)
        else:
            self._change(pending, _SYSTEM_ERROR, problem)

    def _give_whole(self, pending: PendingAnswer) -> None:
        """Give an answer that waits for nothing more."""
        if pending.is_durable and not pending.waits_for_tables and self._is_last_word(pending):
            self._outbox.reply(pending.peer, pending.answer, pending.answer)

    def _is_last_word(self, pending: PendingAnswer) -> bool:
        """False: the answer was given already."""
        if pending.is_given:
            return False
        pending.is_given = True
        self.waiting -= 1
        return True

    def now_late(self, unsafe: object, missing: str) -> None:
        """Its message is stored, and was not durable in time: a watermark is missing."""
        if missing == COMMITTED:
            self._change(unsafe, _SYSTEM_ERROR, _NOT_COMMITTED)
        else:
            self._change(unsafe, _FLUSH_DISK_TIMEOUT if missing == FLUSHED else _FLUSH_SLAVE_TIMEOUT)

    def now_lost(self, unsafe: object) -> None:
        """Its message was cut from the log."""
        self._change(unsafe, _NOT_AVAILABLE, _LOST)

    def _change(self, unsafe: object, code: int, remark: str | None = None) -> None:
        if isinstance(unsafe, PendingFrames):
            self.waiting -= unsafe.count
            self._tell_held(unsafe, code)
            answers = frame.Decoder().feed(unsafe.frames)
        else:
            assert isinstance(unsafe, PendingAnswer)
            answers = [unsafe.answer] if self._is_last_word(unsafe) else []
        for answer in answers:
            changed = msgspec.structs.replace(answer, code=code, remark=remark or answer.remark)
            self._outbox.reply(unsafe.peer, changed, changed)

    def _tell_held(self, unsafe: PendingFrames, code: int) -> None:
        if self.on_held is not None and unsafe.since_ns:
            self.on_held(unsafe, code)
