"""The expected content of a store: every acknowledged letter, at its acknowledged place, and no other messages.

A letter whose writer was killed before it could say so is in doubt. Whoever opens the store next settles it: from then
on it is there, or it never was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256

from .letters import ALL_TOPICS, AT_ONCE, HELD, NAME, SCHEDULE_TOPIC, Letter, Parcel

QUEUES = [
    *((topic, queue) for topic, count in ALL_TOPICS.items() for queue in range(count)),
    *((SCHEDULE_TOPIC, level - 1) for level in (AT_ONCE, HELD)),
]


@dataclass(frozen=True)
class Seen:
    """A stored message, from any reader."""

    topic: str
    queue: int
    offset: int
    physical: int
    size: int
    crc: int
    flag: int
    born: int
    stored: int
    digest: str
    """SHA-256 of the body as it was before compression."""
    properties: dict[str, str]

    @property
    def name(self) -> str:
        return self.properties[NAME]

    @property
    def unique(self) -> str:
        return self.properties["UNIQ_KEY"]

    @property
    def keys(self) -> list[str]:
        return self.properties.get("KEYS", "").split()

    def keys_but(self, lost: list[range]) -> list[str]:
        """All keys by which the index must know it, unless it is in a stretch of the log whose keys are lost."""
        return [] if any(self.physical in stretch for stretch in lost) else [self.unique, *self.keys]

    @property
    def place(self) -> tuple[str, int, int, int]:
        return self.topic, self.queue, self.offset, self.physical

    @property
    def stamp(self) -> tuple[object, ...]:
        """What may never change."""
        return self.place, self.size, self.crc, self.flag, self.born, self.stored, self.digest


@dataclass(frozen=True)
class QueueSeen:
    """A queue, read from its first message to its last."""

    min: int
    max: int
    messages: list[Seen]


class Ledger:
    """The books of one store, over all turns."""

    def __init__(self) -> None:
        self._letters: dict[str, Letter] = {}
        self._doubtful: set[str] = set()
        self._places: dict[str, tuple[str, int, int, int]] = {}
        self._stamps: dict[tuple[str, int, int, int], tuple[object, ...]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def begun(self, parcel: Parcel) -> None:
        """A client is about to write this."""
        self._letters.update((letter.name, letter) for letter in parcel)
        self._doubtful.update(letter.name for letter in parcel)

    def acknowledged(self, parcel: Parcel, first_offset: int, physical: Iterable[int]) -> None:
        """It is written, and said to be here."""
        for number, (letter, at) in enumerate(zip(parcel, physical, strict=True)):
            topic, queue = _queue_of(letter)
            self._places[letter.name] = topic, queue, first_offset + number, at
            self._doubtful.discard(letter.name)

    def check(self, queues: dict[tuple[str, int], QueueSeen]) -> None:
        """Everything is there, once, as it was; and nothing else."""
        found: set[str] = set()
        for (topic, queue), seen in queues.items():
            assert [message.offset for message in seen.messages] == list(range(seen.min, seen.max)), (topic, queue)
            for message in seen.messages:
                assert (message.topic, message.queue) == (topic, queue)
                if not self._is_delivery(message):
                    assert message.name not in found, f"{message.name} is there twice"
                    found.add(message.name)
                    self._check_place(message)
                self._check_content(message)
                # Messages that were seen once must remain, deliveries of delayed messages too.
                assert self._stamps.setdefault(message.place, message.stamp) == message.stamp
        places = {message.place for seen in queues.values() for message in seen.messages}
        assert self._places.keys() - found == set(), "acknowledged, and gone"
        assert self._stamps.keys() - places == set(), "seen before, and gone"
        for name in self._doubtful - found:
            del self._letters[name]  # it never was: may nobody find it later
        self._doubtful.clear()

    def undelivered(self, queues: dict[tuple[str, int], QueueSeen]) -> set[str]:
        """Delayed letters that were due at once, and are not in their own queue yet."""
        due = {name for name in self._places if self._letters[name].delay == AT_ONCE}
        messages = (message for seen in queues.values() for message in seen.messages)
        return due - {message.name for message in messages if self._is_delivery(message)}

    def _is_delivery(self, message: Seen) -> bool:
        """A delayed message is stored once more when its time comes; twice, if the broker was killed meanwhile."""
        return self._letters[message.name].delay == AT_ONCE and message.topic != SCHEDULE_TOPIC

    def _check_place(self, message: Seen) -> None:
        if message.name in self._doubtful:
            self._places[message.name] = message.place
        assert message.place == self._places[message.name], message.name

    def _check_content(self, message: Seen) -> None:
        letter = self._letters[message.name]
        assert message.digest == sha256(letter.body).hexdigest(), message.name
        assert message.flag == letter.flag, message.name
        assert letter.properties.items() <= message.properties.items(), message.name
        if message.topic == SCHEDULE_TOPIC:
            assert message.properties["REAL_TOPIC"] == letter.topic
            assert message.properties["REAL_QID"] == str(letter.queue)
        else:
            assert (message.topic, message.queue) == (letter.topic, letter.queue), message.name


def _queue_of(letter: Letter) -> tuple[str, int]:
    """Delayed messages wait in a topic of their own, in the queue of their level."""
    return (SCHEDULE_TOPIC, letter.delay - 1) if letter.delay else (letter.topic, letter.queue)


def by_time(messages: list[Seen], time_ms: int) -> tuple[int, int]:
    """The offsets of the first message at or after a time, and of the last at or before it."""
    first = messages[0].offset
    lower = sum(message.stored < time_ms for message in messages)
    upper = sum(message.stored <= time_ms for message in messages) - 1
    return first + lower, first + max(upper, 0)


def times_to_ask(messages: list[Seen], limit: int = 12) -> list[int]:
    """Some store times of a queue, first and last among them, and moments between and just around them."""
    stored = sorted({message.stored for message in messages})
    some = stored[:: max(1, len(stored) // limit)] + stored[-1:]
    return sorted({time_ms + step for time_ms in some for step in (-1, 0, 1)})
