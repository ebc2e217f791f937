"""Broker groups and their members: the values in the tables of a name server.

A broker group (`broker_name`) has members by broker id; id 0 is the master. Each member registers its address. The
master also registers the topics of the group; since 5.0, without a master, the member with the smallest id does.

Java: BrokerData, BrokerLiveInfo, BrokerAddrInfo.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from kourou.nameserver.registration import Said
from kourou.protocol import headers
from kourou.protocol.bodies import BrokerData, DataVersion, QueueData
from kourou.protocol.codes import MASTER_ID, Perm

PermChange: TypeAlias = Callable[[int], int]
"""New permission bits from old ones. Idempotent."""


def read_only(perm: int) -> int:
    """The permission without write."""
    return perm & ~int(Perm.WRITE)


def read_and_write(_: int) -> int:
    return int(Perm.READ | Perm.WRITE)


class Member(NamedTuple):
    """The key of one broker process."""

    cluster: str
    address: str


@dataclass(slots=True)
class Live:
    """The state of a broker process, besides its address."""

    group_names: tuple[str, ...]  # groups that may list its address; several if it was renamed
    seen_ms: int  # last registration, heartbeat or version query
    timeout_ms: int
    version: DataVersion  # of its last registered topics
    connection: Hashable  # of that registration
    ha_address: str
    said: Said | None  # that registration, to compare with the next
    acting: bool  # it allows a slave to act as master
    led: bool  # it registered the topics of its group, so its topics were applied
    in_step: bool  # the tables had its topics exactly as registered
    removed: int  # Group.removed at that time
    touched: int  # Group.touched at that time

    @property
    def said_size(self) -> int:
        """The size of its stored registration in bytes."""
        return 0 if self.said is None else self.said.size_bytes


@dataclass(slots=True)
class Group:
    """A broker group, with its members and the queues of its topics."""

    cluster: str
    name: str
    addresses: dict[int, str] = field(default_factory=dict)
    queues: dict[str, QueueData] = field(default_factory=dict)  # by topic
    zone: str | None = None
    acting_master: bool = False  # a slave may act as master
    author: Member | None = None  # the member whose topics were applied last
    removed: int = 0  # when a topic was last removed; a growing number, see Tables._moment
    touched: int = 0  # when its topics were last changed by anything but a registration
    contested: frozenset[str] = frozenset()  # the addresses that were last reported to have the same broker id
    perm_change: PermChange | None = None  # applies to all queues, even those in `queues` that lack it

    def queues_of(self, topic: str) -> QueueData:
        """The queues of one of its topics."""
        queues = self.queues[topic]
        return queues if self.perm_change is None else replace(queues, perm=self.perm_change(queues.perm))

    def to_body(self, addresses: Mapping[int, str] | None = None) -> BrokerData:
        return BrokerData(
            cluster=self.cluster,
            broker_name=self.name,
            broker_addrs=dict(sorted((addresses or self.addresses).items())),
            zone_name=self.zone,
            enable_acting_master=self.acting_master,
        )

    @property
    def smallest_id(self) -> int:
        return min(self.addresses)

    @property
    def lacks_master(self) -> bool:
        """True if a slave acts as master, so that the queues are readable and not writable."""
        return self.acting_master and self.smallest_id > MASTER_ID

    def has_address(self, address: str) -> bool:
        return address in self.addresses.values()

    def set_address(self, broker_id: int, address: str) -> None:
        """Set a member's address. An address has one broker id: a slave that became master loses its old id."""
        self.drop_address(address, but=broker_id)
        self.addresses[broker_id] = address

    def drop_address(self, address: str, but: int | None = None) -> None:
        for broker_id in [i for i, known in self.addresses.items() if known == address and i != but]:
            del self.addresses[broker_id]

    def with_acting_master(self, queues: QueueData) -> dict[int, str] | None:
        """The addresses with the smallest slave id as the master's, if a slave acts and the queues are read-only."""
        if MASTER_ID in self.addresses or not self.acting_master or queues.perm & Perm.WRITE:
            return None
        smallest = self.smallest_id
        return {MASTER_ID if i == smallest else i: address for i, address in self.addresses.items()}


def leads(header: headers.RegisterBroker, group: Group) -> bool:
    """True if this member registers its group's topics: the master or, since 5.0, the slave with the smallest id."""
    if header.broker_id == MASTER_ID:
        return True
    return header.enable_acting_master is not None and header.broker_id == group.smallest_id


class Memory(msgspec.Struct, frozen=True, gc=False):
    """The last registration of a member, and how the next one may use it."""

    said: Said | None = None
    may_renew: bool = False  # the same registration again changes nothing
    may_merge: bool = False  # only the differences must be applied


@dataclass(frozen=True, slots=True)
class Notice:
    """The smallest broker id of a group changed: tell these addresses. Java: notifyMinBrokerIdChanged."""

    addresses: list[str]
    header: headers.NotifyMinBrokerIdChange


def notice_of(group: Group, offline: str | None, ha_address: str | None) -> Notice:
    """To the remaining members if one left; to the other members if the new one has the smallest id."""
    smallest = group.smallest_id
    everyone = offline is not None or len(group.addresses) == 1
    return Notice(
        [address for broker_id, address in group.addresses.items() if everyone or broker_id != smallest],
        headers.NotifyMinBrokerIdChange(
            min_broker_id=smallest,
            min_broker_addr=group.addresses[smallest],
            offline_broker_addr=offline,
            ha_broker_addr=ha_address,
        ),
    )


class Registered(msgspec.Struct, frozen=True, gc=False):
    """The result of a registration. `refusal` is None if it was accepted."""

    refusal: str | None = None
    master_address: str | None = None
    master_ha_address: str | None = None
    notice: Notice | None = None
