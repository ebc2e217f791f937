"""The administrative requests of a Raft group: show its state, transfer the leadership, change the members.

Only the leader changes the group. It answers when the change is complete: another member leads, or a majority has the
new members on disk. Only one change can be in progress at a time, and the machine (`kourou.raft.change`) refuses unsafe
ones. The addresses of the members come from `dLegerPeers` until the members are changed for the first time; from then
on the group stores them itself.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kourou.broker.events import Asked, Outbox, Refused, Request
from kourou.broker.property_values import members_of
from kourou.broker.raft_group import RaftGroup
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.raft.events import Answered, ChangeMembers, Transfer
from kourou.raft.leader import Leader
from kourou.raft.members import Member

VOTER, LEARNER, NONE = "voter", "learner", "none"
ROLES: Final = (VOTER, LEARNER, NONE)


def raft_requests(
    group: RaftGroup | None, outbox: Outbox, table: Mapping[int, Callable[..., Any]]
) -> dict[int, Callable[..., Any]]:
    """Functions by request code. `table` has those of a broker outside of a group."""
    if group is None:
        return dict.fromkeys(
            (RequestCode.GET_RAFT_STATUS, RequestCode.TRANSFER_RAFT_LEADERSHIP, RequestCode.CHANGE_RAFT_MEMBER),
            _no_group,
        )
    query_offset = _with_tables(group, table[RequestCode.QUERY_CONSUMER_OFFSET])
    return {**RaftAdmin(group, outbox).requests(), RequestCode.QUERY_CONSUMER_OFFSET: query_offset}


def _with_tables(group: RaftGroup, serve: Callable[..., Any]) -> Callable[..., Any]:
    """While a group has no leader, clients ask its other members. A consumer that got no offset, or an old one, from a
    member that has not read its tables would skip messages, or get them again."""

    def serve_with_tables(asked: Request[Any]) -> object:
        if not group.has_tables:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this member has not read the tables of "
                "its Raft group yet",
            )
        result: object = serve(asked)
        return result

    return serve_with_tables


def _no_group(_asked: Asked) -> Command:
    raise Refused(ResponseCode.SYSTEM_ERROR, "this broker does not belong to a Raft group: set enableDLegerCommitLog")


class RaftAdmin:
    """See the module's text."""

    def __init__(self, group: RaftGroup, outbox: Outbox) -> None:
        self._group = group
        self._outbox = outbox
        group.answer = self._answer

    def requests(self) -> dict[int, Callable[..., Command | None]]:
        return {
            RequestCode.GET_RAFT_STATUS: self.status,
            RequestCode.TRANSFER_RAFT_LEADERSHIP: self.transfer,
            RequestCode.CHANGE_RAFT_MEMBER: self.change,
        }

    def status(self, asked: Asked) -> Command:
        """GET_RAFT_STATUS."""
        return asked.command.answer(body=status_of(self._group, asked.now_ms).encode())

    def transfer(self, asked: Request[headers.TransferRaftLeadership]) -> None:
        """TRANSFER_RAFT_LEADERSHIP."""
        self._check_in()
        self._group.ask(Transfer(asked.header.member, asked))

    def change(self, asked: Request[headers.ChangeRaftMember]) -> Command | None:
        """CHANGE_RAFT_MEMBER."""
        self._check_in()
        header = asked.header
        present = self._group.members
        wanted = _changed(present, header.member, header.role, header.address or "")
        if wanted == present and isinstance(self._group.raft.role, Leader):
            return asked.command.answer(remark="nothing changes")
        self._group.ask(ChangeMembers(wanted, asked))
        return None

    def _check_in(self) -> None:
        if self._group.broken is not None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"this member left its group: {self._group.broken}")

    def _answer(self, answered: Answered) -> None:
        """Answer the administrator: the request has succeeded or failed."""
        asked = answered.token
        assert isinstance(asked, Asked)
        if answered.fault is None:
            answer = asked.command.answer()
        else:
            answer = asked.command.answer(ResponseCode.SYSTEM_ERROR, answered.fault)
        self._outbox.reply(asked.peer, asked.command, answer)


def _changed(present: tuple[Member, ...], name: str, role: str, address: str) -> tuple[Member, ...]:
    """The list of members after the change of this one. Raises Refused."""
    if role not in ROLES:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"unknown role {role!r}: use one of {', '.join(ROLES)}")
    before = next((member for member in present if member.id == name), None)
    if role == NONE:
        return tuple(member for member in present if member.id != name)
    address = address or (before.address if before is not None else "")
    try:
        members_of(f"{name}-{address}")
    except ValueError as error:
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"invalid member {name!r} at {address!r}: {error}. Use an id such as n3 and an address such as "
            "10.0.0.8:40911",
        ) from None
    other = next((member for member in present if member.id != name and member.address == address), None)
    if other is not None:
        raise Refused(ResponseCode.SYSTEM_ERROR, f"{other.id} already has the address {address}")
    member = Member(name, role == VOTER, address)
    if before is None:
        return (*present, member)
    return tuple(member if one.id == name else one for one in present)


def status_of(group: RaftGroup, now_ms: int) -> bodies.RaftStatus:
    """GET_RAFT_STATUS's answer."""
    raft, node = group.raft, group.raft.node
    role = raft.role
    followers = role.followers if isinstance(role, Leader) else {}
    connected = group.transport.connected
    peers = []
    for member in group.members:
        peer = bodies.RaftPeer(
            id=member.id, address=member.address, voter=member.voter, connected=member.id in connected
        )
        if member.id == node.id:
            peer = bodies.RaftPeer(
                id=member.id,
                address=member.address,
                voter=member.voter,
                connected=True,
                log_end=node.log.stored,
                durable=node.log.durable,
                silent_millis=0,
            )
        elif member.id in followers:
            known = followers[member.id]
            peer = bodies.RaftPeer(
                id=member.id,
                address=member.address,
                voter=member.voter,
                connected=member.id in connected,
                log_end=known.matched,
                durable=known.durable,
                silent_millis=max(now_ms - known.heard_ms, 0),
            )
        peers.append(peer)
    return bodies.RaftStatus(
        group=group.name,
        id=node.id,
        role=role.name,
        term=node.term,
        leader=node.leader,
        log_start=node.log.start,
        log_end=node.log.stored,
        durable=node.log.durable,
        commit=node.commit,
        elections=group.elections,
        election_millis=node.settings.election_ms,
        members_version=node.members.version,
        members=peers,
        broken=group.broken,
    )
