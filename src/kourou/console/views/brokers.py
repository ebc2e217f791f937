"""One broker: its runtime information, its settings, the replication of its log."""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from kourou.console.rings import History
from kourou.console.views.overview import BrokerRow
from kourou.console.views.values import long
from kourou.printable import printable
from kourou.protocol.bodies import EpochEntryCache, HARuntimeInfo, RaftStatus

HIDDEN: Final = "***"
_SECRET: Final = re.compile(r"secret|password|passwd|credential|initAuthenticationUser", re.IGNORECASE)
SILENT_MS_MIN: Final = 1000
"""A member that the leader has heard within this time is not missing, however short its election timeout is."""
_OPEN_END: Final = 2**63 - 1


class BrokerPage(msgspec.Struct, frozen=True):
    brokers: list[BrokerRow]


class Setting(msgspec.Struct, frozen=True):
    """One setting."""

    key: str
    value: str


class SlaveView(msgspec.Struct, frozen=True):
    """A slave as its master sees it."""

    address: str
    ack: str
    behind: str
    in_sync: bool
    rate: str | None
    """None if it is not known."""


class MasterView(msgspec.Struct, frozen=True):
    """The master as its slave sees it."""

    address: str
    end: str
    rate: str


class ReplicationView(msgspec.Struct, frozen=True):
    """The state of replication on one broker."""

    master: bool
    end: str
    in_sync: int
    slaves: list[SlaveView]
    follows: MasterView | None


class EpochView(msgspec.Struct, frozen=True):
    """The range of the log that one master wrote; end -1 is the end of the log."""

    epoch: int
    start: str
    end: str


class RaftView(msgspec.Struct, frozen=True):
    """Whether the broker belongs to a Raft group, and the state that it reports."""

    on: bool
    reason: str
    facts: dict[str, str]


class BrokerView(msgspec.Struct, frozen=True):
    """One broker."""

    broker: BrokerRow
    runtime: dict[str, str]
    config: list[Setting]
    replication: ReplicationView | None
    epochs: list[EpochView]
    raft: RaftView
    history: History


def is_secret(key: str) -> bool:
    """Whether the value of a setting is never shown."""
    return _SECRET.search(key) is not None


def settings_view(config: Mapping[str, str]) -> list[Setting]:
    """All settings, sorted. A broker does not report which it can change while it runs: it refuses the others."""
    return [
        Setting(printable(key), HIDDEN if is_secret(key) and value else printable(value))
        for key, value in sorted(config.items())
    ]


def replication_view(info: HARuntimeInfo) -> ReplicationView:
    """The replication of a master or slave."""
    slaves = [
        SlaveView(
            printable(one.addr or ""),
            long(one.slave_ack_offset),
            long(one.diff),
            one.in_sync,
            long(one.transferred_byte_in_second),
        )
        for one in info.ha_connection_info
    ]
    if info.master:
        return ReplicationView(True, long(info.master_commit_log_max_offset), info.in_sync_slave_nums, slaves, None)
    client = info.ha_client_runtime_info
    follows = MasterView(
        printable(client.master_addr or ""), long(client.master_flush_offset), long(client.transferred_byte_in_second)
    )
    return ReplicationView(False, long(client.max_offset), 0, [], follows)


def raft_replication(status: RaftStatus) -> ReplicationView:
    """Of a member of a Raft group: the leader knows how far the other members are."""
    end = long(status.log_end)
    others = [peer for peer in status.members if peer.id != status.id]
    if status.role != "leader":
        leader = next((peer.address for peer in others if peer.id == status.leader), "")
        name = printable(f"{status.leader} {leader}" if status.leader else "")
        return ReplicationView(False, end, 0, [], MasterView(name, end, "0"))
    missing = set(missing_members(status))
    slaves = [
        SlaveView(
            printable(f"{peer.id} {peer.address}"),
            long(peer.log_end or 0),
            long(max(status.log_end - (peer.log_end or 0), 0)),
            peer.id not in missing,
            None,
        )
        for peer in others
    ]
    return ReplicationView(True, end, 1 + sum(one.in_sync for one in slaves), slaves, None)


def missing_members(status: RaftStatus) -> list[str]:
    """The members that the leader has not heard for two election timeouts."""
    longest = max(2 * status.election_millis, SILENT_MS_MIN)
    return [peer.id for peer in status.members if peer.id != status.id and (peer.silent_millis or 0) >= longest]


def epochs_view(cache: EpochEntryCache) -> list[EpochView]:
    """The newest first."""
    return [
        EpochView(one.epoch, long(one.start_offset), "-1" if one.end_offset == _OPEN_END else long(one.end_offset))
        for one in reversed(cache.epoch_list)
    ]


def raft_view(runtime: Mapping[str, str], config: Mapping[str, str], status: RaftStatus | None) -> RaftView:
    """The state of the group, as the broker reports it."""
    if config.get("enableDLegerCommitLog") != "true":
        return RaftView(False, "the broker is not in a Raft group", {})
    names = ("dLegerGroup", "dLegerPeers", "dLegerSelfId", "preferredLeaderId", "raftElectionTimeout")
    facts = {name: config[name] for name in names if config.get(name)}
    facts |= {name: value for name, value in runtime.items() if "raft" in name.lower()}
    if status is not None:
        members = (f"{peer.id} {peer.address}{'' if peer.voter else ' (learner)'}" for peer in status.members)
        facts |= {
            "role": status.role,
            "leader": status.leader or "none",
            "term": f"{status.term}",
            "members": ", ".join(members),
            "committed up to": f"{status.commit:,}",
            "durable up to": f"{status.durable:,}",
            "elections won": f"{status.elections}",
            **({"left the group": status.broken} if status.broken else {}),
        }
    return RaftView(True, "", {printable(name): printable(value) for name, value in facts.items()})
