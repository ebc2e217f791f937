"""The replicated state of the controllers: a table of broker groups, and the log records that change it.

A record has the complete new value of each group that it changes. So a record may be applied twice, and a record with
all groups is a snapshot, with which the log may begin.
"""

from typing import Final

import msgspec
from msgspec import structs

GROUPS_MAX: Final = 10_000
"""The most broker groups of a controller."""

REPLICAS_MAX: Final = 100
"""The most replicas of one group."""

NAME_MAX: Final = 255
"""The most characters of a cluster, a broker name, an address or a check code."""


class Replica(msgspec.Struct, frozen=True):
    """A broker in a group."""

    address: str = ""
    """Empty until the broker has registered."""
    check_code: str = ""
    """With it the broker proves that the id was assigned to it."""


class Group(msgspec.Struct, frozen=True):
    """A broker group. Immutable: a change creates a new value."""

    cluster: str = ""
    replicas: dict[int, Replica] = {}
    next_id: int = 1
    master: int | None = None
    epoch: int = 0
    in_sync: tuple[int, ...] = ()
    set_epoch: int = 0

    @property
    def master_address(self) -> str | None:
        replica = self.replicas.get(self.master) if self.master is not None else None
        return None if replica is None else replica.address

    def with_replica(self, number: int, replica: Replica) -> "Group":
        return structs.replace(self, replicas={**self.replicas, number: replica}, next_id=max(self.next_id, number + 1))

    def elected(self, master: int) -> "Group":
        """The group with this master, in a new epoch, as the only member of the in-sync set."""
        return structs.replace(
            self, master=master, epoch=self.epoch + 1, in_sync=(master,), set_epoch=self.set_epoch + 1
        )

    def without_master(self) -> "Group":
        """The group without its master, in a new epoch: Apache's brokers ignore anything that has no newer one."""
        return structs.replace(self, master=None, epoch=self.epoch + 1)

    def with_set(self, members: tuple[int, ...]) -> "Group":
        return structs.replace(self, in_sync=members, set_epoch=self.set_epoch + 1)

    def without(self, numbers: set[int]) -> "Group":
        """The group without these replicas."""
        return structs.replace(
            self,
            replicas={number: replica for number, replica in self.replicas.items() if number not in numbers},
            master=None if self.master in numbers else self.master,
            in_sync=tuple(number for number in self.in_sync if number not in numbers),
        )


Groups = dict[str, Group]


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One record of the log."""

    term: int = 0
    """The record begins this term of a leader; 0 for other records."""
    is_snapshot: bool = False
    """`groups` has all groups."""
    groups: dict[str, Group | None] = {}
    """New values; None: the group was removed."""

    def apply(self, table: Groups) -> Groups:
        changed: dict[str, Group | None] = {**({} if self.is_snapshot else table), **self.groups}
        return {name: group for name, group in changed.items() if group is not None}
