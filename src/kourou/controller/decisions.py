"""How requests are decided: from the table of groups to an answer, and perhaps a change. The codes are Apache's.

Decisions do not depend on time or chance: the brokers that are alive, and the ends of their logs, are given.

Java: ReplicasInfoManager, DefaultElectPolicy.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from kourou.controller.groups import GROUPS_MAX, NAME_MAX, REPLICAS_MAX, Group, Groups, Replica
from kourou.controller.heartbeats import Beat
from kourou.protocol import bodies, headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.headers.table import Header

Alive: TypeAlias = Callable[[str, int], Beat | None]
"""Returns the last heartbeat of a broker of a group; None if it is not alive."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and the changes that must be committed before it is sent."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = None
    body: bytes = b""
    changed: dict[str, Group | None] = field(default_factory=dict)
    notify: str | None = None
    """The group whose brokers are notified of a new master."""


def refuse(code: int, remark: str, header: Header | None = None, body: bytes = b"") -> Decision:
    return Decision(code, remark, header, body)


def set_of(group: Group) -> bytes:
    return bodies.SyncStateSet(sync_state_set=list(group.in_sync), sync_state_set_epoch=group.set_epoch).encode()


# ── Identities ──────────────────────────────────────────────────────────────────────────────────────────────────────


def next_id(table: Groups, header: headers.GetNextBrokerId) -> Decision:
    """GET_NEXT_BROKER_ID."""
    group = table.get(header.broker_name or "")
    found = headers.GetNextBrokerIdAnswer(
        cluster_name=header.cluster_name,
        broker_name=header.broker_name,
        next_broker_id=1 if group is None else group.next_id,
    )
    return Decision(header=found)


def apply_id(table: Groups, header: headers.ApplyBrokerId) -> Decision:
    """APPLY_BROKER_ID. Repeating the request has the same result."""
    name, number, code = header.broker_name or "", header.applied_broker_id or 0, header.register_check_code or ""
    if not name or number < 1 or max(map(len, (name, header.cluster_name or "", code))) > NAME_MAX:
        return refuse(
            ResponseCode.CONTROLLER_INVALID_REQUEST, "a cluster, a broker name and a positive id are expected"
        )
    answer = headers.ApplyBrokerIdAnswer(cluster_name=header.cluster_name, broker_name=name)
    group = table.get(name)
    if group is None:
        if number != 1:
            return refuse(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                f"group {name} is not known: its first broker must apply for the id 1, not {number}",
            )
        if len(table) >= GROUPS_MAX:
            return refuse(ResponseCode.SYSTEM_ERROR, f"the limit of {GROUPS_MAX} broker groups is reached")
        group = Group(header.cluster_name or "")
    known = group.replicas.get(number)
    if known is not None and known.check_code == code:
        return Decision(header=answer)
    if known is not None:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"another broker of group {name} has the id {number}: apply for a free id",
        )
    if len(group.replicas) >= REPLICAS_MAX:
        return refuse(ResponseCode.SYSTEM_ERROR, f"the limit of {REPLICAS_MAX} replicas in group {name} is reached")
    return Decision(header=answer, changed={name: group.with_replica(number, Replica("", code))})


def register(table: Groups, header: headers.RegisterBrokerToController, alive: Alive) -> Decision:
    """REGISTER_BROKER."""
    name, number = header.broker_name or "", header.broker_id or 0
    address = header.broker_address or ""
    group = table.get(name)
    if group is None or number not in group.replicas:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"group {name} has no broker with the id {number}: apply for it first",
        )
    if not address or len(address) > NAME_MAX:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, "brokerAddress is expected")
    changed: dict[str, Group | None] = {}
    if group.replicas[number].address != address:
        group = group.with_replica(number, Replica(address, group.replicas[number].check_code))
        changed[name] = group
    has_master = group.master is not None and alive(name, group.master) is not None
    answer = headers.RegisterBrokerToControllerAnswer(
        cluster_name=header.cluster_name,
        broker_name=name,
        master_broker_id=group.master if has_master else None,
        master_address=group.master_address if has_master else None,
        master_epoch=group.epoch if has_master else None,
        sync_state_set_epoch=group.set_epoch if has_master else None,
    )
    return Decision(header=answer, body=set_of(group), changed=changed)


# ── Masters ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def candidate(name: str, group: Group, alive: Alive, wanted: int | None, *, unclean: bool) -> int | None:
    """The replica to elect: the old master if it is alive, then the wanted one, then the most up-to-date one."""
    for numbers in (group.in_sync, tuple(group.replicas) if unclean else ()):
        living = {number: beat for number in numbers if (beat := alive(name, number)) is not None}
        if not living:
            continue
        if group.master in living and wanted in (None, group.master):
            return group.master
        if wanted is not None:
            return wanted if wanted in living else None
        return min(
            living, key=lambda number: (-living[number].epoch, -living[number].end, living[number].priority, number)
        )
    return None


def elect(table: Groups, header: headers.ElectMaster, alive: Alive, *, unclean: bool) -> Decision:
    """ELECT_MASTER, by a broker or an administrator."""
    name, number = header.broker_name, header.broker_id
    group = table.get(name)
    if group is None or number not in group.replicas:
        return refuse(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, f"group {name} has no broker with the id {number}"
        )
    if not group.replicas[number].address:
        return refuse(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, f"broker {number} has not registered its address")
    if group.epoch == 0:
        master: int | None = number
    else:
        master = candidate(name, group, alive, number if header.designate_elect else None, unclean=unclean)
    if master is None:
        return refuse(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, f"no living broker of group {name} may become master"
        )
    if master == group.master:
        body = bodies.ElectMasterResponseBody(sync_state_set=list(group.in_sync)).encode()
        remark = f"the master {master} of group {name} is alive and remains the master"
        return refuse(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, remark, _elected(group), body)
    group = group.elected(master)
    members = bodies.BrokerMemberGroup(
        cluster=group.cluster,
        broker_name=name,
        broker_addrs={one: replica.address for one, replica in group.replicas.items()},
    )
    found = bodies.ElectMasterResponseBody(broker_member_group=members, sync_state_set=list(group.in_sync))
    body = found.encode(standard=True)  # Java 5.5 reads no such numbers without quotes, although it writes them
    return Decision(header=_elected(group), body=body, changed={name: group}, notify=name)


def _elected(group: Group) -> headers.ElectMasterAnswer:
    return headers.ElectMasterAnswer(
        master_broker_id=group.master,
        master_address=group.master_address,
        master_epoch=group.epoch,
        sync_state_set_epoch=group.set_epoch,
    )


def replace_dead(table: Groups, name: str, alive: Alive, *, unclean: bool) -> Decision | None:
    """If the master of a group has died, elect another one, or record that there is none. None: nothing changes."""
    group = table.get(name)
    if group is None or group.master is None or alive(name, group.master) is not None:
        return None
    master = candidate(name, group, alive, None, unclean=unclean)
    if master is None:
        return Decision(changed={name: group.without_master()})
    return Decision(changed={name: group.elected(master)}, notify=name)


def master_of(table: Groups, header: headers.GetReplicaInfo) -> Decision:
    """GET_REPLICA_INFO. Without the epoch, Apache's brokers do not ask for an election of a group without master."""
    group = table.get(header.broker_name or "")
    if group is None:
        return refuse(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, "this broker group is not known")
    answer = headers.GetReplicaInfoAnswer(
        master_broker_id=group.master,
        master_address=group.master_address,
        master_epoch=group.epoch,
    )
    return Decision(header=answer, body=set_of(group))


# ── In-sync sets ────────────────────────────────────────────────────────────────────────────────────────────────────


def alter_set(table: Groups, header: headers.AlterSyncStateSet, wanted: bodies.SyncStateSet, alive: Alive) -> Decision:
    """ALTER_SYNC_STATE_SET, by the master."""
    name, epoch, number = header.broker_name or "", header.master_epoch or 0, header.master_broker_id or 0
    group = table.get(name)
    members = tuple(sorted(set(wanted.sync_state_set)))
    if group is None:
        return refuse(ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "this broker group is not known")
    fault = _fault_of_set(name, group, number, epoch, members, wanted.sync_state_set_epoch, alive)
    if fault is not None:
        return refuse(*fault)
    group = group.with_set(members)
    answer = headers.AlterSyncStateSetAnswer(new_sync_state_set_epoch=group.set_epoch)
    return Decision(header=answer, body=set_of(group), changed={name: group})


def _fault_of_set(
    name: str, group: Group, number: int, epoch: int, members: tuple[int, ...], set_epoch: int, alive: Alive
) -> tuple[int, str] | None:
    """Why this set is refused, in the order of Apache's checks."""
    if set(members) == set(group.in_sync):
        return ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "the new in-sync set equals the current one"
    if group.master != number:
        return ResponseCode.CONTROLLER_INVALID_MASTER, f"the master is {group.master}, not {number}"
    if epoch != group.epoch:
        return ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH, f"the master's epoch is {group.epoch}, not {epoch}"
    if set_epoch != group.set_epoch:
        text = f"the epoch of the set is {group.set_epoch}, not {set_epoch}"
        return ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, text
    for member in members:
        if member not in group.replicas:
            return ResponseCode.CONTROLLER_INVALID_REPLICAS, f"group {name} has no replica {member}"
        if alive(name, member) is None:
            return ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"replica {member} of group {name} is not alive"
    if number not in members:
        return ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, f"the master {number} is missing from the set"
    return None


def replicas_of(table: Groups, names: list[str], alive: Alive) -> Decision:
    """GET_SYNC_STATE_DATA. Unknown groups are omitted."""
    found: dict[str, bodies.ReplicasInfo] = {}
    for name in names:
        group = table.get(name)
        if group is None:
            continue

        def identities(numbers: list[int], name: str = name, group: Group = group) -> list[bodies.ReplicaIdentity]:
            return [
                bodies.ReplicaIdentity(
                    broker_name=name,
                    broker_id=number,
                    broker_address=group.replicas[number].address,
                    alive=alive(name, number) is not None,
                )
                for number in numbers
            ]

        numbers = sorted(group.replicas)
        found[name] = bodies.ReplicasInfo(
            master_broker_id=group.master,
            master_address=group.master_address,
            master_epoch=group.epoch,
            sync_state_set_epoch=group.set_epoch,
            in_sync_replicas=identities([number for number in numbers if number in group.in_sync]),
            not_in_sync_replicas=identities([number for number in numbers if number not in group.in_sync]),
        )
    return Decision(body=bodies.BrokerReplicasInfo(replicas_info_table=found).encode())


def clean(table: Groups, header: headers.CleanControllerBrokerData, alive: Alive) -> Decision:
    """CLEAN_BROKER_DATA."""
    name, text = header.broker_name, (header.broker_controller_ids_to_clean or "").strip()
    group = table.get(name)
    words = [word.strip() for word in text.split(";") if word.strip()]
    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if not all(word.isascii() and word.isdecimal() and len(word) < 19 for word in words):
        return refuse(code, f"{text}: ids separated by semicolons are expected (brokerControllerIdsToClean)")
    numbers = set(map(int, words))
    if not header.is_clean_living_broker:
        if not numbers and group is not None and group.master is not None:
            return refuse(code, f"group {name} has a master: name the brokers to remove, or stop the master first")
        living = next((number for number in sorted(numbers) if alive(name, number) is not None), None)
        if living is not None:
            return refuse(code, f"broker {living} of group {name} is alive: stop it first")
    if group is None:
        return refuse(code, f"group {name} is not known")
    left = group.without(numbers or set(group.replicas))
    return Decision(changed={name: left if left.replicas else None})
