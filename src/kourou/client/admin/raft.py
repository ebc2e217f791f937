"""Raft groups of Kourou's brokers: their state, their leader, their members."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from kourou.client.admin.requests import AdminRequests
from kourou.protocol.bodies import RaftPeer, RaftStatus
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.errors import KourouError, RefusedError, refused
from kourou.protocol.headers import ChangeRaftMember, TransferRaftLeadership

STEP_S: Final = 0.2
"""How often the state of a new member is requested while it copies the log."""

LEADER_S: Final = 10.0
"""How long to wait for a group to have a leader."""


class Raft:
    """`mq.admin.raft`. A group is named by the address of any of its brokers, `host:port`."""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    async def status(self, broker: str) -> RaftStatus:
        """The state of the group, as this member sees it."""
        return await self._ask.body(RaftStatus, broker, RequestCode.GET_RAFT_STATUS)

    async def leader(self, broker: str) -> tuple[str, RaftStatus]:
        """The address of the leader's broker, and the state of the group as the leader sees it.

        Raises RefusedError if the group has no leader, or the leader is not registered with the name servers.
        """
        status = await self.status(broker)
        found = await self._find_leader(broker, status)
        if found is not None:
            return found
        text = (
            f"{status.leader} leads the group, and no name server knows its address" if status.leader else "no leader"
        )
        raise refused(
            ResponseCode.SYSTEM_ERROR, f"group {status.group}: {text}: try again, or give the leader's address"
        )

    async def _find_leader(self, broker: str, status: RaftStatus) -> tuple[str, RaftStatus] | None:
        """None if there is none. `status` is the state of the group as this broker sees it."""
        if status.role == "leader":
            return broker, status
        for address in await self._others(broker):
            try:
                found = await self.status(address)
            except KourouError:
                continue
            if found.role == "leader" and found.group == status.group:
                return address, found
        return None

    async def transfer(self, broker: str, member: str) -> None:
        """Let a member lead. Returns when it does. Raises RefusedError."""
        address, _ = await self.leader(broker)
        header = TransferRaftLeadership(member=member)
        await self._ask.broker(address, RequestCode.TRANSFER_RAFT_LEADERSHIP, header)

    async def add(
        self,
        broker: str,
        member: str,
        address: str,
        *,
        learner: bool = False,
        timeout: float = 600.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Add a member, whose broker is at this address of the group. Returns when it votes. Raises RefusedError.

        First it is a learner, which copies the log and does not vote; with `learner` it remains one. `progress` is
        called with how much of the log it has, and how long the log is. After a failure, the same call continues.
        """
        _, status = await self._led(broker)
        found = _peer(status, member)
        if found is None or found.address != address:
            await self._change(broker, member, "voter" if found is not None and found.voter else "learner", address)
            _, status = await self._led(broker)
        if learner:
            return
        async with asyncio.timeout(timeout):
            while True:
                found = _peer(status, member)
                if found is not None and found.voter and found.address == address:
                    return
                if found is not None and progress is not None:
                    progress(found.log_end or 0, status.log_end)
                if found is not None and found.log_end is not None and found.log_end >= status.commit:
                    with suppress(RefusedError):  # it has fallen behind, or the last change is not done yet
                        await self._change(broker, member, "voter", address)
                await asyncio.sleep(STEP_S)
                _, status = await self._led(broker)

    async def remove(self, broker: str, member: str) -> None:
        """Remove a member. Stop its broker afterwards. Raises RefusedError."""
        await self._change(broker, member, "none", None)

    async def demote(self, broker: str, member: str) -> None:
        """Let a member be a learner, which does not vote. Raises RefusedError."""
        await self._change(broker, member, "learner", None)

    async def _change(self, broker: str, member: str, role: str, address: str | None) -> None:
        leader, _ = await self._led(broker)
        header = ChangeRaftMember(member=member, role=role, address=address)
        await self._ask.broker(leader, RequestCode.CHANGE_RAFT_MEMBER, header)

    async def _led(self, broker: str) -> tuple[str, RaftStatus]:
        """As `leader`, and waits a moment for one. A broker that belongs to no group is not asked again."""
        loop = asyncio.get_running_loop()
        until = loop.time() + LEADER_S
        while loop.time() < until:
            try:
                found = await self._find_leader(broker, await self.status(broker))
                if found is not None:
                    return found
            except RefusedError as error:
                if error.code != ResponseCode.SYSTEM_BUSY:  # it is starting
                    raise
            await asyncio.sleep(STEP_S)
        return await self.leader(broker)

    async def _others(self, broker: str) -> list[str]:
        """The addresses of the group's other brokers, that of the leader first."""
        table = (await self._ask.cluster()).broker_addr_table.values()
        groups = [group.broker_addrs for group in table if broker in group.broker_addrs.values()]
        return [one for addresses in groups for _, one in sorted(addresses.items()) if one != broker]


def _peer(status: RaftStatus, member: str) -> RaftPeer | None:
    return next((peer for peer in status.members if peer.id == member), None)
