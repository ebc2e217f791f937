"""The rules of access control: users with policies, or the accounts of plain_acl.yml.

    off            every request is served
    users          signatures, users and policies: authenticationEnabled, authorizationEnabled
    plain_acl.yml  the accounts of RocketMQ 4: aclEnable

Every request, even an unknown one, is authenticated before anything else in it is examined.
"""

from collections.abc import Callable, Sequence

from kourou.access.directory import Directory, Saved
from kourou.access.errors import AccessError, AccessFileError
from kourou.access.gate import Gate, RefusalLog, add_configured
from kourou.access.guard import Guard
from kourou.access.plain_acl import PlainAcl
from kourou.access.plain_guard import PlainGuard
from kourou.access.sealing import is_clear, seal, unseal
from kourou.access.touches import Touch
from kourou.access.user_requests import UserRequests
from kourou.broker.access import Access, Rules
from kourou.broker.events import Asked, Peer
from kourou.broker.persistence import Persistence
from kourou.broker.request_bodies import RequestBodies
from kourou.broker.settings import BrokerSettings
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.store.errors import BadStoreError
from kourou.store.metadata import Kind
from kourou.store.store import Store

USERS = "users"
ACCESS_FILE = Kind("access.json", "users and policies", Saved)

_MAY_NAME_NOTHING = frozenset((RequestCode.END_TRANSACTION, RequestCode.UNREGISTER_CLIENT, RequestCode.HEART_BEAT))
"""Requests whose names are optional. The topic of a transaction is checked when its half message is read; groups of
producers have no rights."""


class AccessControl:
    """Users, their file, and the rules in force."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        persistence: Persistence,
        access: Access,
        read: RequestBodies,
        key: bytes | None,
    ) -> None:
        """`key` seals the file of users. Raises BadStoreError, OSError."""
        self._access = access
        self._cluster = settings.cluster
        self._persistence = persistence
        file = store.metadata(ACCESS_FILE, UsersSealer(key))
        persistence.add(USERS, file, lambda: Saved() if self.directory is None else self.directory.save())
        saved = file.load() if settings.authenticates else None
        self.directory = open_directory(settings, saved, lambda: persistence.touch(USERS))
        self.refusals = RefusalLog()
        access.change(make_rules(settings, self.directory, self.refusals))
        self.requests = UserRequests(self.directory, read.read, self._users_changed)

    def use_accounts(self, acl: PlainAcl) -> None:
        """Use the accounts of plain_acl.yml, which was read again."""
        self._access.change(GuardRules(self._cluster, PlainGuard(acl), self.refusals))

    def _users_changed(self) -> None:
        """Users or policies have changed: the grants of connections become void."""
        self._persistence.touch(USERS)
        self._access.change(self._access.rules)


class UsersSealer:
    """Seals the file of users, if there is a key."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def seal(self, content: bytes) -> bytes:
        return seal(content, self._key)

    def is_clear(self, data: bytes) -> bool:
        return self._key is not None and is_clear(data)

    def unseal(self, data: bytes) -> bytes:
        """Raises BadStoreError."""
        try:
            return unseal(data, self._key, f"config/{ACCESS_FILE.name}")
        except AccessFileError as error:
            raise BadStoreError(str(error)) from None


class GuardRules:
    """Rules by users and policies, or by the accounts of plain_acl.yml."""

    def __init__(self, cluster: str, guard: Guard | PlainGuard, refusals: RefusalLog) -> None:
        self.refusal_code: int = guard.refusal_code
        self._cluster = cluster
        self._gate = Gate(guard, refusals)
        self.exempt_codes = guard.exempt_codes
        self.secret_of = guard.secret_of

    def authenticate(self, peer: Peer, command: Command, now_ms: int) -> None:
        """Raises AccessError."""
        self._gate.authenticate(peer, command, now_ms)

    def verdict(self, asked: Asked, touches: Sequence[Touch]) -> str | None:
        """Why the request is not allowed; None if it is. Raises AccessError."""
        if not touches and asked.command.code in _MAY_NAME_NOTHING:
            return None
        return self._gate.verdict(asked.peer, asked.command, touches, self._cluster, asked.now_ms)

    def name_of(self, asked: Asked) -> str | None:
        """The sender of a request. Raises AccessError."""
        return self._gate.name_of(asked.peer, asked.command, asked.now_ms)

    def may_still(self, name: str | None, peer: Peer, code: int, touches: Sequence[Touch]) -> bool:
        """May this sender of an earlier request on the connection send such a request now?"""
        return self._gate.may_still(name, peer, code, touches)


def make_rules(settings: BrokerSettings, directory: Directory | None, refusals: RefusalLog) -> Rules | None:
    """The rules according to the settings; None if access control is off."""
    guard: Guard | PlainGuard
    if directory is not None:
        guard = Guard(
            directory,
            authorizes=settings.authorizes,
            unsigned_codes=settings.unsigned_codes,
            unruled_codes=settings.unruled_codes,
        )
    elif settings.plain_acl is not None:
        guard = PlainGuard(settings.plain_acl)
    else:
        return None
    return GuardRules(settings.cluster, guard, refusals)


def open_directory(settings: BrokerSettings, saved: Saved | None, touch: Callable[[], None]) -> Directory | None:
    """The users of a broker, with those of its configuration; None if it does not authenticate.

    `touch` is called if a user was added. Raises BadStoreError.
    """
    if not settings.authenticates:
        return None
    try:
        directory = Directory() if saved is None else Directory.load(saved)
        if add_configured(directory, (settings.first_user, settings.inner_user), settings.migrated):
            touch()
    except AccessError as error:
        raise BadStoreError(
            f"the users and policies are invalid: {error}; correct the configuration or {ACCESS_FILE.name}"
        ) from None
    return directory
