"""`kourou doctor` on a Raft group: which member leads, which is missing or slow, and what the group can still lose."""

from collections.abc import Iterator, Mapping

from kourou.cli.findings import Finding, State
from kourou.client import Client
from kourou.protocol.bodies import RaftPeer, RaftStatus
from kourou.protocol.errors import KourouError

BEHIND_MAX = 64 * 1024 * 1024
"""A member that is further behind is slow."""

SILENT_MIN_MS = 1_000
"""A member is missing if the leader has not heard from it for twice its election timeout, and at least this time."""


async def raft_states(mq: Client, addresses: Mapping[int, str]) -> dict[int, RaftStatus]:
    """The states that the brokers report, by broker id; empty if they are not a Raft group of Kourou's brokers."""
    states = {}
    for number, address in sorted(addresses.items()):
        try:
            states[number] = await mq.admin.raft.status(address)
        except KourouError:
            continue
    return states


def raft_findings(what: str, states: Mapping[int, RaftStatus]) -> Iterator[Finding]:
    """Findings about the group."""
    for number, state in states.items():
        if state.broken is not None:
            yield Finding(what, State.BAD, f"{state.id} (broker {number}) left the group: {state.broken}")
    leaders = [state for state in states.values() if state.role == "leader"]
    if not leaders:
        said = next((state.leader for state in states.values() if state.leader), None)
        text = f"{said} leads, and is not registered" if said else "no leader: messages are refused"
        missing = sorted(_members(states) - {state.id for state in states.values()})
        seen = f"; {', '.join(missing)} can't be asked" if missing else ""
        yield Finding(what, State.BAD, text + seen, "start the members that are missing, or see their logs")
        return
    leader = max(leaders, key=lambda state: state.term)
    yield Finding(what, State.GOOD, f"{leader.id} leads in term {leader.term}")
    missing = []
    for peer in leader.members:
        if peer.id == leader.id:
            continue
        finding, is_missing = _peer(what, leader, peer)
        yield finding
        if is_missing and peer.voter:
            missing.append(peer.id)
    yield _margin(what, leader, missing)
    for number, state in states.items():
        if state.id not in {peer.id for peer in leader.members}:
            text = f"broker {number} ({state.id}) is not a member of the group"
            yield Finding(what, State.DOUBTFUL, text, "stop it, and remove its store before it becomes a member again")


def _members(states: Mapping[int, RaftStatus]) -> set[str]:
    newest = max(states.values(), key=lambda state: (state.term, state.members_version))
    return {peer.id for peer in newest.members}


def _peer(what: str, leader: RaftStatus, peer: RaftPeer) -> tuple[Finding, bool]:
    """One member, and whether it is missing."""
    name = f"{'member' if peer.voter else 'learner'} {peer.id} ({peer.address})"
    silent = peer.silent_millis or 0
    if silent >= max(2 * leader.election_millis, SILENT_MIN_MS):
        text = f"{name} is missing: {leader.id} has not heard from it for {silent / 1000:.0f} s"
        remedy = "start it, or check the network" if not peer.connected else "see its log: it is connected and silent"
        return Finding(what, State.BAD, text, remedy), True
    behind = max(leader.log_end - (peer.log_end or 0), 0)
    if behind >= BEHIND_MAX:
        text = f"{name} is slow: {behind:,} bytes behind"
        return Finding(what, State.DOUBTFUL, text, "check its disk and the network"), False
    return Finding(what, State.GOOD, f"{name} is {behind:,} bytes behind"), False


def _margin(what: str, leader: RaftStatus, missing: list[str]) -> Finding:
    """How many members may still fail."""
    voters = sum(peer.voter for peer in leader.members)
    spare = voters - len(missing) - (voters // 2 + 1)
    if spare > 0:
        return Finding(what, State.GOOD, f"{spare} of its {voters} members may fail without loss or interruption")
    if voters == 1:
        return Finding(what, State.DOUBTFUL, "it has one member: add two, so that one of them may fail")
    text = f"the group stops when one more of its {voters} members fails"
    remedy = "start the members that are missing" if missing else "add a member (kourou admin raft add)"
    return Finding(what, State.DOUBTFUL, text, remedy)
