"""Queue and index files against the real classes: the same bytes, and each side goes on where the other stopped."""

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from kourou.store.consume_queue import Boundary, ConsumeQueue, Put
from kourou.store.consume_queue_ext import ConsumeQueueExt, Unit
from kourou.store.disk import RealDisk
from kourou.store.index import Index

from .queue_files import RECORDING, Java, Line, Sizes, record, tree
from .worlds import needed

pytestmark = pytest.mark.interop

# More queue entries in a file than a search reads at once.
SIZES = Sizes(queue_entries=300, ext_size=256, slots=8, index_entries=100)
FOREVER = 2**63 - 1
KEYS = ["a", "b", "42", "schlüssel", "鍵", "🔑", "adpempfw", "x" * 100]  # with a hash of -2**31 among them


class Ours:
    """Runs the same scripts with our classes."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder = folder
        self._disk = RealDisk(aside)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._index = Index(
            self._disk, folder / "index", SIZES.slots, SIZES.index_entries, lambda ms: "20250101000000000"
        )
        self._index.load()
        self._ext = ConsumeQueueExt(self._disk, folder / "consumequeue_ext" / "Topic" / "0", SIZES.ext_size)
        self._ext.open(0)
        self._times: dict[int, int] = {}

    def run(self, lines: Sequence[Line]) -> list[str]:
        return [answer for line in lines if (answer := self._answer(line)) is not None]

    def _answer(self, line: Line) -> str | None:
        match line:
            case ("put", str(topic), int(queue_id), int(offset), int(size), int(tags), int(queue_offset)):
                assert self._queue(topic, queue_id, 0).put(offset, size, tags, queue_offset) == Put.DONE
                return None
            case ("queue", str(topic), int(queue_id), int(log_start)):
                queue = self._queue(topic, queue_id, log_start)
                queue.expire(log_start)
                entries = (queue.entry(n) for n in range(queue.start, queue.end))
                head = f"{queue.start} {queue.end} {queue.max_physical}"
                return " ".join([head, *(",".join(map(str, entry)) for entry in entries)])
            case ("stored", int(offset), int(stored_ms)):
                self._times[offset] = stored_ms
                return None
            case ("time", str(topic), int(queue_id), int(log_start), int(time_ms), str(boundary)):
                queue = self._queue(topic, queue_id, log_start)
                queue.expire(log_start)
                return str(queue.offset_by_time(time_ms, Boundary(boundary), lambda offset, size: self._times[offset]))
            case ("key", str(text), int(offset), int(stored_ms)):
                topic, key = text.split("#", 1)
                self._index.put(topic.encode(), key.encode(), offset, stored_ms)
                return None
            case ("find", str(text), int(limit), int(begin_ms), int(end_ms)):
                topic, key = text.split("#", 1)
                return " ".join(["found", *map(str, self._index.query(topic, key, limit, begin_ms, end_ms).offsets)])
            case ("ext", int(tags), int(stored_ms), str(bit_map)):
                return str(self._ext.append(Unit(tags, stored_ms, bytes.fromhex(bit_map))))
            case ("unit", int(address)):
                unit = self._ext.read(address)
                return f"{unit.tags_code} {unit.stored_ms} {unit.bit_map.hex()}" if unit is not None else "none"
        raise AssertionError(line)

    def _queue(self, topic: str, queue_id: int, log_start: int) -> ConsumeQueue:
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            folder = self._folder / "consumequeue" / topic / str(queue_id)
            queue = self._queues[topic, queue_id] = ConsumeQueue(
                self._disk, folder, topic, queue_id, SIZES.queue_entries
            )
            queue.open(log_start)
        return queue


def writes(random: Random) -> list[Line]:
    """What happens to queues, index and extension, in the order of a log; queue 1 begins late, in a later file."""
    lines: list[Line] = []
    ends = [0, SIZES.queue_entries + 13, 0]
    offset, stored_ms = 0, 1_700_000_000_000
    for _ in range(1500):
        size = random.randrange(91, 5000)
        stored_ms += random.choice((0, 0, 1, 400, 1500, 100_000))
        queue_id = random.choice((0, 0, 1, 2))
        tags = random.choice((0, 1, -1, random.randrange(-(2**31), 2**31)))
        lines.append(("stored", offset, stored_ms))
        lines.append(("put", "Topic", queue_id, offset, size, tags, ends[queue_id]))
        ends[queue_id] += 1
        if random.random() < 0.3:
            lines.append(("key", f"Topic#{random.choice(KEYS)}", offset, stored_ms))
        if random.random() < 0.3:
            lines.append(("ext", tags, stored_ms, random.randbytes(random.choice((0, 1, 8, 40))).hex()))
        offset += size
    return lines


def questions(lines: Sequence[Line]) -> list[Line]:
    """All that can be asked after these writes."""
    last_ms = max(int(line[3]) for line in lines if line[0] == "key")
    first_ms = min(int(line[3]) for line in lines if line[0] == "key")
    middle_ms = (first_ms + last_ms) // 2
    log_end = max(int(line[3]) + int(line[4]) for line in lines if line[0] == "put")
    asked: list[Line] = [("queue", "Topic", queue_id, log_end // 20) for queue_id in range(3)]
    for key in [*KEYS, "nobody"]:
        text = f"Topic#{key}"
        asked += [
            ("find", text, 1000, 0, FOREVER),
            ("find", text, 3, 0, FOREVER),
            ("find", text, 9, middle_ms, FOREVER),
        ]
        asked += [
            ("find", text, 1000, first_ms, middle_ms),
            ("find", text, 9, 0, 1),
            ("find", text, 9, last_ms, last_ms),
        ]
    return asked


def times(random: Random, lines: Sequence[Line]) -> list[Line]:
    """Which offsets do the times of messages stand for, those around them, and those beyond; with a log cut or not."""
    asked: list[Line] = []
    stored = [int(line[2]) for line in lines if line[0] == "stored"]
    log_end = max(int(line[1]) for line in lines if line[0] == "stored")
    for log_start in (0, log_end // 3, log_end // 2):
        for time_ms in [0, stored[0] - 1, stored[0], stored[-1], stored[-1] + 1, FOREVER, *random.sample(stored, 60)]:
            for off in (-1, 0, 1) if 0 < time_ms < FOREVER else (0,):
                for queue_id in range(3):
                    asked.append(("time", "Topic", queue_id, log_start, time_ms + off, "lower"))
                    asked.append(("time", "Topic", queue_id, log_start, time_ms + off, "upper"))
    return asked


def addresses(answers: Sequence[str]) -> list[Line]:
    return [("unit", int(answer)) for answer in answers]


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "home"
    home.mkdir()
    with needed():
        return Java(home)


def test_the_same_puts_leave_the_same_bytes(java: Java, tmp_path: Path) -> None:
    lines = writes(Random(1))
    theirs, mine = tmp_path / "theirs", tmp_path / "mine"
    asked = questions(lines)
    answers = java.run(theirs, SIZES, lines + asked)
    ours = Ours(mine, tmp_path / "aside")
    assert ours.run(lines + asked) == answers
    assert tree(mine) == tree(theirs)
    assert len(tree(mine)) > 15, "files were rolled"
    # And read back by a second look at the files of the other side.
    units = addresses(answers[: -len(asked)])
    assert Ours(theirs, tmp_path / "aside").run(asked + units) == ours.run(asked + units)
    assert java.run(mine, SIZES, asked + units) == ours.run(asked + units)


def test_times_stand_for_the_same_offsets(java: Java, tmp_path: Path) -> None:
    lines = [line for line in writes(Random(3)) if line[0] in ("put", "stored")]
    asked = times(Random(4), lines)
    theirs = java.run(tmp_path / "theirs", SIZES, lines + asked)
    ours = Ours(tmp_path / "mine", tmp_path / "aside").run(lines + asked)
    assert [(line, answer) for line, answer in zip(asked, ours, strict=True)] == list(zip(asked, theirs, strict=True))


def test_either_side_goes_on_where_the_other_stopped(java: Java, tmp_path: Path) -> None:
    lines = writes(Random(2))
    asked = questions(lines)
    third = len(lines) // 3
    whole, shared = tmp_path / "whole", tmp_path / "shared"
    expected = Ours(whole, tmp_path / "aside").run(lines + asked)
    answers = Ours(shared, tmp_path / "aside").run(lines[:third])
    answers += java.run(shared, SIZES, lines[third : 2 * third])
    answers += Ours(shared, tmp_path / "aside").run(lines[2 * third :] + asked)
    assert answers == expected
    assert tree(shared) == tree(whole)


def test_the_recording_is_what_the_classes_write(java: Java) -> None:
    assert record(java) == json.loads(RECORDING.read_text())
