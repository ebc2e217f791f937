"""Random messages of all kinds, valid and invalid ones."""

from random import Random

from kourou.protocol.codes import SysFlag
from kourou.store.commit_log import NewMessage

TOPICS = ("orders", "payments", "%RETRY%billing", "überweisung", "t" * 200)
QUEUES = 3
V4 = bytes([127, 0, 0, 1, 0, 0, 195, 80])
V6 = bytes(range(16)) + b"\0\0\xc3\x50"

KINDS = (
    SysFlag(0),
    SysFlag(0),
    SysFlag(0),
    SysFlag(0),
    SysFlag.TRANSACTION_PREPARED,
    SysFlag.TRANSACTION_COMMIT,
    SysFlag.TRANSACTION_ROLLBACK,
)


class Messages:
    """Makes messages for a log with segments of `file_size` bytes."""

    def __init__(self, random: Random, file_size: int) -> None:
        self._random = random
        self._file_size = file_size
        self._topics = random.sample(TOPICS, random.randint(1, 4))
        self._number = 0

    def some(self, count: int, room: int) -> list[NewMessage]:
        """`count` messages; `room` is the rest of the current segment, and one may be made to fit it exactly."""
        made = [self.one() for _ in range(count)]
        if self._random.random() < 0.2:
            self._fit(made[0], room + self._random.randint(-2, 2))
        return made

    def one(self) -> NewMessage:
        random = self._random
        return NewMessage(
            topic=random.choice(self._topics),
            queue_id=random.randrange(QUEUES),
            body=self._body(),
            properties=self._properties(),
            born_ms=random.randrange(2**41),
            born_host=V6 if random.random() < 0.2 else V4,
            flag=random.choice((0, 0, 7)),
            sys_flag=int(random.choice(KINDS)),
            reconsume_times=random.choice((0, 0, 3)),
            prepared_offset=random.choice((0, 0, 123)),
        )

    def too_large(self) -> NewMessage:
        message = self.one()
        message.body = bytes(self._file_size)
        return message

    def _body(self) -> bytes:
        random = self._random
        size = random.choice((0, 1, random.randint(2, 60), random.randint(100, 600), random.randint(500, 1500)))
        return random.randbytes(size) if random.random() < 0.7 else bytes(size)

    def _properties(self) -> bytes:
        random = self._random
        self._number += 1
        pairs = [f"UNIQ_KEY\1{self._number:032X}"] if random.random() < 0.8 else []
        if random.random() < 0.4:
            keys = random.sample(("k1", "k2", "k3", "ключ", "same", "same"), random.randint(1, 3))
            pairs.append(f"KEYS\1{' '.join(keys)}")
        if random.random() < 0.4:
            pairs.append(f"TAGS\1{random.choice(('paid', 'new', 'größe'))}")
        if random.random() < 0.1:
            pairs.append("filler\1" + "x" * random.randint(1, 900))
        if random.random() < 0.1:
            pairs.append("zeros\1a" + "\0" * random.randint(1, 700))
        if random.random() < 0.05:
            pairs.append("DELAY\0013")
        random.shuffle(pairs)
        text = "\2".join(pairs)
        return (text + "\2" if pairs and random.random() < 0.7 else text).encode()

    def _fit(self, message: NewMessage, room: int) -> None:
        """A record whose size and the filler behind it are `room`, if that can be."""
        message.properties = b"TAGS\1paid\2"
        without_body = 91 + len(message.topic.encode()) + len(message.properties) + len(message.born_host) - 8
        without_body += len(message.topic.encode()) > 127
        size = room - 8 - without_body
        if 0 <= size <= 2000:
            message.body = self._random.randbytes(size)
