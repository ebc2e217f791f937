"""The interface of access control for servers: authenticates and authorizes each request, and logs refusals."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol

from kourou.access.addresses import Address, parse_address
from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.access.guard import Guard, Need
from kourou.access.plain_acl import PlainAcl, migrate
from kourou.access.plain_guard import PlainGuard
from kourou.access.policies import ResourceType
from kourou.access.touches import Touch
from kourou.access.users import User
from kourou.protocol.bodies import UserInfo
from kourou.protocol.command import Command
from kourou.protocol.headers import Resource
from kourou.protocol.names import shown

log = logging.getLogger(__name__)

LOG_INTERVAL_MS = 60_000
LOGGED_HOSTS_MAX = 1_000

_TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.CLUSTER: ResourceType.CLUSTER,
}


class Sender(Protocol):
    """The connection that a request came on."""

    @property
    def address(self) -> str:
        """`ip:port`."""

    @property
    def user(self) -> str | None:
        """The user that its certificate names."""


class RefusalLog:
    """Logs refusals: at most one line per minute for each host."""

    def __init__(self) -> None:
        self.count = 0
        self._logged: dict[str, int] = {}  # hosts, and when

    def refused(self, peer: str, code: int, remark: str, now_ms: int) -> None:
        """`peer` is `ip:port`."""
        self.count += 1
        host = peer.rpartition(":")[0]
        if now_ms - self._logged.get(host, -LOG_INTERVAL_MS) < LOG_INTERVAL_MS:
            return
        if len(self._logged) >= LOGGED_HOSTS_MAX:
            self._logged.clear()
        self._logged[host] = now_ms
        log.warning("request %d refused peer=%s: %s", code, peer, shown(remark))


class Gate:
    """One guard and its log."""

    def __init__(self, guard: Guard | PlainGuard, refusals: RefusalLog) -> None:
        self.refusal_code: int = guard.refusal_code
        self._guard: Any = guard  # accepts only senders that it has authenticated itself
        self._refusals = refusals
        self._last: tuple[Command | None, object] = None, None  # the last request, and its sender

    def authenticate(self, peer: Sender, command: Command, now_ms: int) -> None:
        """Raises AccessError if the sender of the request is unknown."""
        try:
            self._last = command, self._guard.authenticate(command, address_of(peer.address), peer.user)
        except AccessError as error:
            self._refusals.refused(peer.address, command.code, str(error), now_ms)
            raise

    def verdict(
        self, peer: Sender, command: Command, touches: Sequence[Touch], cluster: str | None, now_ms: int
    ) -> str | None:
        """Why the request is not allowed; None if it is. `cluster` is the server's own. Raises AccessError."""
        if self._last[0] is not command:  # a long request, in a later slice
            self.authenticate(peer, command, now_ms)
        needs, address = _needs(touches, cluster), address_of(peer.address)
        reason: str | None = self._guard.refusal(self._last[1], command.code, needs, address)
        if reason is not None:
            self._refusals.refused(peer.address, command.code, reason, now_ms)
        return reason

    def name_of(self, peer: Sender, command: Command, now_ms: int) -> str | None:
        """The sender of a request, as `may_still` takes it; None: unknown. Raises AccessError."""
        if self._last[0] is not command:
            self.authenticate(peer, command, now_ms)
        name: str | None = self._guard.name_of(self._last[1], command, peer.user)
        return name

    def may_still(self, name: str | None, peer: Sender, code: int, touches: Sequence[Touch]) -> bool:
        """May this sender of an earlier request on the connection send such a request?"""
        allowed: bool = self._guard.may_still(name, code, list(_needs(touches, None)), address_of(peer.address))
        return allowed


def _needs(touches: Sequence[Touch], cluster: str | None) -> Iterator[Need]:
    for rights, resource, name in touches:
        yield Need(_TYPES[resource], cluster if name is None and resource is Resource.CLUSTER else name, rights)


@lru_cache(maxsize=4_096)
def address_of(peer: str) -> Address:
    """The address in `ip:port`."""
    return parse_address(peer.rpartition(":")[0].strip("[]"))


def add_configured(directory: Directory, supers: Iterable[User | None], accounts: PlainAcl | None) -> bool:
    """Creates the users in the configuration that do not exist. Returns whether any were. Raises AccessError."""
    added = False
    for user in supers:
        added |= user is not None and _add(directory, user.info)
    for account in accounts.accounts.values() if accounts is not None else ():
        info, acl = migrate(account)
        if _add(directory, info):
            directory.put_acl(acl.subject or "", acl)
            added = True
    if not any(user.is_super for user in directory.users()):
        log.warning("without a super user, no users can be created: set initAuthenticationUser")
    return added


def _add(directory: Directory, info: UserInfo) -> bool:
    if directory.user(info.username or "") is not None:
        return False
    directory.create_user(info)
    log.info("user created name=%s type=%s", shown(info.username or ""), info.user_type)
    return True
