"""Decides about each request: authenticates the sender, and checks that the request is allowed.

    authenticate ─▶ the sender, by access key and signature
    refusal      ─▶ the reason if its policies do not allow the request; a super user may do everything

A signature covers the fields of a request and not its code. An eavesdropper could therefore replay a signature with
another code. So that this can't read passwords or grant rights, signed requests about users must not have other fields
than their own.

A request that touches nothing by name has no policy that could allow it: it is for super users alone.
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kourou.access.addresses import Address
from kourou.access.decisions import Decision
from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.access.policies import ResourceType
from kourou.access.users import User, UserStatus
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS
from kourou.protocol.headers.client import Common
from kourou.protocol.headers.table import Right
from kourou.protocol.names import shown
from kourou.protocol.signing import ACCESS_KEY, SIGNATURE_FIELDS, Credentials

_NEVER_EXEMPT = frozenset(range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))
"""Requests about users and policies: their answers have passwords, and they grant rights."""


class Need(NamedTuple):
    """The need for one of `rights` on a resource."""

    type: ResourceType
    name: str | None
    """None stands for all resources of the type."""
    rights: Right

    @property
    def resource(self) -> str:
        """The resource as refusals name it."""
        return f"{self.type.value}:{'*' if self.name is None else self.name}"


class Guard:
    """Access control by users and policies."""

    refusal_code: Final = ResponseCode.NO_PERMISSION

    def __init__(
        self,
        directory: Directory,
        *,
        authorizes: bool = True,
        unsigned_codes: Collection[int] = (),
        unruled_codes: Collection[int] = (),
    ) -> None:
        """`unsigned_codes` need no signature, `unruled_codes` no policy. Without `authorizes`, no request needs one."""
        self.directory = directory
        self._authorizes = authorizes
        self._unsigned_codes = frozenset(unsigned_codes) - _NEVER_EXEMPT
        self._unruled_codes = frozenset(unruled_codes) - _NEVER_EXEMPT
        self.exempt_codes = self._unsigned_codes | self._unruled_codes

    def secret_of(self, access_key: str) -> str | None:
        """The secret key of a user; None if the user does not exist or is disabled."""
        user = self.directory.user(access_key)
        return None if user is None or user.status is UserStatus.DISABLE else user.password

    def authenticate(self, command: Command, _address: Address, certified: str | None = None) -> User | None:
        """The user who sent a request; None if it needs no signature and has no valid one. Raises AccessError.

        `certified` is the user that the certificate of the connection names; it is used for requests without a
        signature.
        """
        try:
            return self._sender(command, certified)
        except AccessError:
            if command.code in self._unsigned_codes:
                return None
            raise

    def _sender(self, command: Command, certified: str | None) -> User:
        signed_by = (command.ext or {}).get(ACCESS_KEY)
        name = signed_by or certified
        if not name:
            raise AccessError("username cannot be null.")
        user = self.directory.user(name)
        if user is None:
            raise AccessError(f"User:{name} is not found.")
        if user.status is UserStatus.DISABLE:
            raise AccessError(f"User:{name} is disabled.")
        if signed_by and not Credentials(user.name, user.password).have_signed(command):
            raise AccessError("check signature failed.")
        if signed_by and command.code in _NEVER_EXEMPT:
            _check_fields(command)
        return user

    def name_of(self, user: User | None, _command: Command, _certified: str | None) -> str | None:
        """The sender of a request, as `may_still` takes it; None: unknown."""
        return None if user is None else user.name

    def may_still(self, name: str | None, code: int, needs: Iterable[Need], address: Address) -> bool:
        """May the user with this name, which has sent a request before, send one with this need?"""
        user = None if name is None else self.directory.user(name)
        if user is None:
            return name is None and code in self._unsigned_codes and self.refusal(None, code, needs, address) is None
        return user.status is not UserStatus.DISABLE and self.refusal(user, code, needs, address) is None

    def refusal(self, user: User | None, code: int, needs: Iterable[Need], address: Address) -> str | None:
        """Why the user may not send a request with these needs; None if it may."""
        if not self._authorizes or code in self._unruled_codes or (user is not None and user.is_super):
            return None
        if user is None:
            return "username cannot be null."
        needs = list(needs)
        if not needs:
            return f"{user.subject} has no permission for this request: it needs a super user."
        grants = self.directory.grants(user.name)
        for need in needs:
            decision = Decision.NO_POLICY
            if grants is not None:
                decision = grants.decide(need.type, need.name, need.rights, address)
            if decision is not Decision.ALLOW:
                return f"{user.subject} has no permission to access {need.resource} from {address}, {decision.value}"
        return None


def _check_fields(command: Command) -> None:
    """Raises AccessError if a request has fields that are not its own."""
    header = REQUESTS[command.code].header
    own = () if header is None else header.__struct_encode_fields__
    for name in command.ext or ():
        if name not in own and name not in SIGNATURE_FIELDS and name not in Common.__struct_encode_fields__:
            raise AccessError(f"check signature failed: {shown(name)} is not a field of this request.")
