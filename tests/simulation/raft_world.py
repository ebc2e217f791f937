"""One simulated life of a group: faults and work, then no faults, and then all members have the same log.

A seed decides everything: how many members, the network, the disks, the clocks, and what happens when.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from kourou.raft.events import HardState
from kourou.raft.leader import Leader
from kourou.raft.members import Member as GroupMember, Members
from kourou.raft.settings import RaftSettings

from .raft_check import Check
from .raft_clients import Clients
from .raft_member import Clock, Member
from .raft_network import Network
from .raft_storage import Storage

ELECTION_MS = 100
TROUBLE_MS = 3_000
PEACE_MS = 20_000


class World:
    """See the module's text."""

    def __init__(self, seed: int, storage: type[Storage] = Storage) -> None:
        self.seed = seed
        self._storage = storage
        self.random = random = Random(seed)
        self.now_ms = 0.0
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self.traces: list[str] = []
        self.faults: Counter[str] = Counter()
        self.check = Check()
        self.network = Network(self, random)
        self.clients = Clients(self, random)
        self.is_light = storage is Storage
        self.is_sync = random.random() < 0.8 or not self.is_light
        self.hunted = random.choice(("nobody", "leaders", "voters"))  # whom faults strike at the worst moment
        self.jumps = self.hunted == "voters" or random.random() < 0.2  # clocks jump, so that no lease is valid
        self.slow_disk = random.random() < 0.2
        self.calm_ms = random.choice((30, 60, 150, 300, 600))  # between faults, on average
        count = random.choice((3, 3, 3, 5))
        names = [f"n{number}" for number in range(count)]
        spare = ["n8", "n9"] if random.random() < 0.4 else []
        members = Members(tuple(GroupMember(name) for name in names), 1)
        self.settings = RaftSettings(
            election_ms=ELECTION_MS,
            heartbeat_ms=25,
            lease_percent=0 if self.jumps else 80,
            sync=self.is_sync,
            batch_bytes=random.choice((16, 64, 1_000)) * (1 if self.is_light else 10),
            in_flight_bytes=random.choice((64, 500, 10_000)) * (1 if self.is_light else 10),
            preferred=("n1",) if random.random() < 0.3 else (),
            preferred_gap_bytes=200,
        )
        self.members = {name: self._member(name, members if name in names else Members()) for name in names + spare}
        self.trace(f"seed {seed}: {names + spare}, {self.settings}, jumps {self.jumps}, loss {self.network.loss}")

    def _member(self, name: str, members: Members) -> Member:
        storage = self._storage(self.random, HardState(members=members))
        clock = Clock(self.random.uniform(0.92, 1.08))
        return Member(self, name, storage, self.settings, clock)

    # ── Time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def at(self, when_ms: float, action: Callable[..., None], *args: Any) -> None:
        self._count += 1
        heapq.heappush(self._events, (when_ms, self._count, action, args))

    def trace(self, text: str) -> None:
        self.traces.append(f"{self.now_ms:8.1f}  {text}")

    def disk_ms(self) -> float:
        """How long a sync or a job takes."""
        slow = self.slow_disk and self.random.random() < 0.2
        return self.random.expovariate(1.0) * (60 if slow else 2)

    def run(self) -> None:
        """Raises AssertionError."""
        for member in self.members.values():
            member.start()
        self.at(1, self._work)
        self.at(self.random.expovariate(1 / 100), self._trouble)
        if self.hunted == "voters":
            self.at(50, self._contest_often)
        self._run_until(lambda: self.now_ms >= TROUBLE_MS)
        self._make_peace()
        end_ms = self.now_ms + PEACE_MS
        self._run_until(lambda: self.now_ms >= end_ms or self._is_settled())
        assert self._is_settled(), "no progress in peace"

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        events, count = self._events, 0
        while events:
            self.now_ms, _, action, args = heapq.heappop(events)
            action(*args)
            count += 1
            if count % 16 == 0 and is_over():
                return

    # ── Work and faults ───────────────────────────────────────────────────────────────────────────────────────────

    def _work(self) -> None:
        if self.random.random() < 0.75:
            self.clients.append()
        else:
            self.clients.start_read()
        self.at(self.now_ms + self.random.expovariate(1 / 12), self._work)

    def _trouble(self) -> None:
        if not self._is_troubled:
            return
        name = self.random.choices(list(_TROUBLES), list(_TROUBLES.values()))[0]
        self.faults[name] += 1
        getattr(self, name)()
        self.at(self.now_ms + self.random.expovariate(1 / self.calm_ms), self._trouble)

    def _some(self, *, leaders: bool = False) -> Member:
        members = list(self.members.values())
        if leaders or self.random.random() < 0.5:
            members = [one for one in members if one.raft and isinstance(one.raft.role, Leader)] or members
        return self.random.choice(members)

    def end_one(self) -> None:
        self._stop(self._some())

    def _stop(self, member: Member) -> None:
        if member.raft is None:
            return
        power = self.is_sync and self.random.random() < 0.7
        self.trace(f"{member.name} {'loses power' if power else 'is killed'}")
        member.stop(power=power)
        delay_ms = self.random.choice((1.0, 20.0, 100.0, 400.0))
        self.at(self.now_ms + self.random.expovariate(1 / delay_ms), self._start, member, member.life)

    def _start(self, member: Member, life: int) -> None:
        if member.raft is None and member.life == life:
            self.trace(f"{member.name} starts with {member.storage.hard.term} {member.storage.epochs}")
            member.start()

    def voted(self, member: Member) -> None:
        """A member has just voted: it may forget that, and be asked again by others that run at the same time."""
        if self.hunted == "voters" and self._is_troubled and self.random.random() < 0.3:
            self.at(self.now_ms + self.random.expovariate(1), self._strike_voter, member, member.life)

    def _strike_voter(self, member: Member, life: int) -> None:
        if self._is_troubled and member.life == life and member.raft is not None:
            self.trace(f"{member.name} loses power after its vote")
            member.stop(power=self.is_sync)
            self._start(member, member.life)
            if self.jumps:
                self._jump(member, 2 * ELECTION_MS)

    def leads(self, member: Member) -> None:
        """A member has just been elected: it may not lead for long."""
        if self.hunted == "leaders" and self._is_troubled and self.random.random() < 0.9:
            delay_ms = self.random.choice((3, 10, 30))
            self.at(self.now_ms + self.random.expovariate(1 / delay_ms), self._strike_leader, member, member.life)

    def _strike_leader(self, member: Member, life: int) -> None:
        if self._is_troubled and member.life == life and member.raft is not None:
            if self.random.random() < 0.2:
                self._stop(member)
            else:
                self.isolate(member)

    @property
    def _is_troubled(self) -> bool:
        return self.now_ms < TROUBLE_MS

    def end_many(self) -> None:
        for member in self.random.sample(list(self.members.values()), self.random.randint(2, len(self.members))):
            self._stop(member)

    def split(self) -> None:
        self.trace(self.network.split(list(self.members)))

    def isolate_leader(self) -> None:
        self.isolate(self._some(leaders=True))

    def isolate(self, member: Member) -> None:
        self.trace(f"{member.name} is alone")
        self.network.heal()
        self.network.isolate(member.name, [name for name in self.members if name != member.name])

    def heal(self) -> None:
        self.trace("the network is whole")
        self.network.heal()

    def fill(self) -> None:
        member = self._some()
        if not self.is_light:
            return
        self.trace(f"the disk of {member.name} is full")
        member.fill(is_full=True)
        self.at(self.now_ms + self.random.expovariate(1 / 150), self._free, member)

    def _free(self, member: Member) -> None:
        member.fill(is_full=False)

    def jump(self) -> None:
        if self.jumps:
            self._jump(self._some(), self.random.choice((30, 150, 5_000)))

    def contest(self) -> None:
        """Several members miss their leader at the same time."""
        if self.jumps:
            for member in self.members.values():
                self._jump(member, 5_000)

    def usurp(self) -> None:
        """A leader is cut off and does not know, while the others elect another one."""
        if self.jumps:
            leader = self._some(leaders=True)
            self.isolate(leader)
            for member in self.members.values():
                if member is not leader:
                    self._jump(member, 5_000)

    def _contest_often(self) -> None:
        if self._is_troubled:
            self.contest()
            self.at(self.now_ms + self.random.expovariate(1 / 250), self._contest_often)

    def _jump(self, member: Member, ahead_ms: int) -> None:
        member.clock.ahead_ms += ahead_ms
        member.wake_ms = -1.0
        if member.raft is not None:
            member.step([])

    def trim(self) -> None:
        if self.is_light:
            self._some().trim()

    def transfer(self) -> None:
        self.clients.transfer()

    def change_members(self) -> None:
        self.clients.change_members()

    def replace_unreachable(self) -> None:
        """The group falls apart, and the leader's part changes the members, which only a majority may do."""
        leader = self._some(leaders=True)
        names = [name for name in self.members if name != leader.name]
        self.random.shuffle(names)
        count = self.random.randint(0, len(names) // 2)
        near, far = [leader.name, *names[:count]], names[count:]
        self.trace(f"{near} and {far} are apart, and the first ones change the members")
        self.network.heal()
        for name in near:
            self.network.isolate(name, far)
        when_ms = self.now_ms
        for _ in range(6):
            when_ms += self.random.uniform(1, 12)
            self.at(when_ms, self.clients.replace_unreachable, leader, near, far)

    # ── Peace ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_peace(self) -> None:
        self.trace("peace")
        self.network.become_good()
        self.slow_disk = False
        for member in self.members.values():
            member.fill(is_full=False)
            if member.raft is None:
                self._start(member, member.life)
        self._acked_before = self.clients.acked

    def _is_settled(self) -> bool:
        """There is one leader, its members have its log, and it takes appends and reads."""
        leaders = [one for one in self.members.values() if one.raft is not None and one.raft.is_open]
        if len(leaders) != 1 or self.clients.acked <= self._acked_before:
            return False
        leader = leaders[0]
        assert leader.raft is not None
        ids = leader.raft.node.members.ids
        followers = [self.members[name] for name in ids]
        end = leader.raft.node.commit
        return end > 0 and all(one.storage.digests.get(end) == leader.storage.digests[end] for one in followers)


_TROUBLES = {
    "end_one": 10,
    "end_many": 3,
    "split": 5,
    "isolate_leader": 3,
    "heal": 8,
    "fill": 2,
    "jump": 3,
    "contest": 3,
    "usurp": 3,
    "trim": 3,
    "transfer": 3,
    "change_members": 6,
    "replace_unreachable": 3,
}
