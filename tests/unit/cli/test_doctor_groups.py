"""`kourou doctor` on groups of brokers."""

import json
from types import SimpleNamespace
from typing import Any, cast

from typer.testing import CliRunner

from kourou.cli import doctor_raft
from kourou.cli.doctor_groups import BEHIND_MAX, group_findings
from kourou.cli.doctor_raft import raft_findings
from kourou.cli.findings import Finding, State
from kourou.cli.main import app
from kourou.client import Client
from kourou.embedded import EmbeddedThread
from kourou.protocol.bodies import HAClientRuntimeInfo, HAConnectionRuntimeInfo, HARuntimeInfo, RaftPeer, RaftStatus
from kourou.protocol.errors import KourouError


def test_a_real_group_with_and_without_its_master() -> None:
    with EmbeddedThread(slaves=1, sync=True) as cluster:

        def findings() -> list[str]:
            result = CliRunner().invoke(app, ["doctor", "-n", cluster.namesrv, "--json"])
            found = [json.loads(line) for line in result.stdout.splitlines()]
            return [f"{one['state']} {one['text']}" for one in found if one["check"] == "group broker-a"]

        ha = cluster.brokers[0].process.settings.ha_address
        assert findings() == [
            f"ok slave 1 follows {ha} and is 0 bytes behind",
            "ok if the master died now, nothing would be lost: a slave has all 0 bytes",
        ]
        cluster.stop_broker("broker-a", 0)
        first, second = findings()
        assert first == "error no master: consumers can read from broker 1, and messages are refused"
        assert second.startswith("error slave 1 follows no master")


def slave(offset: int, master: str | None = "10.0.0.1:10912") -> HARuntimeInfo:
    own = HAClientRuntimeInfo(master_addr=master, max_offset=offset)
    return HARuntimeInfo(master_commit_log_max_offset=offset, ha_client_runtime_info=own)


def master(end: int, *acknowledged: int) -> HARuntimeInfo:
    connections = [HAConnectionRuntimeInfo(addr="10.0.0.2:4000", slave_ack_offset=offset) for offset in acknowledged]
    return HARuntimeInfo(master=True, master_commit_log_max_offset=end, ha_connection_info=connections)


async def examined(states: dict[int, HARuntimeInfo | None], **config: str) -> list[Finding]:
    async def replication(address: str) -> HARuntimeInfo:
        state = states[int(address)]
        if state is None:
            raise KourouError("no answer")
        return state

    async def settings(_: str) -> dict[str, str]:
        return config

    async def raft_status(_: str) -> RaftStatus:
        raise KourouError("no Raft group")

    brokers = SimpleNamespace(replication=replication, config=settings)
    raft = SimpleNamespace(status=raft_status)
    mq = cast("Client", SimpleNamespace(admin=SimpleNamespace(brokers=brokers, raft=raft)))
    addresses: dict[int, Any] = {number: str(number) for number in states}
    return [finding async for finding in group_findings(mq, "broker-a", addresses)]


async def test_two_slaves_with_the_same_id_are_reported() -> None:
    """Name servers know one of them."""
    doubtful = [one for one in await examined({0: master(500, 500, 500), 1: slave(500)}) if one.state is State.DOUBTFUL]
    assert [one.text for one in doubtful] == ["2 slaves follow the master, but the name servers know 1"]
    assert "a different brokerId" in (doubtful[0].remedy or "")


async def test_a_single_broker_is_not_a_group() -> None:
    assert await examined({0: master(500)}, brokerRole="ASYNC_MASTER") == []


async def test_what_an_async_master_would_lose() -> None:
    states: dict[int, HARuntimeInfo | None] = {0: master(500, 200, 400), 1: slave(400), 2: slave(200)}
    following, _, loss = await examined(states, brokerRole="ASYNC_MASTER")
    assert (following.state, following.text) == (
        State.GOOD,
        "slave 1 follows 10.0.0.1:10912 and is 100 bytes behind",
    )
    assert loss.state is State.DOUBTFUL
    assert "the last 100 bytes of its log would be lost" in loss.text


async def test_a_sync_master_loses_nothing_that_it_acknowledged() -> None:
    sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    *_, loss = await examined({0: master(500, 400), 1: slave(400)}, **sync)
    assert (loss.state, "no acknowledged message would be lost; 100 bytes" in loss.text) == (State.GOOD, True)


async def test_a_sync_master_that_waits_for_no_slave_is_doubtful() -> None:
    *_, warning, loss = await examined({0: master(500, 400), 1: slave(400)}, brokerRole="SYNC_MASTER")
    assert (warning.state, "waits for no slave" in warning.text) == (State.DOUBTFUL, True)
    assert loss.state is State.DOUBTFUL


async def test_a_master_whose_slave_does_not_follow_is_bad() -> None:
    following, loss = await examined({0: master(500), 1: slave(400, None)}, brokerRole="ASYNC_MASTER")
    assert (following.state, loss.state) == (State.BAD, State.BAD)
    assert "slave 1 follows no master; it has 400 bytes" in following.text
    assert "no slave follows it" in loss.text


async def test_a_slave_that_is_far_behind_is_doubtful() -> None:
    end = BEHIND_MAX + 100
    following, _ = await examined({0: master(end, 100), 1: slave(100)})
    assert following.state is State.DOUBTFUL


async def test_a_broker_that_does_not_tell_is_named() -> None:
    silent, _ = await examined({0: master(500, 500), 1: None})
    assert silent.text == "broker 1 does not report its replication: no answer"


def raft_leader(*others: RaftPeer) -> RaftStatus:
    own = RaftPeer(id="n0", address="10.0.0.1:1", connected=True, log_end=10**9, silent_millis=0)
    return RaftStatus(
        id="n0", role="leader", leader="n0", term=3, log_end=10**9, election_millis=1_000, members=[own, *others]
    )


def test_a_raft_group_names_the_member_that_is_missing_and_the_one_that_is_slow() -> None:
    slow = RaftPeer(
        id="n1", address="10.0.0.2:1", connected=True, log_end=10**9 - doctor_raft.BEHIND_MAX, silent_millis=9
    )
    missing = RaftPeer(id="n2", address="10.0.0.3:1", log_end=10**9, silent_millis=7_000)
    led, first, second, margin = raft_findings("group a", {0: raft_leader(slow, missing)})
    assert (led.state, first.state, second.state, margin.state) == (
        State.GOOD,
        State.DOUBTFUL,
        State.BAD,
        State.DOUBTFUL,
    )
    assert "n1 (10.0.0.2:1) is slow: 67,108,864 bytes behind" in first.text
    assert "n2 (10.0.0.3:1) is missing: n0 has not heard from it for 7 s" in second.text
    assert "stops when one more of its 3 members fails" in margin.text


def test_a_raft_group_without_a_leader_is_bad_and_names_silent_members() -> None:
    members = [RaftPeer(id=f"n{number}", address=f"10.0.0.{number}:1") for number in range(3)]
    (finding,) = raft_findings("group a", {1: RaftStatus(id="n0", role="candidate", members=members)})
    assert finding.state is State.BAD
    assert "no leader" in finding.text and "n1, n2 can't be asked" in finding.text


def test_a_broker_that_was_removed_from_its_raft_group_is_doubtful() -> None:
    alone = RaftStatus(id="n5", role="follower", members=[])
    *_, last = raft_findings("group a", {0: raft_leader(), 6: alone})
    assert (last.state, "broker 6 (n5) is not a member" in last.text) == (State.DOUBTFUL, True)
