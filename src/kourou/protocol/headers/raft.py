"""Requests from admins to members of Raft groups. All of them are Kourou's own."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    READ_CLUSTER,
    Direction,
    Header,
    request,
    request_without_header,
)

request_without_header(
    RequestCode.GET_RAFT_STATUS,
    Direction.ADMIN_TO_BROKER,
    "Kourou's own: get the state of a Raft group as one member sees it.",
    access=READ_CLUSTER,
    answer_body=bodies.RaftStatus,
)


@request(RequestCode.TRANSFER_RAFT_LEADERSHIP, Direction.ADMIN_TO_BROKER, access=CHANGE_CLUSTER)
class TransferRaftLeadership(Header):
    """Kourou's own: let this member lead its Raft group."""

    member: str


@request(RequestCode.CHANGE_RAFT_MEMBER, Direction.ADMIN_TO_BROKER, access=CHANGE_CLUSTER)
class ChangeRaftMember(Header):
    """Kourou's own: change one member of a Raft group.

    `role` is what it becomes: `voter`, `learner` or `none`. A new member needs an address.
    """

    member: str
    role: str
    address: str | None = None
