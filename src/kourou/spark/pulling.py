"""Ranges of queues -> Arrow batches, in a task.

While one answer is decoded, the next ones are already requested. If a broker disconnects, it is asked again, at its new
address if it has one, from the current offset: no row is lost or returned twice.
"""

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import (
    FrameError,
    KourouError,
    SubscriptionError,
    SubscriptionGroupNotExistError,
    refused,
)
from kourou.protocol.headers import PullMessageAnswer
from kourou.protocol.record import Scanner
from kourou.protocol.system_names import TOOLS_GROUP
from kourou.spark.cluster import Cluster
from kourou.spark.errors import DataLossError, OptionError, UnreachableError
from kourou.spark.planning import Range, Task
from kourou.spark.rows import FULL, STOPPED, RowBuilder
from kourou.spark.wire import FIRST_PAUSE_S, LONGEST_PAUSE_S, connect, forget

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

MESSAGES_MAX: Final = 1024
"""The most messages that a pull requests; brokers return fewer, 32 by default."""

AHEAD_MAX: Final = 16
"""Pulls that are in flight at a time, if their answers are small."""

AHEAD_SIZE: Final = 512 * 1024
"""The bytes that are in flight at a time, if answers are larger."""

LARGE_ANSWER: Final = 128 * 1024
"""Above this, answers are limited by their size, not by the number of messages."""

READING_GROUP: Final = TOOLS_GROUP
"""Every broker has this group, so a reader that stores its offsets elsewhere needs no group of its own."""


class Filter(msgspec.Struct, frozen=True):
    """Filters that brokers apply."""

    kind: str = "TAG"
    expression: str = "*"

    @property
    def is_all(self) -> bool:
        return self.kind == "TAG" and self.expression == "*"


class Patience:
    """The time limit for retries of an operation. It starts again with every success."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._sleep = sleep
        self.reset()

    def reset(self) -> None:
        self._end: float | None = None
        self._pause = FIRST_PAUSE_S

    def wait(self, error: Exception) -> None:
        """Pause before the next attempt. Raises `error` when the time is over."""
        now = self._clock()
        if self._end is None:
            self._end = now + self._seconds
        if now + self._pause > self._end:
            raise error
        self._sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)


class Puller:
    """Reads the ranges of one task."""

    def __init__(
        self,
        cluster: Cluster,
        rows: RowBuilder,
        wanted: Filter,
        *,
        group: str = READING_GROUP,
        fail_on_loss: bool = True,
        patience: Patience,
    ) -> None:
        self._cluster = cluster
        self._rows = rows
        self._wanted = wanted
        self._group = group
        self._fail_on_loss = fail_on_loss
        self._patience = patience

    def read(self, task: Task) -> Iterator["pa.RecordBatch"]:
        """Raises DataLossError, UnreachableError, RefusedError, OptionError."""
        for one in task:
            yield from self._read_range(one)
        if self._rows.rows:
            yield self._rows.finish()

    def _read_range(self, one: Range) -> Iterator["pa.RecordBatch"]:
        offset, fresh = one.start, False
        while offset < one.end:
            address = ""
            try:
                address = self._cluster.address(one.queue, fresh=fresh)
                for answer, records in self._answers(address, one, offset):
                    found = self._next_offset(one, offset, answer)
                    self._patience.reset()
                    if answer.code == ResponseCode.SUCCESS:
                        # Only records between the start of this pull and that of the next one: a record that
                        # the broker returns again is not another row.
                        self._rows.aim(one.queue.broker_name, offset, min(found, one.end))
                        yield from self._decode(records)
                    offset = found
            except (OSError, FrameError) as error:
                forget(address, self._cluster.access)
                self._patience.wait(UnreachableError(f"broker {one.queue.broker_name} at {address}: {error}"))
            except _GoneQueueError as error:
                if self._fail_on_loss:
                    raise
                log.warning("%s", error)
                return
            except KourouError as error:
                if not error.retriable:
                    raise
                try:
                    self._patience.wait(error)
                except _ShortQueueError:
                    if self._fail_on_loss:
                        raise
                    log.warning("%s", error)
                    return
            fresh = True

    def _answers(self, address: str, one: Range, offset: int) -> Iterator[tuple[Command, bytes | memoryview]]:
        """Answers from an offset on, one after another, each with its records, which are valid until the next answer.

        Apache's broker returns few messages at a time, so that a pull costs more than its messages. So several pulls
        are in flight: as long as each returns the requested number, the offset of the next one is known. If one returns
        fewer, those after it are discarded.
        """
        link = connect(address, self._cluster.access)
        waiting: deque[tuple[int, int]] = deque()  # the number of a request, and its offset
        following: int | None = offset
        stride, depth = 0, 1
        try:
            while following is not None and following < one.end:
                if not waiting or (len(waiting) <= depth // 2 and stride):
                    starts = self._starts_ahead(waiting, following, stride, depth, one.end)
                    numbers = link.send(*(self._request(one, start, stride) for start in starts))
                    waiting.extend(zip(numbers, starts, strict=True))
                number, start = waiting.popleft()
                answer, records = link.answer_in_place(number)
                following = _following(answer)
                if following is None or (waiting and waiting[0][1] != following):
                    link.ignore(number for number, _ in waiting)
                    waiting.clear()
                    stride, depth = 0, 1
                elif self._wanted.is_all:
                    stride = stride or _stride(following - start, len(records))
                    depth = min(depth * 2, AHEAD_MAX, max(AHEAD_SIZE // (len(records) + 1), 2))
                yield answer, records
        finally:
            if waiting:  # those answers are not needed
                forget(address, self._cluster.access)

    @staticmethod
    def _starts_ahead(
        waiting: "deque[tuple[int, int]]", following: int, stride: int, depth: int, end: int
    ) -> list[int]:
        """The offsets of the next requests."""
        if not stride:
            return [following]
        start = waiting[-1][1] + stride if waiting else following
        return list(range(start, end, stride))[: depth - len(waiting)]

    def _request(self, one: Range, offset: int, count: int = 0) -> Command:
        ext = {
            "consumerGroup": self._group,
            "topic": one.queue.topic,
            "queueId": str(one.queue.queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(min(one.end - offset, count or MESSAGES_MAX)),
            "sysFlag": _SYS_FLAG,
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": self._wanted.expression,
            "subVersion": "0",
            "expressionType": self._wanted.kind,
            "bname": one.queue.broker_name,
        }
        return Command(RequestCode.PULL_MESSAGE, ext=ext)

    def _next_offset(self, one: Range, offset: int, answer: Command) -> int:
        """The offset to continue from after an answer. Raises DataLossError for removed messages, RefusedError."""
        if answer.code == ResponseCode.SUCCESS and (following := _following(answer)) is not None and following > offset:
            return following
        if answer.code not in _PULL_CODES:
            raise _gone(one, offset, answer) or _refusal(answer)
        said = PullMessageAnswer.decode(answer.ext)
        if answer.code == ResponseCode.SUCCESS:
            raise _ShortQueueError(f"{_name(one)} returns no next offset after {offset}")
        if said.min_offset > offset:
            return self._lost(one, offset, min(said.min_offset, one.end))
        if said.max_offset < one.end:
            raise _ShortQueueError(
                f"{_name(one)} ends at offset {said.max_offset}, but {one.end} was planned: has the broker lost data?"
            )
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            raise _ShortQueueError(f"{_name(one)} has no message at offset {offset} yet")
        if self._wanted.is_all and said.next_begin_offset > offset:
            return self._lost(one, offset, min(said.next_begin_offset, one.end))
        if said.next_begin_offset <= offset:
            raise _ShortQueueError(f"{_name(one)} returns no next offset after {offset}")
        return said.next_begin_offset

    def _lost(self, one: Range, offset: int, following: int) -> int:
        text = (
            f"{_name(one)}: messages {offset} to {following - 1} have expired; expected offset {offset}, "
            f"but the first message is at {following}"
        )
        if self._fail_on_loss:
            raise DataLossError(
                f"{text}. They expired before they were read (failOnDataLoss=false continues without them)"
            )
        log.warning("%s", text)
        return following

    def _decode(self, records: bytes | memoryview) -> Iterator["pa.RecordBatch"]:
        scanner = Scanner(records)
        while (found := self._rows.fill(scanner, len(records))) == FULL:
            yield self._rows.finish()
        if found != STOPPED:
            raise DataLossError(f"the broker's answer contains invalid records: {scanner.reason}")


class _ShortQueueError(DataLossError):
    """A queue lacks messages that it had; they may return after a restart or a change of master."""

    retriable = True


class _GoneQueueError(DataLossError):
    """A queue that was planned is not read any more, because its topic has fewer read queues."""


_PULL_CODES: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)


_ILLEGAL_QUEUE: Final = re.compile(r"queueId\[\d+\] is illegal, .*readQueueNums:\[(\d+)\]")
"""What brokers answer to a pull from a queue that is not read."""

_SYS_FLAG: Final = str(int(PullSysFlag.SUBSCRIPTION | PullSysFlag.BULK))


def _stride(count: int, size: int) -> int:
    """How many messages to request after an answer with this number: fewer if larger messages would not fit."""
    return max(count * 3 // 4 if size > LARGE_ANSWER else count, 0)


def _following(answer: Command) -> int | None:
    """The offset of the next pull, if this one is valid."""
    if answer.code != ResponseCode.SUCCESS:
        return None
    text = (answer.ext or {}).get("nextBeginOffset", "")
    return int(text) if text.isascii() and text.isdigit() else None


def _gone(one: Range, offset: int, answer: Command) -> DataLossError | None:
    """The error if the topic got fewer read queues since the read was planned. Brokers serve the other queues only."""
    found = _ILLEGAL_QUEUE.match(answer.remark or "")
    if found is None:
        return None
    return _GoneQueueError(
        f"{_name(one)}: messages {offset} to {one.end - 1} were planned, but the topic has only {found[1]} read queues "
        "by now, and the broker does not serve the others. Set readQueueNums to "
        f"{one.queue.queue_id + 1} or more until they are read (kourou admin updateTopic -r), or start the query "
        "again without them (failOnDataLoss=false continues without them)"
    )


def _refusal(answer: Command) -> KourouError:
    error = refused(answer.code, answer.remark)
    if isinstance(error, SubscriptionGroupNotExistError):
        return OptionError(
            "the group of option group does not exist, and the broker does not create it automatically: create it "
            f"(kourou admin updateSubGroup), or leave the option out. The broker says: {_line(answer)}"
        )
    if isinstance(error, SubscriptionError) or "filter message by" in (answer.remark or ""):
        return OptionError(f"the broker refuses the filter: {_line(answer)}")
    return error


def _line(answer: Command) -> str:
    """The first line of a remark; Apache's others are links."""
    return (answer.remark or "").partition("\n")[0].rstrip(" ,")


def _name(one: Range) -> str:
    return f"topic {one.queue.topic}, broker {one.queue.broker_name}, queue {one.queue.queue_id}"
