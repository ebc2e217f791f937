"""Drafts -> brokers, with every acknowledgement awaited.

Messages without an order are sent in batches, each to one queue in turn; messages with an ordering key to the queue
that the key chooses; delayed messages one by one, because a batch can't be delayed. Many requests are in flight at a
time. A failed request is sent again, to another broker if it has no order to keep, until the time limit: so a message
may be stored twice, with the same unique key, and none is missing.
"""

import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final
from zlib import crc32

import msgspec

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError, KourouError, StoredButUnsafeError, refused
from kourou.protocol.hashes import java_hash
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster
from kourou.spark.errors import SparkError, UnreachableError
from kourou.spark.messages import BODY_SIZE_MAX, Draft, Drafts
from kourou.spark.pulling import Patience
from kourou.spark.wire import Link, connect, forget

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_SIZE: Final = 512 * 1024
BATCH_ROWS: Final = 1024
WINDOW: Final = 8
"""Requests of one task that await their answer."""

WAVE_SIZE: Final = 8 * 1024 * 1024
"""Bytes that are collected before they are sent."""


class Parcel(msgspec.Struct, gc=False):
    """One request: a batch or a single message, and its queue if that is fixed."""

    topic: str
    queue: int | None
    """The index of the topic's queue, by ordering key."""
    code: int
    flag: int
    body: bytes
    properties: str
    count: int


class Sent(msgspec.Struct):
    """The results of a task's messages."""

    messages: int = 0
    requests: int = 0
    unsafe: int = 0
    """Stored, but less durably than the broker promises: a replica or a disk was late."""
    repeated: int = 0


class UnderWay(msgspec.Struct, gc=False):
    """A request that awaits its answer."""

    link: Link
    number: int
    parcel: Parcel


def first_turn(write_id: str, part: int) -> int:
    """The queue with which a task begins.

    Micro-batches often need one request per task: with a fixed queue, a stream would fill one queue per task and leave
    the others empty. A repeated write begins with the same queue.
    """
    query, _, batch = write_id.rpartition("/")
    turn = int(batch) if query and batch.isascii() and batch.isdigit() else crc32(batch.encode())
    return crc32(query.encode()) + turn + part


class Sender:
    """Sends the messages of one task."""

    def __init__(self, cluster: Cluster, group: str, patience: Patience, turn: int = 0) -> None:
        self._cluster = cluster
        self._group = group
        self._patience = patience
        self._turn = turn  # which queue is next
        self._under_way: deque[UnderWay] = deque()
        self.sent = Sent()

    def send(self, drafts: Iterable[Draft]) -> None:
        """Returns when all are acknowledged. Raises SparkError, UnreachableError, OptionError."""
        wave: list[Draft] = []
        size = 0
        for draft in drafts:
            wave.append(draft)
            size += len(draft.body) + len(draft.properties)
            if size >= WAVE_SIZE:
                self.send_parcels(self._parcels(wave))
                wave, size = [], 0
        self.send_parcels(self._parcels(wave))
        self.finish()

    def send_parcels(self, parcels: Iterable[Parcel]) -> None:
        """The same for prepared requests; some may await their answers until `finish` returns."""
        for parcel in parcels:
            while len(self._under_way) >= WINDOW:
                self._settle()
            try:
                self._launch(parcel)
            except UnreachableError as error:
                self._again([], error, parcel)

    def finish(self) -> None:
        """Wait until all messages are acknowledged. Raises SparkError, UnreachableError, OptionError."""
        while self._under_way:
            self._settle()

    def _launch(self, parcel: Parcel) -> None:
        """Raises UnreachableError if it has to be sent again."""
        queue = self._queue(parcel)
        address = self._cluster.address(queue, master=True)
        try:
            link = connect(address, self._cluster.access)
            [number] = link.send(self._command(queue, parcel))
        except (OSError, FrameError) as error:
            raise self._lost(address, error) from None
        self._under_way.append(UnderWay(link, number, parcel))

    def _settle(self) -> None:
        """Take the answer to the oldest request."""
        failed, trouble = self._take()
        if trouble is not None:
            self._again(failed, trouble)

    def _take(self) -> tuple[list[Parcel], KourouError | None]:
        """The answer to the oldest request. Returns the failed requests, and why they failed."""
        oldest = self._under_way.popleft()
        try:
            refusal = self._acknowledged(oldest.parcel, oldest.link.answer(oldest.number))
        except (OSError, FrameError) as error:
            lost = [oldest, *(other for other in self._under_way if other.link is oldest.link)]
            self._under_way = deque(other for other in self._under_way if other.link is not oldest.link)
            return [one.parcel for one in lost], self._lost(oldest.link.address, error)
        except SparkError:
            for one in self._under_way:  # their answers are not needed
                forget(one.link.address, self._cluster.access)
            self._under_way.clear()
            raise
        return ([], None) if refusal is None else ([oldest.parcel], refusal)

    def _again(self, failed: list[Parcel], trouble: KourouError, *latest: Parcel) -> None:
        """Send these again, and other requests in flight that fail, in their order; wait for all of them."""
        while self._under_way:
            also, reason = self._take()
            failed += also
            trouble = reason or trouble
        failed += latest
        self._patience.wait(trouble)
        while failed:
            self.sent.repeated += sum(parcel.count for parcel in failed)
            failed = self._deliver(failed)
        self._patience.reset()

    def _lost(self, address: str, error: Exception) -> UnreachableError:
        forget(address, self._cluster.access)
        return UnreachableError(f"broker at {address}: {error or type(error).__name__}")

    def _parcels(self, wave: list[Draft]) -> Iterator[Parcel]:
        """Messages of the same topic and queue together, in the order of their rows."""
        self._cluster.routes(draft.topic for draft in wave)  # of many topics in one request
        together: dict[tuple[str, int | None], list[Draft]] = defaultdict(list)
        for draft in wave:
            queue = None
            if draft.ordering_key is not None:
                queues = len(self._cluster.route(draft.topic).writable)
                queue = abs(java_hash(draft.ordering_key)) % max(queues, 1)
            if draft.is_delayed:
                yield _single(draft, queue)
            else:
                together[draft.topic, queue].append(draft)
        for (topic, queue), drafts in together.items():
            yield from _batches(topic, queue, drafts)

    def _deliver(self, parcels: list[Parcel]) -> list[Parcel]:
        """Send these with new routes, each after the previous one is acknowledged. Returns the failed ones."""
        self._cluster.routes({parcel.topic for parcel in parcels}, fresh=True)
        failed: list[Parcel] = []
        trouble: KourouError | None = None
        for number, parcel in enumerate(parcels):
            try:
                self._launch(parcel)
                also, reason = self._take()
            except UnreachableError as error:
                also, reason = [parcel], error
            failed += also
            trouble = reason or trouble
            if isinstance(reason, UnreachableError):  # the request for the route may have taken long
                failed += parcels[number + 1 :]
                break
        if trouble is not None:
            self._patience.wait(trouble)
        return failed

    def _queue(self, parcel: Parcel) -> MessageQueue:
        queues = self._cluster.route(parcel.topic).writable
        if not queues:
            raise UnreachableError(f"topic {parcel.topic} has no queue that accepts messages now")
        if parcel.queue is not None:
            return queues[parcel.queue % len(queues)]
        self._turn += 1
        return queues[self._turn % len(queues)]

    def _acknowledged(self, parcel: Parcel, answer: Command) -> KourouError | None:
        """None if it is stored, an error if a retry may help. Raises SparkError otherwise."""
        if answer.code != ResponseCode.SUCCESS:
            error = refused(answer.code, answer.remark)
            if not isinstance(error, StoredButUnsafeError):
                if error.retriable:
                    return error
                raise SparkError(f"topic {parcel.topic}: the broker refuses a message: {error}")
            self.sent.unsafe += parcel.count
        self.sent.messages += parcel.count
        self.sent.requests += 1
        return None

    def _command(self, queue: MessageQueue, parcel: Parcel) -> Command:
        ext = {
            "a": self._group,
            "b": parcel.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue.queue_id),
            "f": "0",
            "g": str(time.time_ns() // 1_000_000),
            "h": str(parcel.flag),
            "i": parcel.properties,
            "j": "0",
            "k": "false",
            "m": "true" if parcel.code == RequestCode.SEND_BATCH_MESSAGE else "false",
            "n": queue.broker_name,
        }
        return Command(parcel.code, ext=ext, body=parcel.body)


def _single(draft: Draft, queue: int | None) -> Parcel:
    return Parcel(draft.topic, queue, RequestCode.SEND_MESSAGE_V2, draft.flag, draft.body, draft.properties, 1)


def _batches(topic: str, queue: int | None, drafts: list[Draft]) -> Iterator[Parcel]:
    """Batches of a size that suits brokers and networks."""
    entries: list[bytes] = []
    size = 0
    for draft in drafts:
        entry = draft.entry()
        if len(entry) > BODY_SIZE_MAX:  # too large for a batch, not for a message
            if entries:
                yield _batch(topic, queue, entries)
                entries, size = [], 0
            yield _single(draft, queue)
            continue
        if entries and (size + len(entry) > BATCH_SIZE or len(entries) >= BATCH_ROWS):
            yield _batch(topic, queue, entries)
            entries, size = [], 0
        entries.append(entry)
        size += len(entry)
    if entries:
        yield _batch(topic, queue, entries)


def _batch(topic: str, queue: int | None, entries: list[bytes]) -> Parcel:
    return batch_parcel(topic, queue, b"".join(entries), len(entries))


def batch_parcel(topic: str, queue: int | None, body: bytes, count: int) -> Parcel:
    return Parcel(topic, queue, RequestCode.SEND_BATCH_MESSAGE, 0, body, "WAIT\x01true\x02", count)


def quick_parcels(drafts: Drafts, batch: "pa.RecordBatch") -> Iterator[Parcel] | None:
    """The requests of an Arrow batch, by the compiled encoder; None for rows that it does not support.

    They equal the requests that `drafts` and a sender make of the same rows; each is made when it is needed.
    """
    given = drafts.usual_columns(batch)
    if given is None:
        return None
    try:
        from kourou.spark import _parcels
    except ImportError:
        return None
    if not all(column is None or _parcels.is_taken(column.type) for column in given):
        return None
    topic, prefix, number = drafts.identity
    encoder = _parcels.Encoder(*given, prefix.encode(), number)
    cuts = encoder.cut(BATCH_SIZE, BATCH_ROWS)
    if cuts is None:
        return None
    drafts.count(batch.num_rows)
    return (batch_parcel(topic, None, encoder.encode(first, end, size), end - first) for first, end, size in cuts)
