"""Apache's side of the store tests: a real broker on the directory, and a real client that asks it for everything."""

import json
import re
from pathlib import Path
from typing import Any

from tests.waiting import wait_for

from kourou.protocol.hosts import encode_host
from kourou.protocol.ids import decode_offset_id, encode_offset_id
from kourou.protocol.message import PhysicalOffset

from . import toolchain
from .ledger import QUEUES, Ledger, QueueSeen, Seen, by_time, times_to_ask
from .letters import Parcel
from .processes import Talker
from .servers import CLUSTER, ApacheBroker, java_command

_SEEN = ("topic", "queue", "offset", "physical", "size", "crc", "flag", "born", "stored", "digest", "properties")


class StoreClient:
    """Writes to one broker, and reads from it."""

    def __init__(self, name_servers: str, broker: ApacheBroker, home: Path) -> None:
        jars = toolchain.jars("server")
        classes = toolchain.classes("store", ["store"], jars)
        start = [*java_command("quiet.xml", home), "-Xmx256m", "-cp", f"{classes}:{jars}/*"]
        self._talker = Talker([*start, "StoreDriver", name_servers, CLUSTER, broker.name, broker.address], home)
        self._store_host = encode_host(broker.address)
        assert self._talker.line() == "ready"

    def stop(self) -> None:
        self._talker.stop()

    def ask(self, *command: object) -> Any:
        self._tell(*command)
        return self._answer()

    def _tell(self, *command: object) -> None:
        self._talker.tell(json.dumps(command))

    def _answer(self) -> Any:
        answer = json.loads(self._talker.line())
        assert not isinstance(answer, dict) or "error" not in answer, answer
        return answer

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def read_all(self) -> dict[tuple[str, int], QueueSeen]:
        """Every queue from its first message to its last."""
        return {(topic, queue): self._read_queue(topic, queue) for topic, queue in QUEUES}

    def _read_queue(self, topic: str, queue: int) -> QueueSeen:
        answer = self.ask("queue", topic, queue)
        messages = [Seen(**{name: message[name] for name in _SEEN}) for message in answer["messages"]]
        return QueueSeen(answer["min"], answer["max"], messages)

    def check_all_ways(self, queues: dict[tuple[str, int], QueueSeen], keys_lost: list[range]) -> None:
        """Every message is found by its id, its time, and once by its unique key and each of its keys."""
        for (topic, queue), seen in queues.items():
            for message in seen.messages:
                self._find(message, keys_lost)
            times = times_to_ask(seen.messages) if seen.messages else []
            answers = self.ask("search", topic, queue, times)
            assert [tuple(answer) for answer in answers] == [by_time(seen.messages, time_ms) for time_ms in times]

    def _find(self, message: Seen, keys_lost: list[range]) -> None:
        offset_id = encode_offset_id(self._store_host, PhysicalOffset(message.physical))
        window = (message.stored - 1000, message.stored + 1000)
        keys = message.keys_but(keys_lost)

        def is_found() -> bool:
            """By all of its keys: one that was delivered just now is in its queue before it is in the index."""
            found = self.ask("find", message.topic, offset_id, keys[:1], keys[1:], *window)
            assert found["id"] == message.physical, message.name
            assert len(found["keys"]) == len(keys)
            for key, offsets in zip(keys, found["keys"], strict=True):
                assert offsets.count(message.physical) <= 1, (message.name, key, offsets)
            return all(message.physical in offsets for offsets in found["keys"])

        wait_for(f"the keys of {message.name}", is_found)

    # ── Writing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, ledger: Ledger, parcel: Parcel) -> None:
        self._begin(ledger, parcel)
        self._note(ledger, parcel, self._answer())

    def send_while_dying(self, ledger: Ledger, parcels: list[Parcel], broker: ApacheBroker) -> int:
        """Kills the broker while it stores; how many parcels it has acknowledged."""
        for parcel in parcels:
            self._begin(ledger, parcel)
        answers = (json.loads(self._talker.line()) for _ in parcels)
        noted = 0
        for number, (parcel, answer) in enumerate(zip(parcels, answers, strict=True)):
            if "error" not in answer:
                self._note(ledger, parcel, answer)
                noted += 1
            if number == len(parcels) // 2:
                broker.kill()
        return noted

    def _begin(self, ledger: Ledger, parcel: Parcel) -> None:
        ledger.begun(parcel)
        self._tell("send", parcel[0].topic, parcel[0].queue, [letter.as_json() for letter in parcel])

    def _note(self, ledger: Ledger, parcel: Parcel, answer: dict[str, Any]) -> None:
        assert "error" not in answer, answer
        places = [decode_offset_id(text).offset for text in answer["offsetIds"].split(",")]
        ledger.acknowledged(parcel, answer["offset"], places)


# ── The broker and the index ────────────────────────────────────────────────────────────────────────────────────────


def index_ends(root: Path) -> dict[str, int]:
    """The files of the index, and the offset of the last record that each knows."""
    files = (root / "index").glob("*")
    return {file.name: int.from_bytes(file.read_bytes()[24:32]) for file in files}


def keys_lost(broker: ApacheBroker, ends: dict[str, int]) -> range:
    """The stretch of the log whose keys the broker has forgotten at its start, given the index that it found.

    After a kill it removes index files that were written to since the checkpoint, and enters again the records from
    the segment on in which its recovery begins. What is between is lost, in a directory of its own, too. The keys of
    the last record that is kept may be on both sides.
    """
    log = broker.log()
    begins = re.search(r"recover from this mapped file .*/(\d{20})", log)
    if begins is None:
        return range(0)
    kept = [end for name, end in ends.items() if re.search(rf"load index file OK, .*/{name}", log)]
    return range(max(kept, default=0), int(begins[1]))


# ── The broker's log about the files ────────────────────────────────────────────────────────────────────────────────

_LINE = re.compile(r"(?m)^\S+ (WARN |ERROR) (.*)")

HARMLESS = {
    r"No resource file with name": "no plug-in of that kind",
    r"Load default ": "and so the usual one",
    r"TransactionalMessageCheckService - ": "there are no transactions here",
    r"getConsumerGroupInfo failed": "a client came back before it was asked who it is",
    r"NETTY EVENT: remove not active channel": "a client has gone",
    r"auto-read is disabled": "a client reads more slowly than the broker answers",
    r"(?:spent|cost|elapsed) time ?\(ms\)|\bcost \d+ ?ms": "a busy machine or disk",
    r"Over index file capacity": "an index file is full",
    r"is full, trying to create another one": "and so it begins the next",
    r"caused by shutdown|possibly by shutdown": "it stops, as it was told",
    r"found a illegal magic code 0x0$": "what follows the last record is zero; it says so at every start",
    r"maxPhyOffsetOfConsumeQueue\((\d+)\) >= processOffset\(\1\), truncate": "queues end with the log",
    r"Unknown boundary type": "the last message before a time, and the queue begins after it",
    r"(?:FlushConsumeQueueService|main) - Offset not matched.* offset: (\d+), firstOffset: \d+, lastOffset: \1": (
        "the last file of a queue is full to the last entry; it says so at each flush until the next file begins"
    ),
}
"""Patterns of warnings that it also has about a directory of its own, or that are not about files; with the reason."""

NOTHING_THERE = "The commitlog files are deleted, and delete the consume queue files"


HALF_RECORD = "CRC check failed"
"""Its log line about a record whose writer was killed half-way, and that was not acknowledged."""


def complaints(broker: ApacheBroker, *, empty: bool, killed: bool) -> list[str]:
    """Unexpected warnings and errors in the broker's log.

    `empty`: it found no files at its start. `killed`: it wrote last, was killed, and may have left half a record.
    """
    found = [
        f"{level.strip()} {text}"
        for level, text in _LINE.findall(broker.log())
        if not any(re.search(pattern, text) for pattern in HARMLESS) and not (empty and NOTHING_THERE in text)
    ]
    halves = {text for text in found if HALF_RECORD in text}
    if killed and len(halves) == 1:  # said twice, if it is the first of its segment
        found = [text for text in found if text not in halves]
    return found
