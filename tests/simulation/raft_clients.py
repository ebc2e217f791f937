"""Clients that append and read all the time, and the results that they may see.

A log is linearizable if the operations fit on one line in time: `seen` is the largest offset that any finished
operation has shown to be committed. An append or a read that begins after that must end at or after that offset: an
append comes after everything that was seen, and a read sees all of it.
"""

from random import Random
from typing import TYPE_CHECKING

from kourou.raft.events import ChangeMembers, Read, Transfer
from kourou.raft.leader import Leader
from kourou.raft.members import Member as GroupMember

if TYPE_CHECKING:
    from .raft_member import Member
    from .raft_world import World


class Clients:
    """All of them: they do not wait for each other."""

    def __init__(self, world: "World", random: Random) -> None:
        self._world = world
        self._random = random
        self.seen = 0
        self._floors: dict[int, int] = {}  # by open operation: what was seen when it began
        self._starts: dict[int, int] = {}  # by open append: where it begins
        self._number = 0
        self.acked = 0
        self.reads = 0
        self.changes = 0

    def _target(self) -> "Member | None":
        """Mostly a leader; an old one as well."""
        up = [member for member in self._world.members.values() if member.raft is not None]
        leaders = [member for member in up if member.raft and isinstance(member.raft.role, Leader)]
        choices = leaders if leaders and self._random.random() < 0.9 else up
        return self._random.choice(choices) if choices else None

    def append(self) -> None:
        member = self._target()
        if member is None or member.raft is None:
            return
        self._number += 1
        number, size = self._number, self._random.choice((12, 12, 20, 40))
        self._floors[number] = self.seen
        self._starts[number] = member.storage.end
        if member.write(number, size) is None:
            del self._floors[number], self._starts[number]

    def acknowledged(self, appends: list[tuple[int, int]]) -> None:
        """Appends are committed: where each ends, and its number."""
        for end, number in appends:
            start = self._starts.pop(number)
            floor = self._floors.pop(number)
            assert start >= floor, f"linearizability: append {number} is at {start}, and {floor} was seen before"
            assert end <= self._world.check.committed_end, f"append {number} is acknowledged, and not committed"
            self.acked += 1
            self.seen = max(self.seen, end)

    def cut(self, numbers: list[int]) -> None:
        """Appends are lost, which no client was told otherwise."""
        for number in numbers:
            del self._starts[number], self._floors[number]

    def start_read(self) -> None:
        member = self._target()
        if member is None or member.raft is None:
            return
        self._number += 1
        self._floors[self._number] = self.seen
        member.step([Read(self._number)])

    def read(self, token: object, offset: int) -> None:
        assert isinstance(token, int)
        floor = self._floors.pop(token)
        assert offset >= floor, f"linearizability: a read sees {offset}, and {floor} was seen before it began"
        self.reads += 1
        self.seen = max(self.seen, offset)

    def answered(self, token: object, fault: str | None) -> None:
        if isinstance(token, int):
            self._floors.pop(token)
        elif fault is None:
            self.changes += 1

    # ── Administration ────────────────────────────────────────────────────────────────────────────────────────────

    def transfer(self) -> None:
        member = self._target()
        if member is not None:
            member.step([Transfer(self._random.choice(list(self._world.members)), "transfer")])

    def change_members(self) -> None:
        member = self._target()
        if member is None or member.raft is None:
            return
        present = {one.id: one for one in member.raft.node.members.all}
        name = self._random.choice(list(self._world.members))
        one = present.pop(name, None)
        kind = self._random.choice(("learner", "voter", "voter", "gone"))
        if kind != "gone" or (one is not None and len(present) < 2):
            present[name] = GroupMember(name, kind != "learner" or one is None)
            if one is None:
                present[name] = GroupMember(name, False)
        wanted = tuple(present[name] for name in sorted(present))
        if sum(one.voter for one in wanted) >= 2:
            member.step([ChangeMembers(wanted, "change")])

    def replace_unreachable(self, member: "Member", near: list[str], far: list[str]) -> None:
        """An administrator of a leader that is cut off replaces the members that it can't reach, one at a time."""
        if member.raft is None or not isinstance(member.raft.role, Leader):
            return
        present = {one.id: one for one in member.raft.node.members.all}
        gone = [name for name in far if name in present]
        new = [name for name in near if name not in present or not present[name].voter]
        if new and (not gone or self._random.random() < 0.5):
            name = self._random.choice(new)
            present[name] = GroupMember(name, name in present)
        elif gone:
            del present[self._random.choice(gone)]
        member.step([ChangeMembers(tuple(present[name] for name in sorted(present)), "change")])
