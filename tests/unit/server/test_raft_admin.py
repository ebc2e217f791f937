"""Administrators see and change a Raft group while it runs."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.server.test_raft_group import TOPIC, are_equal, bodies, led, running
from tests.waiting import eventually, wait_for
from typer.testing import CliRunner

import kourou
from kourou.cli.main import app
from kourou.client.admin.raft import LEADER_S
from kourou.embedded import Embedded, EmbeddedBroker, EmbeddedThread
from kourou.protocol.errors import KourouError, RefusedError
from kourou.server.cluster import Member, free_ports


def newcomer(group: Embedded, folder: Path, number: int, *, old_peers: bool = False) -> tuple[EmbeddedBroker, str]:
    """A broker that is to be the member n<number> of a group, and its address there."""
    like = group.brokers[0]
    address = f"127.0.0.1:{free_ports('127.0.0.1', 1)[0]}"
    settings = replace(
        like._configuration.broker,
        port=0,
        ha_port=0,
        raft_self=f"n{number}",
        raft_peers=f"{like._configuration.broker.raft_peers};n{number}-{address}",
        broker_id=number + 1,
    )
    configuration = replace(like._configuration, broker=settings)
    broker = EmbeddedBroker(Member("broker-a", number + 1, "RAFT"), configuration, folder / f"n{number}", "127.0.0.1")
    return broker, address


async def test_a_group_whose_members_were_changed_starts_again(tmp_path: Path) -> None:
    """The members remember their addresses, so they have to be the same."""
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        first = await led(group)
        status = await mq.admin.raft.status(first.address)
        other = next(one for one in status.members if one.id != status.leader)
        await mq.admin.raft.remove(first.address, other.id)
        await mq.admin.raft.add(first.address, other.id, other.address)
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        await led(group)
        await mq.send(TOPIC, b"again")


async def test_a_member_is_added_leads_and_another_one_is_removed(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        first = await led(group)
        for number in range(20):
            await mq.send(TOPIC, b"%d" % number)
        fourth, address = newcomer(group, tmp_path, 3)
        await fourth.start_with([group.namesrv])
        try:
            await mq.admin.raft.add(first.address, "n3", address, learner=True)
            status = await mq.admin.raft.status(first.address)
            assert [(one.id, one.voter) for one in status.members][-1] == ("n3", False)
            with pytest.raises(RefusedError, match="can't lead"):
                await mq.admin.raft.transfer(first.address, "n3")
            await mq.admin.raft.add(first.address, "n3", address)
            await mq.admin.raft.transfer(group.brokers[0].address, "n3")
            await eventually(lambda: fourth.is_master)
            assert [body for *_, body in sorted(await bodies(mq, 20), key=lambda one: int(one[2]))] == [
                b"%d" % number for number in range(20)
            ]
            _, status = await mq.admin.raft.leader(fourth.address)
            assert (status.leader, {one.id for one in status.members if one.voter}) == ("n3", {"n0", "n1", "n2", "n3"})
            with pytest.raises(RefusedError, match="transfer the leadership"):
                await mq.admin.raft.remove(fourth.address, "n3")
            await mq.admin.raft.remove(fourth.address, "n0")
            removed = next(one for one in group.brokers if one.process.machine.settings.raft_self == "n0")
            await removed.stop()
            others = running(group)
            for broker in (*others, fourth):  # the members are on disk, and outweigh those of the configuration
                await broker.stop()
                await broker.start()
            await eventually(lambda: any(broker.is_master for broker in (*others, fourth)))
            assert {one.id for one in (await mq.admin.raft.status(fourth.address)).members} == {"n1", "n2", "n3"}
            await mq.send(TOPIC, b"after")
        finally:
            await fourth.stop()


async def test_a_member_that_is_gone_is_replaced_under_load(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        leader = await led(group)
        await mq.send(TOPIC, b"before")
        lost = next(broker for broker in group.brokers if broker is not leader)
        name = lost.process.machine.settings.raft_self
        await lost.stop()
        await mq.admin.raft.remove(leader.address, name)
        fourth, address = newcomer(group, tmp_path, 7)
        await fourth.start_with([group.namesrv])
        try:
            await mq.admin.raft.add(leader.address, "n7", address)
            await mq.send(TOPIC, b"after")
            assert fourth.process.machine.raft_group is not None
            end = leader.process.machine.store.log.end
            await eventually(lambda: fourth.process.machine.store.log.end >= end)
        finally:
            await fourth.stop()


async def test_changes_that_are_not_safe_are_refused(tmp_path: Path) -> None:
    async with Embedded(raft=3, store=tmp_path) as group, kourou.connect(group.namesrv) as mq:
        leader = await led(group)
        await are_equal(group)
        raft = mq.admin.raft
        with pytest.raises(RefusedError, match="add it as a learner first"):
            await raft._change(leader.address, "n9", "voter", "127.0.0.1:1")
        with pytest.raises(RefusedError, match="an address such as"):
            await raft._change(leader.address, "n9", "learner", "nowhere")
        with pytest.raises(RefusedError, match="an id such as n3"):
            await raft._change(leader.address, "9", "learner", "127.0.0.1:1")
        with pytest.raises(RefusedError, match="already has the address"):
            await raft._change(leader.address, "n9", "learner", (await raft.status(leader.address)).members[0].address)
        with pytest.raises(RefusedError, match="unknown role 'king'"):
            await raft._change(leader.address, "n9", "king", "127.0.0.1:1")
        await raft.remove(leader.address, "n9")  # it is none
        await mq.send(TOPIC, b"still there")


async def test_a_broker_in_no_group_says_so() -> None:
    async with Embedded() as broker, kourou.connect(broker.namesrv) as mq:
        for ask in (mq.admin.raft.status(broker.address), mq.admin.raft.remove(broker.address, "n1")):
            with pytest.raises(KourouError, match="does not belong to a Raft group"):
                await asyncio.wait_for(ask, LEADER_S / 2)  # it does not wait for a leader


def test_the_commands() -> None:
    with EmbeddedThread(raft=3) as group:

        def said(*words: str) -> str:
            result = CliRunner().invoke(app, [*words, "-n", group.namesrv])
            assert result.exit_code == 0, result.output
            return result.output

        broker = ["-b", group.brokers[0].address]
        rows = [json.loads(line) for line in said("admin", "raft", "status", *broker, "--json").splitlines()]
        assert [row["member"] for row in rows[:3]] == ["n0", "n1", "n2"]
        assert sorted(row["role"] for row in rows[:3]) == ["leader", "voter", "voter"]
        other = next(row["member"] for row in rows[:3] if row["role"] != "leader")
        assert f"{other} leads the group" in said("admin", "raft", "transfer", *broker, "-m", other)

        def healthy() -> str | None:
            result = CliRunner().invoke(app, ["doctor", "-n", group.namesrv])
            return result.output if result.exit_code == 0 else None

        found = wait_for("a group that the doctor calls healthy", healthy)  # a new leader opens later
        assert " leads in term" in found
        assert "1 of its 3 members may fail" in found
