"""Messages for the tests of store files: of every kind that a log may hold, the same again for the same numbers.

Each carries its name in a property, so that whoever finds a record knows which message it must be. They come in
parcels, which are sent or appended together: most have one letter, some are batches.
"""

import random
from base64 import b64encode
from dataclasses import dataclass, field

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
NAME = "letter"

TOPICS = {"orders": 3, "payments": 1, "Audit_%trail-2": 2}
"""Topics and their number of queues."""

LONG_TOPIC = f"%RETRY%{'g' * 130}"
"""More than 127 bytes: its records have the other magic. No client may send to it, a broker may."""

ALL_TOPICS = {**TOPICS, LONG_TOPIC: 1}

AT_ONCE, HELD = 1, 18
"""Delay levels: of a second, and of two hours."""

BIG_BODY_SIZE = 110_000
TEXTS = ("plain", "naïve café", "订单已付款", "заказ", "🚀 to orbit")


@dataclass(frozen=True)
class Letter:
    """A message, before anyone has stored it."""

    name: str
    topic: str
    queue: int
    body: bytes
    tags: str | None = None
    keys: tuple[str, ...] = ()
    flag: int = 0
    delay: int = 0
    more: dict[str, str] = field(default_factory=dict)

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the sender sets; clients and brokers add others."""
        properties = {NAME: self.name, **self.more}
        if self.keys:
            properties["KEYS"] = " ".join(self.keys)
        if self.tags is not None:
            properties["TAGS"] = self.tags
        return properties

    def as_json(self) -> dict[str, object]:
        """For the Java driver."""
        return {
            "tags": self.tags,
            "keys": self.keys,
            "flag": self.flag,
            "delay": self.delay,
            "properties": {NAME: self.name, **self.more},
            "body": b64encode(self.body).decode(),
        }


Parcel = list[Letter]


def parcels(turn: int, count: int, *, long_topic: bool) -> list[Parcel]:
    """About `count` letters of one turn. Those to the long topic are not sent by clients."""
    made: list[Parcel] = []
    number = 0
    while number < count:
        dice = random.Random(f"{turn}/{number}")
        topic = dice.choice(list(ALL_TOPICS if long_topic else TOPICS))
        queue = dice.randrange(ALL_TOPICS[topic])
        size = dice.randint(2, 12) if dice.random() < 0.05 else 1
        parcel = [_letter(dice, f"{turn}-{number + n}", topic, queue, alone=size == 1) for n in range(size)]
        made.append(parcel)
        number += size
    return made


def _letter(dice: random.Random, name: str, topic: str, queue: int, alone: bool) -> Letter:
    text = dice.choice(TEXTS)
    body = f"{text} {name}".encode() * dice.randint(1, 40)
    kind = dice.random()
    if alone and kind < 0.01:
        body = dice.randbytes(BIG_BODY_SIZE)
    elif alone and kind < 0.02:
        body *= 100  # long enough to be compressed, and worth it
    elif kind < 0.04:
        body = dice.randbytes(1)
    return Letter(
        name=name,
        topic=topic,
        queue=queue,
        body=body,
        tags=dice.choice((None, "paid", "已付款", text.split()[0])),
        keys=dice.choice(((), (f"id-{name}",), (f"id-{name}", f"客户-{dice.randrange(100)}"))),
        flag=dice.choice((0, 0, 7, -1)),
        delay=dice.choice((AT_ONCE, HELD)) if alone and dice.random() < 0.01 else 0,
        more={"origin": text, "with blanks": " a  b "} if dice.random() < 0.3 else {},
    )
