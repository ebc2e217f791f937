"""Our side of the store tests: opens a directory, reads everything in every way, and writes letters.

As a program it writes until it is killed, with the threads that a broker has:

    python -m tests.interop.our_store DIRECTORY STORE_HOST TURN COUNT

and says `[first queue offset, [physical offset …]]` for each parcel once it is written.
"""

import json
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kourou.protocol.bodies import DataVersion, SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from kourou.protocol.bodies.groups import SubscriptionGroupConfig
from kourou.protocol.bodies.topics import TopicConfig
from kourou.protocol.compression import decompress
from kourou.protocol.hosts import encode_host
from kourou.protocol.ids import UniqueIds
from kourou.protocol.properties import encode
from kourou.protocol.record import decode_record
from kourou.store.commit_log import NewMessage
from kourou.store.consume_queue import Boundary
from kourou.store.disk import RealDisk
from kourou.store.metadata import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    FILTERS,
    GROUPS,
    ORDERS,
    TIMER_METRICS,
    TOPICS,
    TRANSACTION_METRICS,
    ConsumerOffsets,
    Kind,
    MetadataFile,
)
from kourou.store.offline import StoreFiles
from kourou.store.settings import StoreSettings
from kourou.store.store import Store
from kourou.store.verify import Verifier
from kourou.store.worker import Worker

from .ledger import QUEUES, Ledger, QueueSeen, Seen, by_time, times_to_ask
from .letters import ALL_TOPICS, SCHEDULE_TOPIC, Letter, Parcel, parcels

# Small files, so that each kind has several. Apache's broker is told the same sizes.
SETTINGS = StoreSettings(commit_log_file_size=1 << 20, queue_file_entries=100, index_slots=500, index_entries=2_000)
OTHER_SETTINGS = StoreSettings()
APACHE_SETTINGS = {
    "mappedFileSizeCommitLog": SETTINGS.commit_log_file_size,
    "mappedFileSizeConsumeQueue": SETTINGS.queue_file_entries * 20,
    "maxHashSlotNum": SETTINGS.index_slots,
    "maxIndexNum": SETTINGS.index_entries,
}

BORN_HOSTS = (encode_host("127.0.0.1:50000"), encode_host("[2001:db8::1]:50000"))
GROUP, GROUP_TOPIC = "billing", "payments"

T = TypeVar("T")


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def opened(root: Path, store_host: str, settings: StoreSettings | None = None) -> Iterator[Store]:
    """An open store; a block that ends well closes it, one that fails lets go of it.

    Where there is a log, settings have other sizes than its files: those that are there win.
    """
    settings = settings or (OTHER_SETTINGS if (root / "commitlog").exists() else SETTINGS)
    store = Store.open(root, settings, store_host=encode_host(store_host), now_ms=now_ms(), file_time=index_file_name)
    try:
        yield store
    except BaseException:
        store.abandon()
        raise
    store.close(now_ms())


def index_file_name(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms // 1000).astimezone():%Y%m%d%H%M%S}{time_ms % 1000:03}"


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_all(store: Store) -> dict[tuple[str, int], QueueSeen]:
    """Every queue from its first message to its last."""
    return {(topic, queue): _read_queue(store, topic, queue) for topic, queue in QUEUES}


def _read_queue(store: Store, topic: str, queue: int) -> QueueSeen:
    first, end = store.reader.offsets(topic, queue)
    messages: list[Seen] = []
    offset = first
    while offset < end:
        result = store.reader.get(topic, queue, offset, 32)
        assert result.records, f"{topic} {queue} at {offset}: {result.status}"
        messages += map(_seen, result.records)
        offset = result.next_offset
    return QueueSeen(first, end, messages)


def _seen(record: memoryview) -> Seen:
    stored = decode_record(record, crc=True)
    body = decompress(stored.body, stored.sys_flag)
    return Seen(
        topic=stored.topic,
        queue=stored.queue_id,
        offset=stored.queue_offset,
        physical=stored.physical_offset,
        size=stored.size,
        crc=stored.body_crc,
        flag=stored.flag,
        born=stored.born_ms,
        stored=stored.stored_ms,
        digest=sha256(body).hexdigest(),
        properties=stored.properties,
    )


def check_all_ways(store: Store, queues: dict[tuple[str, int], QueueSeen], keys_lost: list[range]) -> None:
    """Every message is found by its id, its time, and once by its unique key and each of its keys."""
    for (topic, queue), seen in queues.items():
        for message in seen.messages:
            by_id = store.reader.message_at(message.physical)
            assert by_id is not None and by_id.properties == message.properties
            for key in message.keys_but(keys_lost):
                found = store.reader.query(topic, key, 64, message.stored - 1000, message.stored + 1000).records
                assert [int(decode_record(record).physical_offset) for record in found].count(message.physical) == 1, (
                    key
                )
        for time_ms in times_to_ask(seen.messages) if seen.messages else ():
            bounds = (Boundary.LOWER, Boundary.UPPER)
            answers = tuple(store.reader.offset_by_time(topic, queue, time_ms, bound) for bound in bounds)
            assert answers == by_time(seen.messages, time_ms), (topic, queue, time_ms)


def doubled_entries(root: Path) -> list[str]:
    """Index entries of keys that their record has entered before. Our queries pass over them, Apache's do not."""
    found = Verifier(StoreFiles.at(root)).run()
    return [finding.text for finding in found.problems if "has it twice" in finding.text]


def index_entries(root: Path) -> set[tuple[int, int]]:
    """The hash of a key and the offset of a record, for all entries of all files of the index."""
    entries: set[tuple[int, int]] = set()
    for file in (root / "index").iterdir():
        content = file.read_bytes()
        count = int.from_bytes(content[36:40])  # begins at one: the first entry is never used
        first = 40 + SETTINGS.index_slots * 4
        found = struct.iter_unpack(">iqii", content[first + 20 : first + count * 20])
        entries.update((hash_, physical) for hash_, physical, _, _ in found)
    return entries


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Writer:
    """Makes records of letters as a broker does, and appends them."""

    store: Store

    def __post_init__(self) -> None:
        month = datetime.now().astimezone().replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        self._month_ms = int(month.timestamp() * 1000)
        self._ids = UniqueIds(socket.inet_aton("127.0.0.1"), pid=4711, process_hash=now_ms())

    def append(self, parcel: Parcel) -> tuple[int, list[int]]:
        """The queue offset of the first, and where in the log each is."""
        messages = [self._message(letter) for letter in parcel]
        done = self.store.append(messages, now_ms(), together=len(parcel) > 1)
        self.store.dispatch()
        return done[0].queue_offset, [appended.physical_offset for appended in done]

    def _message(self, letter: Letter) -> NewMessage:
        time_ms = now_ms()
        properties = {**letter.properties, "UNIQ_KEY": self._ids.next(time_ms, self._month_ms), "WAIT": "true"}
        topic, queue = letter.topic, letter.queue
        if letter.delay:
            properties |= {"DELAY": str(letter.delay), "REAL_TOPIC": topic, "REAL_QID": str(queue)}
            topic, queue = SCHEDULE_TOPIC, letter.delay - 1
        born_host = BORN_HOSTS[len(letter.body) % 2]
        return NewMessage(topic, queue, letter.body, encode(properties).encode(), time_ms, born_host, flag=letter.flag)


def write(store: Store, ledger: Ledger, turn: int, count: int) -> None:
    """One turn of ours that ends well."""
    writer = Writer(store)
    for parcel in parcels(turn, count, long_topic=True):
        ledger.begun(parcel)
        ledger.acknowledged(parcel, *writer.append(parcel))


def write_until_killed(root: Path, store_host: str, turn: int, count: int) -> None:
    with opened(root, store_host) as store:
        writer, worker = Writer(store), Worker()
        for parcel in parcels(turn, count, long_topic=True):
            print(json.dumps(writer.append(parcel)), flush=True)
            for job in store.jobs(now_ms()):
                worker.submit(job)
            for job in worker.finished():
                store.finished(job, now_ms())
        print("null", flush=True)
        sys.stdin.read()


# ── config/*.json ───────────────────────────────────────────────────────────────────────────────────────────────────


def add_topics(root: Path) -> None:
    """Enter all topics, as a broker does when a topic is created. Existing ones are kept."""
    file = _metadata(root, TOPICS)
    known = file.load() or TopicConfigSerializeWrapper()
    table = dict(known.topic_config_table)
    for topic, queues in ALL_TOPICS.items():
        table.setdefault(topic, TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues))
    version = DataVersion(counter=known.data_version.counter + 1, timestamp=now_ms())
    file.save(msgspec.structs.replace(known, topic_config_table=table, data_version=version))


def add_group(root: Path) -> None:
    """Enter the group."""
    file = _metadata(root, GROUPS)
    known = file.load() or SubscriptionGroupWrapper()
    table = {**known.subscription_group_table, GROUP: SubscriptionGroupConfig(group_name=GROUP)}
    version = DataVersion(counter=known.data_version.counter + 1, timestamp=now_ms())
    file.save(msgspec.structs.replace(known, subscription_group_table=table, data_version=version))


def commit_offset(root: Path, offset: int) -> None:
    """Say how far the group is in a queue."""
    file = _metadata(root, CONSUMER_OFFSETS)
    known = file.load() or ConsumerOffsets()
    table = {**known.offset_table, f"{GROUP_TOPIC}@{GROUP}": {0: offset}}
    file.save(msgspec.structs.replace(known, offset_table=table))


def committed_offset(root: Path) -> int:
    """How far the group is in that queue."""
    known = _metadata(root, CONSUMER_OFFSETS).load()
    assert known is not None
    return known.offset_table[f"{GROUP_TOPIC}@{GROUP}"][0]


def check_config(root: Path) -> None:
    """All files of metadata can be read."""
    topics = _metadata(root, TOPICS).load()
    assert topics is not None and ALL_TOPICS.keys() <= topics.topic_config_table.keys()
    kinds: tuple[Kind[Any], ...] = (GROUPS, DELAY_OFFSETS, TIMER_METRICS, FILTERS, ORDERS, TRANSACTION_METRICS)
    for kind in kinds:
        _metadata(root, kind).load()


def _metadata(root: Path, kind: Kind[T]) -> MetadataFile[T]:
    return MetadataFile(RealDisk(root / "kourou-aside"), root / "config", kind)


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
