"""Requests from admins to brokers about users and access rules."""

from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.table import (
    CHANGE_CLUSTER,
    READ_CLUSTER,
    Direction,
    Header,
    request,
)

_BROKER = Direction.ADMIN_TO_BROKER


@request(RequestCode.AUTH_CREATE_USER, _BROKER, access=CHANGE_CLUSTER, body=bodies.UserInfo)
class CreateUser(Header):
    """Create a user."""

    username: str | None = None


@request(RequestCode.AUTH_UPDATE_USER, _BROKER, access=CHANGE_CLUSTER, body=bodies.UserInfo)
class UpdateUser(Header):
    """Change a user."""

    username: str | None = None


@request(RequestCode.AUTH_DELETE_USER, _BROKER, access=CHANGE_CLUSTER)
class DeleteUser(Header):
    """Delete a user."""

    username: str | None = None


@request(RequestCode.AUTH_GET_USER, _BROKER, access=READ_CLUSTER, answer_body=bodies.UserInfo)
class GetUser(Header):
    """Get one user."""

    username: str | None = None


@request(RequestCode.AUTH_LIST_USER, _BROKER, access=READ_CLUSTER, answer_body="list of UserInfo")
class ListUsers(Header):
    """List the users whose names contain a text."""

    filter: str | None = None


@request(RequestCode.AUTH_CREATE_ACL, _BROKER, access=CHANGE_CLUSTER, body=bodies.AclInfo)
class CreateAcl(Header):
    """Add rules for a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_UPDATE_ACL, _BROKER, access=CHANGE_CLUSTER, body=bodies.AclInfo)
class UpdateAcl(Header):
    """Change the rules of a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_DELETE_ACL, _BROKER, access=CHANGE_CLUSTER)
class DeleteAcl(Header):
    """Delete rules of a subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@request(RequestCode.AUTH_GET_ACL, _BROKER, access=READ_CLUSTER, answer_body=bodies.AclInfo)
class GetAcl(Header):
    """Get the rules of a subject."""

    subject: str | None = None


@request(RequestCode.AUTH_LIST_ACL, _BROKER, access=READ_CLUSTER, answer_body="list of AclInfo")
class ListAcls(Header):
    """List the rules whose subject and resource contain these texts."""

    subject_filter: str | None = None
    resource_filter: str | None = None
