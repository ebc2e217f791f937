"""Two brokers that get the same bytes: one serves them in the fast lane as far as that goes, the other never does."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

from kourou.broker.events import Close, Effect, Reply, ReplyFrames, ReplyParts, Tell
from kourou.broker.settings import BrokerSettings
from kourou.protocol import frame
from kourou.protocol.command import encode_head
from kourou.store.settings import StoreSettings
from kourou.testing.broker import ROOT, SMALL_STORE, SimulatedBroker, SimulatedClient
from kourou.testing.disk import SimulatedDisk


class Wire(SimulatedClient):
    """A connection: what came and went over it, as bytes."""

    def __init__(self, world: SimulatedBroker, address: str) -> None:
        super().__init__(world, address)
        self.sent = bytearray()  # by the broker
        self.reasons: list[str] = []  # why the broker ended the connection
        self.steps_back = False  # since the last read: the peer reads in bulk


class World(SimulatedBroker):
    """A broker whose answers are kept as bytes."""

    def __init__(self, *, fast: bool, settings: BrokerSettings, store_settings: StoreSettings = SMALL_STORE) -> None:
        super().__init__(SimulatedDisk(Random(1)), settings, store_settings, chance=Random(7), lane=fast)
        self.machine.meters.start(self.machine.outbox, self.machine.writer)
        self.wires = [Wire(self, address) for address in ("127.0.0.1:1001", "127.0.0.2:1002", "[2001:db8::1]:1003")]
        self.clients.extend(self.wires)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Reply(peer, command) | Tell(peer, command):
                    peer.link.sent += frame.encode(command)
                case ReplyParts(peer, command, parts, size, is_bulk):
                    peer.link.sent += b"".join((encode_head(command, size), *parts))
                    peer.link.steps_back |= is_bulk
                case ReplyFrames(peer, frames, _, is_bulk):
                    peer.link.sent += frames
                    peer.link.steps_back |= is_bulk
                case Close(peer, reason):
                    peer.link.reasons.append(reason)
        super()._perform(effects)

    def receive(self, number: int, data: bytes) -> None:
        """A read on a connection brought these bytes."""
        wire = self.wires[number]
        wire.steps_back = False
        wire.write(data)

    def lose(self, number: int) -> None:
        """A connection is lost, and made again."""
        before = self.wires[number]
        before.close()
        self.wires[number] = wire = Wire(self, before.peer.address)
        self.clients.append(wire)
        wire.sent = before.sent

    # ── What must be the same ─────────────────────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, object]:
        machine, store = self.machine, self.store
        segments = store.log.segments
        offsets, index = machine.offsets, ROOT / "index"
        if machine.lane is not None:
            machine.lane.hand_over(machine.meters)
        return {
            "answers": [bytes(wire.sent) for wire in self.wires],
            "errors": [str(wire.decoder.error) for wire in self.wires],
            "closed": [wire.reasons for wire in self.wires],
            "in bulk": [wire.steps_back for wire in self.wires],
            "log": [bytes(segments.file(start).buffer) for start in segments.starts],
            "log ends": (store.log.end, store.durability.flushed, store.log.stored_ms, store.dispatched),
            "queues": {name: self._entries(*name) for name in store.queues.names()},
            "index": {name: self.disk.read_at(index / name, 0, size) for name, size in self.disk.files(index).items()},
            "offsets": (offsets.table, offsets.pulled, offsets._reset),
            "stats": counts(machine.stats),
            "topics": machine.topics.table,
            "groups": machine.groups.table,
            "transactions": _transactions(machine.transactions),
            "waiting": (
                machine.pull.polls.waiting,
                machine.writer.waiting,
                machine.writer.failed,
            ),
        }

    def latencies(self) -> dict[tuple[str, str, str], int]:
        """How many requests were timed."""
        if self.machine.lane is not None:
            self.machine.lane.hand_over(self.machine.meters)
        found: Counter[tuple[str, str, str]] = Counter()
        for rpc, histogram in self.machine.meters.latencies.items():
            found[rpc.request, rpc.response, rpc.result] += sum(histogram.buckets)
        return dict(found)

    def _entries(self, topic: str, queue_id: int) -> tuple[int, int, int, bytes]:
        queue = self.store.queues.ensure(topic, queue_id)
        entries, at = b"", queue.start
        while at < queue.end:
            piece = bytes(queue.entries(at, queue.end - at))
            entries += piece
            at += len(piece) // 20
        return queue.start, queue.end, queue.next_offset, entries


def counts(stats: Any) -> dict[str, object]:
    tables = {name: getattr(stats, name) for name in ("topics", "groups", "sent_back")}
    single = {name: getattr(stats, name) for name in ("puts", "gets", "user_puts", "user_gets")}
    return {
        **{name: {key: _item(item) for key, item in table.items()} for name, table in tables.items()},
        **{name: _item(item) for name, item in single.items()},
        "reads": (stats.found, stats.missed),
        "traffic": dict(stats.traffic),
    }


def _transactions(transactions: Any) -> dict[str, object]:
    counts, halves = transactions.counts, transactions.halves
    ledger = halves.ledger
    return {
        "counts": (counts.open, counts.commits, counts.rollbacks, counts.latencies),
        "version": counts.wrapper().data_version,
        "ledger": (ledger.floor, ledger.position, ledger.safe_position, bytes(ledger._fates)),
        "ends": (list(halves.pending._offsets), halves.pending._size, halves.op_queue.position),
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
        before = self.fast.in_lane
        for world in self.worlds:
            world.receive(number, data)
        return self.fast.in_lane - before

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
