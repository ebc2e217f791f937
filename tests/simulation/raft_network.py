"""A network that loses, delays, repeats and reorders messages, and that falls apart, also in one direction only."""

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

import msgspec

from kourou.raft.messages import Message
from kourou.raft.wire import Decoder, Hello, encode

if TYPE_CHECKING:
    from .raft_world import World


class Network:
    """See the module's text."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self.loss = random.choice((0.0, 0.0, 0.01, 0.1, 0.25))
        self.repeat = random.choice((0.0, 0.0, 0.05, 0.2))
        self.delay_ms = random.choice((1.0, 3.0, 10.0, 30.0))
        self.is_ordered = random.random() < 0.3  # as one TCP connection has it
        self.is_wire = random.random() < 0.1
        self._last: dict[tuple[str, str], float] = {}
        self._cut: set[tuple[str, str]] = set()
        self.sent = 0

    def send(self, sender: str, receiver: str, message: Message, data: bytes = b"") -> None:
        random = self._random
        message = self._travel(message, data)
        self.sent += 1
        if (sender, receiver) in self._cut or random.random() < self.loss:
            return
        self._deliver(sender, receiver, message)
        if random.random() < self.repeat:
            self._deliver(sender, receiver, message)

    def _travel(self, message: Message, data: bytes) -> Message:
        """As it arrives; in some lives by its bytes."""
        if self.is_wire:
            (arrived,) = Decoder().feed(encode(message, len(data)) + data)
            assert not isinstance(arrived, Hello)
            return arrived
        if data:
            message = msgspec.structs.replace(message, data=data)
        return message

    def _deliver(self, sender: str, receiver: str, message: Message) -> None:
        random, world = self._random, self._world
        delay_ms = random.expovariate(1.0) * self.delay_ms
        if not self.is_ordered and random.random() < 0.02:
            delay_ms += random.random() * 500
        when_ms = world.now_ms + delay_ms
        if self.is_ordered:
            when_ms = self._last[sender, receiver] = max(when_ms, self._last.get((sender, receiver), 0.0))
        world.at(when_ms, self._arrive, sender, receiver, message)

    def _arrive(self, sender: str, receiver: str, message: Message) -> None:
        if (sender, receiver) not in self._cut:
            self._world.members[receiver].receive(message)

    # ── Partitions ────────────────────────────────────────────────────────────────────────────────────────────────

    def split(self, names: list[str]) -> str:
        """Fall apart in some way; says how."""
        random = self._random
        some = random.sample(names, random.randint(1, max(1, len(names) // 2)))
        others = [name for name in names if name not in some]
        kind = random.choice(("both ways", "out only", "in only", "one link"))
        if kind == "one link" and others:
            some, others = some[:1], [random.choice(others)]
        pairs = [(one, other) for one in some for other in others]
        if kind != "in only":
            self._cut.update(pairs)
        if kind != "out only":
            self._cut.update((other, one) for one, other in pairs)
        return f"{kind}: {some} and {others}"

    def isolate(self, name: str, others: Iterable[str]) -> None:
        for other in others:
            self._cut |= {(name, other), (other, name)}

    def become_good(self) -> None:
        """As in a data centre on a good day."""
        self.heal()
        self.loss, self.repeat, self.delay_ms, self.is_ordered = 0.0, 0.0, 1.0, True

    def heal(self) -> None:
        self._cut.clear()
