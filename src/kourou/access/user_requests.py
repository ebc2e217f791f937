"""Requests about users and policies: create, change, delete, show.

Java: AdminBrokerProcessor.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

import msgspec

from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.access.gate import Sender
from kourou.access.users import UserType, find_type, name_of
from kourou.protocol import bodies, fastjson
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import access as headers
from kourou.protocol.names import shown
from kourou.turns import Slices

log = logging.getLogger(__name__)

_ONLY_CREATED_BY_SUPER = "The super user can only be create by super user"
_ONLY_CHANGED_BY_SUPER = "The super user can only be update by super user"


H_co = TypeVar("H_co", covariant=True)


class Question(Protocol[H_co]):
    """A request, as a server has it."""

    @property
    def peer(self) -> Sender: ...

    @property
    def command(self) -> Command: ...

    @property
    def header(self) -> H_co: ...

    @property
    def access_key(self) -> str | None:
        """The user who, according to the request, has signed it; None if it is not signed."""


class UserRequests:
    """Serves requests about the users of one server. Its functions raise AccessError."""

    def __init__(
        self, directory: Directory | None, read: Callable[[type[Any], Any], Any], touch: Callable[[], None]
    ) -> None:
        """`directory` is None if access control is off. `read` reads the body of a request.

        `touch` is called after each change, so that it is saved.
        """
        self._users = directory
        self._read = read
        self._touch = touch

    @property
    def _directory(self) -> Directory:
        if self._users is None:
            raise AccessError(
                "The authenticationMetadataProvider is not configured: set authenticationEnabled=true in the "
                "configuration file and restart the server"
            )
        return self._users

    def table(self) -> dict[int, Callable[[Any], Any]]:
        """Request code to the function that serves it."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.put_acl,
            RequestCode.AUTH_UPDATE_ACL: self.put_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # ── Users ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_user(self, asked: Question[headers.CreateUser]) -> Command:
        """AUTH_CREATE_USER."""
        info = self._user_info(asked, asked.header.username or "")
        if find_type(info.user_type) is UserType.SUPER and not self._is_by_super(asked):
            raise AccessError(_ONLY_CREATED_BY_SUPER, ResponseCode.SYSTEM_ERROR)
        return self._change(asked, "user created", info.username, lambda: self._directory.create_user(info))

    def update_user(self, asked: Question[headers.UpdateUser]) -> Command:
        """AUTH_UPDATE_USER."""
        info = self._user_info(asked, asked.header.username or "")
        if find_type(info.user_type) is UserType.SUPER and not self._is_by_super(asked):
            raise AccessError(_ONLY_CHANGED_BY_SUPER, ResponseCode.SYSTEM_ERROR)
        self._check_super(asked, info.username)
        return self._change(asked, "user changed", info.username, lambda: self._directory.update_user(info))

    def delete_user(self, asked: Question[headers.DeleteUser]) -> Command:
        """AUTH_DELETE_USER."""
        name = asked.header.username or ""
        if not name.strip():
            raise AccessError("username can not be blank")
        self._check_super(asked, name)
        if self._directory.user(name) is None:
            return asked.command.answer()
        return self._change(asked, "user deleted", name, lambda: self._directory.delete_user(name))

    def get_user(self, asked: Question[headers.GetUser]) -> Command:
        """AUTH_GET_USER. Only a super user gets the password."""
        name = asked.header.username or ""
        if not name.strip():
            raise AccessError("The username is blank", ResponseCode.INVALID_PARAMETER)
        user = self._directory.user(name)
        if user is None:
            return asked.command.answer()
        return asked.command.answer(body=fastjson.encode(self._shown(asked, user.info)))

    def list_users(self, asked: Question[headers.ListUsers]) -> Slices[Command]:
        """AUTH_LIST_USER."""
        part = asked.header.filter or ""
        found = (self._shown(asked, user.info) for user in self._directory.users(part))
        return _answer_in_slices(asked, found)

    # ── Policies ──────────────────────────────────────────────────────────────────────────────────────────────────

    def put_acl(self, asked: Question[headers.CreateAcl | headers.UpdateAcl]) -> Command:
        """AUTH_CREATE_ACL, AUTH_UPDATE_ACL: both add entries, or replace those of the same resources."""
        info = self._read(bodies.AclInfo, asked)
        if not info.policies:
            raise AccessError("The body of acl is null")
        subject = info.subject if name_of(info.subject) else asked.header.subject
        return self._change(asked, "policies changed", subject, lambda: self._directory.put_acl(subject or "", info))

    def delete_acl(self, asked: Question[headers.DeleteAcl]) -> Command:
        """AUTH_DELETE_ACL."""
        header = asked.header
        subject = header.subject or ""
        return self._change(
            asked,
            "policies deleted",
            subject,
            lambda: self._directory.delete_acl(subject, header.policy_type, header.resource),
        )

    def get_acl(self, asked: Question[headers.GetAcl]) -> Command:
        """AUTH_GET_ACL."""
        acl = self._directory.acl(asked.header.subject or "")
        return asked.command.answer(body=fastjson.encode(acl.info) if acl is not None else b"")

    def list_acls(self, asked: Question[headers.ListAcls]) -> Slices[Command]:
        """AUTH_LIST_ACL."""
        header = asked.header
        found = self._directory.acls(header.subject_filter or "", header.resource_filter or "")
        return _answer_in_slices(asked, (None if acl is None else acl.info for acl in found))

    # ── Common ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _user_info(self, asked: Question[Any], username: str) -> bodies.UserInfo:
        if not username:
            raise AccessError("The username is blank", ResponseCode.INVALID_PARAMETER)
        info: bodies.UserInfo = self._read(bodies.UserInfo, asked)
        return msgspec.structs.replace(info, username=username)

    def _is_by_super(self, asked: Question[Any]) -> bool:
        """Did a super user send the request? False if the request needs no signature and has none."""
        user = self._directory.user(asked.access_key or asked.peer.user or "")
        return user is not None and user.is_super

    def _check_super(self, asked: Question[Any], username: str | None) -> None:
        """Raises AccessError if the user is a super user and the sender is not."""
        user = self._directory.user(username or "")
        if user is not None and user.is_super and not self._is_by_super(asked):
            raise AccessError(_ONLY_CHANGED_BY_SUPER)

    def _shown(self, asked: Question[Any], info: bodies.UserInfo) -> bodies.UserInfo:
        return info if self._is_by_super(asked) else msgspec.structs.replace(info, password=None)

    def _change(self, asked: Question[Any], what: str, who: str | None, change: Callable[[], object]) -> Command:
        change()
        self._touch()
        log.info("%s name=%s peer=%s", what, shown(who or ""), asked.peer.address)
        return asked.command.answer()


def _answer_in_slices(
    asked: Question[Any], found: Iterable[bodies.UserInfo | bodies.AclInfo | None]
) -> Slices[Command]:
    """A list as JSON; nothing if it is empty. None is left out."""
    parts: list[bytes] = []
    size = 0
    for one in found:
        if one is not None:
            parts.append(fastjson.encode(one))
            size += len(parts[-1])
        yield size
    return asked.command.answer(body=b"[" + b",".join(parts) + b"]" if parts else b"")
