"""Messages that tell by themselves whether they are whole: the body follows from the name."""

import hashlib

from kourou.protocol.record import StoredMessage
from kourou.store.commit_log import NewMessage

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
TOPICS = ("letters", "parcels")
QUEUES = 4


def letter(name: str) -> NewMessage:
    """The message of this name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8])
    return NewMessage(
        topic=TOPICS[number % len(TOPICS)],
        queue_id=number // 7 % QUEUES,
        body=body_of(name),
        properties=f"UNIQ_KEY\1{name}\2TAGS\1t{number % 3}\2".encode(),
        born_ms=1_700_000_000_000,
        born_host=HOST,
    )


def body_of(name: str) -> bytes:
    digest = hashlib.sha256(name.encode()).digest()
    return digest * (1 + int.from_bytes(digest[:2]) % 40)


def name_of(message: StoredMessage) -> str:
    """The name of a stored message, which is whole."""
    name = message.properties["UNIQ_KEY"]
    expected = letter(name)
    assert bytes(message.body) == expected.body, f"the body of {name} is another one"
    assert (message.topic, message.queue_id) == (expected.topic, expected.queue_id), f"{name} is elsewhere"
    assert bytes(message.raw_properties) == expected.properties, f"the properties of {name} are others"
    return name
