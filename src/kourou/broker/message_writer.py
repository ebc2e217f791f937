"""Storing messages: what sending, retries, delays and replies have in common.

    put ─▶ Placement: in which topic and queue ─▶ Store.append ─▶ … the step ends … ─▶ Store.dispatch ─▶ long polls wake
    answer ─▶ now, or when the message is durable

Java: MessageStore.asyncPutMessage, GroupCommitService.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from kourou.broker.events import Outbox, Peer, Refused, ReplyFrames
from kourou.broker.placement import Candidate, Placement
from kourou.broker.settings import BrokerSettings
from kourou.protocol import frame, properties as _properties
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import LocalProtocolError
from kourou.store.appending import Appended
from kourou.store.commit_log import NewMessage
from kourou.store.durability import FLUSHED
from kourou.store.errors import DiskFailedError, DiskFullError, IllegalMessageError
from kourou.store.settings import StoreSettings
from kourou.store.store import Store

log = logging.getLogger(__name__)

_FLUSH_DISK_TIMEOUT = int(ResponseCode.FLUSH_DISK_TIMEOUT)
_FLUSH_SLAVE_TIMEOUT = int(ResponseCode.FLUSH_SLAVE_TIMEOUT)
_NOT_AVAILABLE = int(ResponseCode.SERVICE_NOT_AVAILABLE)
_LOST = "the message was stored and is lost: the disk failed, or another broker became master. Send it again"


@dataclass(slots=True, eq=False)
class Unsafe:
    """An answer that waits until its message is safe."""

    peer: Peer
    answer: Command


@dataclass(slots=True, eq=False)
class UnsafeFrames:
    """Answers of the fast lane that wait until their messages are safe."""

    peer: Peer
    frames: bytes
    count: int


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
        self.waiting = 0  # answers that wait
        self.failed = 0  # requests whose messages could not be stored

    @property
    def _waiting_max(self) -> int:
        return self._limits.waiting_sends_max

    def check_load(self) -> None:
        """Raises Refused when more answers wait than is good for anybody."""
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
        """How much room a message takes. Raises Refused with the reason."""
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
        """What is said of a message that can't be stored as it is."""
        return Refused(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
            f"{self._max_body_size}B, msg properties length limit 32KB. {reason}",
        )

    def answer(self, peer: Peer, request: Command, answer: Command, now_ms: int, *, wait: bool = True) -> None:
        """Answer now, or when all that was appended is durable."""
        if request.is_one_way:
            return
        durability = self._durability
        if durability.must_wait and wait:
            unsafe = Unsafe(peer, answer)
            if not durability.wait(durability.appended, unsafe, now_ms):
                self.waiting += 1
                return
        self._outbox.reply(peer, request, answer)

    def hold(self, peer: Peer, frames: bytes, count: int, now_ms: int) -> None:
        """Send these answers when all that was appended is durable."""
        unsafe = UnsafeFrames(peer, frames, count)
        self.waiting += count
        if self._durability.wait(self._durability.appended, unsafe, now_ms):
            self.now_safe(unsafe)

    def now_safe(self, unsafe: object) -> None:
        """A token that was given to the store comes back: its answer may leave."""
        if isinstance(unsafe, UnsafeFrames):
            self.waiting -= unsafe.count
            self._outbox.put(ReplyFrames(unsafe.peer, unsafe.frames, unsafe.count))
            return
        assert isinstance(unsafe, Unsafe)
        self.waiting -= 1
        self._outbox.reply(unsafe.peer, unsafe.answer, unsafe.answer)

    def now_late(self, unsafe: object, missing: str) -> None:
        """Its message is stored, and was not durable in time: a watermark is missing."""
        self._change(unsafe, _FLUSH_DISK_TIMEOUT if missing == FLUSHED else _FLUSH_SLAVE_TIMEOUT)

    def now_lost(self, unsafe: object) -> None:
        """Its message was cut from the log."""
        self._change(unsafe, _NOT_AVAILABLE, _LOST)

    def _change(self, unsafe: object, code: int, remark: str | None = None) -> None:
        if isinstance(unsafe, UnsafeFrames):
            self.waiting -= unsafe.count
            answers = frame.Decoder().feed(unsafe.frames)
        else:
            assert isinstance(unsafe, Unsafe)
            self.waiting -= 1
            answers = [unsafe.answer]
        for answer in answers:
            changed = msgspec.structs.replace(answer, code=code, remark=remark or answer.remark)
            self._outbox.reply(unsafe.peer, changed, changed)
