"""Two brokers that get the same bytes: one serves them in the fast lane as far as that goes, the other never does."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kourou.broker.events import Close, Effect, Gone, Peer, Reply, ReplyFrames, ReplyParts, Requests, Tell
from kourou.broker.settings import BrokerSettings
from kourou.protocol import frame
from kourou.protocol.command import encode_head
from kourou.protocol.frame import Decoder
from kourou.protocol.hosts import encode_host
from kourou.store.settings import StoreSettings
from kourou.testing.broker import ROOT, SMALL_STORE, SimulatedBroker
from kourou.testing.disk import SimulatedDisk


@dataclass(eq=False)
class Wire:
    """A connection: what came and went over it, as bytes."""

    decoder: Decoder = field(default_factory=Decoder)
    sent: bytearray = field(default_factory=bytearray)
    closed: list[str] = field(default_factory=list)
    steps_back: bool = False  # since the last read: the peer reads in bulk
    answers: dict[int, Any] = field(default_factory=dict)  # these three are what a simulated broker looks for
    told: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)


class World(SimulatedBroker):
    """A broker whose answers are kept as bytes."""

    def __init__(self, *, fast: bool, settings: BrokerSettings, store_settings: StoreSettings = SMALL_STORE) -> None:
        self._fast = fast
        self.taken = 0  # bytes that the lane has served
        super().__init__(SimulatedDisk(Random(1)), settings, store_settings, chance=Random(7))
        self.peers = [
            Peer(address, encode_host(address), Wire())
            for address in ("127.0.0.1:1001", "127.0.0.2:1002", "[2001:db8::1]:1003")
        ]

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(peer, command) | Tell(peer, command):
                    peer.link.sent += frame.encode(command)
                case ReplyParts(peer, command, parts, size, is_bulk):
                    peer.link.sent += b"".join((encode_head(command, size), *parts))
                    peer.link.steps_back |= is_bulk
                case ReplyFrames(peer, frames):
                    peer.link.sent += frames
                case Close(peer, reason):
                    peer.link.closed.append(reason)
        super()._perform(effects)

    def read(self, number: int, data: bytes) -> None:
        """A read on a connection brought these bytes: what a driver does then."""
        peer = self.peers[number]
        wire: Wire = peer.link
        wire.steps_back = False
        lane = self.machine.lane if self._fast else None
        data = wire.decoder.join(data)
        used = 0
        if lane is not None:
            used, answers, held, count, is_bulk = lane.serve(peer, data, self.now_ms)
            wire.steps_back |= is_bulk
            self.taken += used
            wire.sent += answers
            if count:
                self.machine.writer.hold(peer, held, count, self.now_ms)
        commands = wire.decoder.decode(data[used:])
        if commands:
            self.step(Requests(peer, commands))
        if used:
            self._perform(self.machine.end_read(self.now_ms))
            if not self.lazy:
                self.work()

    def lose(self, number: int) -> None:
        """A connection is lost, and made again."""
        peer = self.peers[number]
        self.step(Gone(peer))
        self.peers[number] = Peer(peer.address, peer.host, Wire(sent=peer.link.sent))

    # ── What must be the same ─────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, object]:
        machine, store = self.machine, self.store
        segments = store.log.segments
        offsets, index = machine.offsets, ROOT / "index"
        return {
            "answers": [bytes(peer.link.sent) for peer in self.peers],
            "errors": [str(peer.link.decoder.error) for peer in self.peers],
            "closed": [peer.link.closed for peer in self.peers],
            "in bulk": [peer.link.steps_back for peer in self.peers],
            "log": [bytes(segments.file(start).buffer) for start in segments.starts],
            "log ends": (store.log.end, store.log.flushed, store.log.stored_ms, store.dispatched),
            "queues": {name: self._entries(*name) for name in store.queues.names()},
            "index": {name: self.disk.read_at(index / name, 0, size) for name, size in self.disk.files(index).items()},
            "offsets": (offsets.table, offsets.pulled, offsets._reset),
            "stats": _counts(machine.stats),
            "topics": machine.topics.table,
            "groups": machine.groups.table,
            "waiting": (
                machine.pull.polls.waiting,
                machine.writer.waiting,
                machine.writer.failed,
                machine.writer.touched,
            ),
        }

    def _entries(self, topic: str, queue_id: int) -> tuple[int, int, int, bytes]:
        queue = self.store.queues.ensure(topic, queue_id)
        entries, at = b"", queue.start
        while at < queue.end:
            piece = bytes(queue.entries(at, queue.end - at))
            entries += piece
            at += len(piece) // 20
        return queue.start, queue.end, queue.next_offset, entries


def _counts(stats: Any) -> dict[str, object]:
    tables = {name: getattr(stats, name) for name in ("topics", "groups", "sent_back")}
    single = {name: getattr(stats, name) for name in ("puts", "gets", "user_puts", "user_gets")}
    return {
        **{name: {key: _item(item) for key, item in table.items()} for name, table in tables.items()},
        **{name: _item(item) for name, item in single.items()},
        "reads": (stats.found, stats.missed),
    }


def _item(item: Any) -> tuple[int, int, int]:
    return item.count, item.size, item.calls


class Twins:
    """Both, side by side."""

    def __init__(
        self,
        settings: dict[str, Any] | None = None,
        store_settings: StoreSettings = SMALL_STORE,
        *,
        check: bool = False,
    ) -> None:
        """`check`: records are not trusted to be as they were written."""
        self.general, self.fast = (
            World(fast=fast, settings=BrokerSettings(**(settings or {})), store_settings=store_settings)
            for fast in (False, True)
        )
        if check:
            for world in self.worlds:
                world.store.reader.written_from = 2**60

    @property
    def worlds(self) -> tuple[World, World]:
        return self.general, self.fast

    def read(self, data: bytes, number: int = 0) -> int:
        """Both get these bytes in one read: how many the lane has taken."""
        before = self.fast.taken
        for world in self.worlds:
            world.read(number, data)
        return self.fast.taken - before

    def tick(self, ms: int) -> None:
        for world in self.worlds:
            world.tick(ms)

    def lose(self, number: int) -> None:
        for world in self.worlds:
            world.lose(number)

    def compare(self) -> None:
        one, other = (world.state() for world in self.worlds)
        for name, expected in one.items():
            assert other[name] == expected, name
