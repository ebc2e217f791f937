"""Three brokers that are one Raft group, in one process, on loopback."""

import asyncio
import socket
from collections import defaultdict
from pathlib import Path

import pytest
from tests.waiting import POLL_S, eventually

import kourou
from kourou.broker.events import Effect, Event, GroupLink
from kourou.broker.settings import Role
from kourou.embedded import Embedded, EmbeddedBroker
from kourou.protocol.errors import KourouError
from kourou.raft.events import Appended
from kourou.server.conf import ConfError
from kourou.server.replication_figures import replication_figures
from kourou.store.errors import BadStoreError

QUICK: dict[str, object] = {}
TOPIC = "orders"


def log_of(broker: EmbeddedBroker) -> bytes:
    """The bytes of the log, up to its end."""
    log = broker.process.machine.store.log
    parts, at, size = [], log.start, log.segments.file_size
    while at < log.end:
        piece = min(log.end, at - at % size + size) - at
        parts.append(bytes(log.read(at, piece)))
        at += piece
    return b"".join(parts)


def running(group: Embedded) -> list[EmbeddedBroker]:
    return [broker for broker in group.brokers if broker.is_running]


async def are_equal(group: Embedded) -> None:
    """All members have the same log, committed and visible, and the same tables; no part has failed."""

    def machines() -> list[object]:
        return [
            (
                machine.store.log.end,
                machine.store.dispatched,
                machine.raft_group.raft.node.commit if machine.raft_group else -1,
                sorted(machine.topics.table),
                sorted(machine.groups.table),
                {name: dict(queues) for name, queues in machine.offsets.table.items()},
            )
            for machine in (broker.process.machine for broker in running(group))
        ]

    await eventually(lambda: len(found := machines()) > 0 and all(one == found[0] for one in found))
    logs = [log_of(broker) for broker in running(group)]
    assert all(log == logs[0] for log in logs)
    assert [broker.process.machine.faults for broker in running(group)] == [0] * len(logs)


async def led(group: Embedded) -> EmbeddedBroker:
    await eventually(lambda: group.leader is not None)
    assert group.leader is not None
    return group.leader


async def send_until_taken(mq: kourou.Client, body: bytes, topic: str = TOPIC) -> object:
    """Send a message again and again, as an application does that must not lose it."""
    while True:
        try:
            return await mq.send(topic, body)
        except KourouError:
            await asyncio.sleep(POLL_S)


async def bodies(mq: kourou.Client, count: int, group: str = "readers") -> list[tuple[int, int, bytes]]:
    found: dict[tuple[int, int], bytes] = {}
    async with mq.consume(TOPIC, group=group, start="first") as consumer:
        while len(found) < count:
            message = await consumer.next(timeout=30)
            assert message is not None
            async with message.process():
                found[message.queue.queue_id, message.queue_offset] = message.body
    return [(queue_id, offset, body) for (queue_id, offset), body in sorted(found.items())]


@pytest.mark.parametrize("mode", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_group_goes_on_without_its_leader_and_the_old_leader_returns(mode: str, tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties={**QUICK, "flushDiskType": mode}) as group:
        first = await led(group)
        assert first.process.machine.settings.role is Role.SYNC_MASTER
        assert sorted(broker.broker_id for broker in group.brokers if broker is not first) != [0, 0]
        async with kourou.connect(group.namesrv) as mq:
            for number in range(20):
                await mq.send(TOPIC, b"%d" % number)
            await are_equal(group)
            await first.stop()
            for number in range(20, 40):
                await send_until_taken(mq, b"%d" % number)
            second = await led(group)
            assert second is not first
            await first.start()
            await are_equal(group)
            assert first.broker_id > 0
            stored = await bodies(mq, 40)
            assert {body for _, _, body in stored} >= {b"%d" % number for number in range(40)}
            by_queue: dict[int, list[int]] = defaultdict(list)
            for queue_id, _, body in stored:
                by_queue[queue_id].append(int(body))
            assert all(numbers == sorted(numbers) for numbers in by_queue.values())


async def test_tables_are_those_of_the_group_after_a_fail_over(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties=QUICK) as group:
        first = await led(group)
        async with kourou.connect(group.namesrv) as mq:
            await mq.admin.topics.create("bills", cluster="DefaultCluster", queues=3)
            await mq.admin.topics.create("gone", cluster="DefaultCluster")
            await mq.admin.topics.delete("gone", cluster="DefaultCluster")
            for number in range(5):
                await mq.send(TOPIC, b"%d" % number)
            await bodies(mq, 5, group="billing")
            await are_equal(group)
            before = {name: dict(queues) for name, queues in first.process.machine.offsets.table.items()}
            assert sum(before[f"{TOPIC}@billing"].values()) == 5
            await first.stop()
            second = await led(group)
            machine = second.process.machine
            assert machine.topics.table["bills"].write_queue_nums == 3
            assert "gone" not in machine.topics.table
            assert "billing" in machine.groups.table
            assert sum(machine.offsets.table[f"{TOPIC}@billing"].values()) == 5


async def test_a_leader_without_a_majority_acknowledges_nothing_and_forgets_it(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties=QUICK) as group:
        first = await led(group)
        others = [broker for broker in group.brokers if broker is not first]
        async with kourou.connect(group.namesrv) as mq:
            await mq.send(TOPIC, b"kept")
            await are_equal(group)
            for broker in others:
                await broker.stop()
            with pytest.raises(KourouError):
                await mq.send(TOPIC, b"not acknowledged")
            await eventually(lambda: first.process.machine.settings.role is Role.SLAVE)
            await first.stop()
            for broker in others:
                await broker.start()
            await led(group)
            await send_until_taken(mq, b"after")
            await first.start()
            await are_equal(group)
            assert {b"kept", b"after"} <= {body for _, _, body in await bodies(mq, 2)}


async def test_a_follower_refuses_messages_and_strangers(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties=QUICK) as group:
        leader = await led(group)
        follower = next(broker for broker in group.brokers if broker is not leader)
        await eventually(lambda: not follower.process.machine.replication.may_be_read)  # it has heard of the leader
        address = follower.process.machine.settings.raft_peers.split(";")[follower.broker_id - 1].partition("-")[2]
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await eventually(lambda: _is_closed(stranger))
        async with kourou.connect(group.namesrv) as mq:
            await mq.send(TOPIC, b"still there")


async def test_bytes_after_an_append_that_failed_are_left_out(tmp_path: Path) -> None:
    """A full disk takes none of the first message of a step; the second one comes all the same."""
    async with Embedded(raft=1, store=tmp_path) as group:
        machine = (await led(group)).process.machine
        assert machine.raft_group is not None
        end = machine.store.log.end
        machine.raft_group._append(end + 100, b"later bytes", machine._now_ms)
        assert machine.store.log.end == end
        assert machine.raft_group._events == [Appended(end)]
        assert machine.faults == 0


async def test_copies_of_the_log_and_their_answers_take_the_short_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not ask all parts of the broker: with many senders, that would be most of what a message costs."""
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        leader = await led(group)
        await mq.send(TOPIC, b"makes the topic")
        await are_equal(group)
        short: dict[str, int] = {}
        for broker in group.brokers:
            count_short_steps(broker, short, monkeypatch)
        for number in range(50):
            await mq.send(TOPIC, b"%d" % number)
        assert short.keys() == {broker.process.machine.settings.raft_self for broker in group.brokers}
        assert leader.is_master


def count_short_steps(broker: EmbeddedBroker, counts: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the steps for messages of members in which not all parts are asked."""
    machine = broker.process.machine
    step, all_parts = machine.step, machine.registration.step
    asked: list[int] = []

    def counted(events: list[Event], now_ms: int) -> list[Effect]:
        asked.clear()
        effects = step(events, now_ms)
        if events and not asked and all(isinstance(event, GroupLink) for event in events):
            member = machine.settings.raft_self
            counts[member] = counts.get(member, 0) + 1
        return effects

    def noted(now_ms: int) -> None:
        asked.append(now_ms)
        all_parts(now_ms)

    monkeypatch.setattr(machine, "step", counted)
    monkeypatch.setattr(machine.registration, "step", noted)


async def test_figures_of_a_group(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path) as group:
        leader = await led(group)
        await are_equal(group)
        machine = leader.process.machine
        group_of = machine.raft_group
        assert group_of is not None
        await eventually(lambda: group_of.commit_lag == 0)  # a leader may write tables at any time
        figures = {one.name: [row for row in one.rows if row] for one in replication_figures(machine, 0)}
        term = figures["kourou_raft_term"][0][1]
        assert isinstance(term, int) and term >= 1
        assert figures["kourou_raft_has_leader"] == [((), 1.0)]
        assert figures["kourou_raft_commit_lag_bytes"] == [((), 0)]
        assert figures["kourou_raft_elections_total"] != [((), 0)]  # more than one on a busy machine
        assert [number for _, number in figures["kourou_raft_connected"]] == [1.0, 1.0]
        assert "kourou_replication_connected" not in figures


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_the_messages_of_a_plain_broker_found_a_group_only_if_that_is_wanted(tmp_path: Path) -> None:
    async with Embedded(store=tmp_path / "broker-a-n0") as broker, kourou.connect(broker.namesrv) as mq:
        await mq.send(TOPIC, b"old")
    with pytest.raises(BadStoreError, match="raftAdoptLog"):
        async with Embedded(raft=3, store=tmp_path, properties=QUICK):
            pass
    async with Embedded(raft=3, store=tmp_path, properties={**QUICK, "raftAdoptLog": True}) as group:
        await are_equal(group)
        async with kourou.connect(group.namesrv) as mq:
            assert [body for _, _, body in await bodies(mq, 1)] == [b"old"]


async def test_the_store_of_a_member_is_opened_only_by_a_member(tmp_path: Path) -> None:
    async with Embedded(raft=1, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        await mq.send(TOPIC, b"old")
    with pytest.raises(BadStoreError, match="enableDLegerCommitLog"):
        async with Embedded(store=tmp_path / "broker-a-n0"):
            pass
    async with Embedded(raft=1, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        assert [body for _, _, body in await bodies(mq, 1)] == [b"old"]


def test_a_group_of_two_is_refused() -> None:
    with pytest.raises(ConfError, match="A group of two would stop"):
        Embedded(raft=2)
