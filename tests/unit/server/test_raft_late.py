"""Members of a Raft group whose log begins later than that of the group did."""

import os
from pathlib import Path

from tests.unit.server.test_raft_admin import newcomer
from tests.unit.server.test_raft_group import TOPIC, led, running, send_until_taken
from tests.waiting import eventually

import kourou
from kourou.broker.raft_reading import CHANGES, SNAPSHOTS
from kourou.embedded import Embedded, EmbeddedBroker
from kourou.raft.storage import GROUP_TOPIC
from kourou.store.retention import Decision

SMALL: dict[str, object] = {"mappedFileSizeCommitLog": 1 << 20}


async def fill(mq: kourou.Client, count: int = 30) -> None:
    for _ in range(count):
        await mq.send(TOPIC, os.urandom(100_000))


def remove_old_segments(group: Embedded) -> None:
    """As retention does."""
    for broker in running(group):
        store = broker.process.machine.store
        for path in store._cleaner._drop(Decision(1, "test")):
            path.unlink()
        store._cleaner._follow()


def first_change(broker: EmbeddedBroker) -> int:
    return broker.process.machine.store.reader.offsets(GROUP_TOPIC, CHANGES)[0]


async def are_tables_equal(group: Embedded, broker: EmbeddedBroker) -> None:
    def are() -> bool:
        leader = group.leader
        if leader is None:
            return False
        ours, theirs = broker.process.machine, leader.process.machine
        return (ours.topics.table, ours.groups.table) == (theirs.topics.table, theirs.groups.table)

    await eventually(are)


async def test_a_new_member_that_begins_with_a_later_segment_reads_the_tables_and_leads(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties=SMALL) as group, kourou.connect(group.namesrv) as mq:
        leader = await led(group)
        await mq.admin.topics.create("bills", cluster="DefaultCluster", queues=3)
        await fill(mq)
        written = leader.process.machine.store
        await eventually(lambda: written.reader.offsets(GROUP_TOPIC, SNAPSHOTS)[1] > 2)
        await fill(mq, 1)
        remove_old_segments(group)
        await mq.send(TOPIC, b"later")
        await eventually(lambda: first_change(leader) > 0)
        late, address = newcomer(group, tmp_path, 7)
        await late.start_with([group.namesrv])
        try:
            await mq.admin.raft.add(leader.address, "n7", address)
            machine = late.process.machine
            assert machine.store.log.start > 0
            await are_tables_equal(group, late)
            await eventually(lambda: not machine.is_busy)
            await mq.admin.raft.transfer(leader.address, "n7")
            await eventually(lambda: late.is_master)
            await send_until_taken(mq, b"taken by the new one")
            assert machine.topics.table["bills"].write_queue_nums == 3
            assert machine.faults == 0
        finally:
            await late.stop()


async def test_a_member_that_was_away_while_segments_were_removed_reads_the_tables_again(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path, properties=SMALL) as group, kourou.connect(group.namesrv) as mq:
        leader = await led(group)
        await mq.admin.topics.create("gone", cluster="DefaultCluster")
        away = next(broker for broker in group.brokers if broker is not leader)
        await are_tables_equal(group, away)
        await away.stop()
        await mq.admin.topics.delete("gone", cluster="DefaultCluster")
        await mq.admin.topics.create("bills", cluster="DefaultCluster", queues=3)
        await fill(mq)
        await eventually(lambda: leader.process.machine.store.reader.offsets(GROUP_TOPIC, SNAPSHOTS)[1] > 2)
        await fill(mq, 1)
        remove_old_segments(group)
        await mq.send(TOPIC, b"later")
        await away.start()
        machine = away.process.machine
        await eventually(lambda: machine.store.log.start > 0)
        await are_tables_equal(group, away)
        assert "gone" not in machine.topics.table
        assert machine.topics.table["bills"].write_queue_nums == 3
        assert machine.faults == 0
