"""`kourou doctor` on a group of brokers: which slaves follow the master, and which messages its loss would lose."""

from collections.abc import AsyncIterator, Iterator, Mapping

from kourou.cli.doctor_raft import raft_findings, raft_states
from kourou.cli.findings import Finding, State
from kourou.client import Client
from kourou.protocol.bodies import HARuntimeInfo
from kourou.protocol.errors import KourouError

BEHIND_MAX = 256 * 1024 * 1024
"""A slave that is further behind is not in sync: the default of haMaxGapNotInSync."""


async def group_findings(mq: Client, name: str, addresses: Mapping[int, str]) -> AsyncIterator[Finding]:
    """Nothing for a broker that is alone and promises no copies. Brokers that do not answer are reported elsewhere."""
    what = f"group {name}"
    raft = await raft_states(mq, addresses)
    if raft:
        for finding in raft_findings(what, raft):
            yield finding
        return
    if 0 not in addresses:
        text = f"no master: consumers can read from broker {min(addresses)}, and messages are refused"
        yield Finding(what, State.BAD, text, "start the master again, or make a slave the master")
    states: dict[int, HARuntimeInfo] = {}
    for number, address in sorted(addresses.items()):
        try:
            states[number] = await mq.admin.brokers.replication(address)
        except KourouError as error:
            yield Finding(what, State.DOUBTFUL, f"broker {number} does not report its replication: {error}")
    for finding in _slaves(what, states):
        yield finding
    if 0 in states:
        for finding in _same_id(what, addresses, states[0]):
            yield finding
        async for finding in _master(mq, what, addresses[0], states):
            yield finding


def _same_id(what: str, addresses: Mapping[int, str], master: HARuntimeInfo) -> Iterator[Finding]:
    """Name servers know one address for each brokerId."""
    known, following = len(addresses) - 1, len(master.ha_connection_info)
    if following > known:
        text = f"{following} slaves follow the master, but the name servers know {known}"
        remedy = (
            "give each slave a different brokerId; the log of the name server has the addresses of those that share one"
        )
        yield Finding(what, State.DOUBTFUL, text, remedy)


def _slaves(what: str, states: Mapping[int, HARuntimeInfo]) -> Iterator[Finding]:
    master = states.get(0)
    for number, state in states.items():
        if number == 0:
            continue
        own = state.ha_client_runtime_info
        if not own.master_addr:
            remedy = "see its log for the reason; its master must be registered with the same name servers"
            yield Finding(what, State.BAD, f"slave {number} follows no master; it has {own.max_offset:,} bytes", remedy)
            continue
        end = master.master_commit_log_max_offset if master is not None else state.master_commit_log_max_offset
        behind = max(end - own.max_offset, 0)
        text = f"slave {number} follows {own.master_addr} and is {behind:,} bytes behind"
        if behind >= BEHIND_MAX:
            remedy = "check its disk and the network; it can't replace the master until it has caught up"
            yield Finding(what, State.DOUBTFUL, text, remedy)
        else:
            yield Finding(what, State.GOOD, text)


async def _master(mq: Client, what: str, address: str, states: Mapping[int, HARuntimeInfo]) -> AsyncIterator[Finding]:
    state = states[0]
    try:
        config = await mq.admin.brokers.config(address)
    except KourouError:
        config = {}
    is_sync = config.get("brokerRole") == "SYNC_MASTER"
    slaves = state.ha_connection_info
    if not slaves and len(states) == 1 and not is_sync:
        return
    needed = _number(config.get("inSyncReplicas"), 1) if is_sync else 1
    if is_sync and needed < 2:
        remedy = "set inSyncReplicas=2 to wait for one slave, and minInSyncReplicas=2 to refuse messages without one"
        text = "the master is a SYNC_MASTER that waits for no slave (inSyncReplicas=1)"
        yield Finding(what, State.DOUBTFUL, text, remedy)
    end = state.master_commit_log_max_offset
    behind = min((max(end - slave.slave_ack_offset, 0) for slave in slaves), default=None)
    if behind is None:
        text = "if the master died now, all its messages would be out of reach: no slave follows it"
        yield Finding(what, State.BAD, text, "start a slave, or find out from its log why it does not connect")
    elif behind == 0:
        yield Finding(what, State.GOOD, f"if the master died now, nothing would be lost: a slave has all {end:,} bytes")
    elif needed >= 2:
        text = f"if the master died now, no acknowledged message would be lost; {behind:,} bytes are on their way"
        yield Finding(what, State.GOOD, text)
    else:
        text = f"if the master died now, the last {behind:,} bytes of its log would be lost: no slave has them yet"
        remedy = "this is what ASYNC_MASTER means; SYNC_MASTER with inSyncReplicas=2 waits for a slave"
        yield Finding(what, State.DOUBTFUL, text, remedy)


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else default
