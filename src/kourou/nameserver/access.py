"""Access control of a name server: users with policies, or accounts of plain_acl.yml. Without it, all are served.

    request ─▶ authenticate the sender ─▶ the resources touched, by the table of requests ─▶ allowed or refused

It has the same users, requests, codes and texts as a broker's; Apache's name servers have none. A request about all
clusters needs its right on each registered cluster, and a super user if there is no cluster. A request about a
broker needs it on the cluster that the broker is registered in, too: names of brokers are the same in all clusters.

Users are a document: a change is in force at once, and answered when it is durable. If it can't be written, it is
undone.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kourou.access.directory import Directory, Saved
from kourou.access.errors import AccessError
from kourou.access.gate import Gate, RefusalLog, add_configured
from kourou.access.guard import Guard
from kourou.access.plain_acl import PlainAcl
from kourou.access.plain_guard import PlainGuard
from kourou.access.sealing import seal
from kourou.access.touches import Touch, touches
from kourou.access.user_requests import UserRequests
from kourou.access.users import User
from kourou.nameserver.documents import Document
from kourou.nameserver.events import Asked, Effect, Kept, Save
from kourou.nameserver.requests import DIALECT_SIZE_MAX, Handler, small_body
from kourou.protocol import fastjson
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Resource
from kourou.protocol.signing import ACCESS_KEY, Credentials
from kourou.turns import Slices

USERS_MAX: Final = 1_000
ENTRIES_MAX: Final = 5_000
"""The most users, and entries of all policies, that requests may create: a change writes all of them in 15 ms."""

CLUSTERS_MAX: Final = 100
"""How many clusters are checked for a request about all of them. With more, only entries for all clusters count."""

OF_ANOTHER_CLUSTER: Final = "no permission to access the cluster of this broker, which is not the one of the request"
"""The text does not name that cluster: a client that guesses names of brokers must not learn other names."""


@dataclass(frozen=True)
class AccessSettings:
    """The settings of access control."""

    authenticates: bool = False
    authorizes: bool = False
    unsigned_codes: frozenset[int] = frozenset()
    unruled_codes: frozenset[int] = frozenset()
    first_user: User | None = None
    inner_user: User | None = None
    """The super user with whose key brokers sign requests, and this server signs its notices to brokers."""
    accounts: PlainAcl | None = None
    """The accounts of plain_acl.yml, used instead of users."""
    migrated: PlainAcl | None = None
    """Accounts that become users."""
    key: bytes | None = None
    """Seals the file of users."""
    saved: Saved | None = None
    """The content of that file."""
    is_shared: bool = False
    """The users are those of a broker in the same process, which serves requests about them."""

    @property
    def inner_credentials(self) -> Credentials | None:
        user = self.inner_user
        return None if user is None else Credentials(user.name, user.password)


class _Question(msgspec.Struct, frozen=True):
    """A request about users."""

    peer: Asked
    command: Command
    header: Any

    @property
    def access_key(self) -> str | None:
        return (self.command.ext or {}).get(ACCESS_KEY)


class AccessControl:
    """Users, their file, and the rules in force."""

    def __init__(
        self,
        settings: AccessSettings,
        emit: Callable[[Effect], None],
        now_ms: Callable[[], int],
        clusters: Callable[[], Collection[str]],
        cluster_of: Callable[[str], str | None],
    ) -> None:
        """`clusters` gives the names of those that are registered, `cluster_of` the one of a broker.

        Raises AccessError.
        """
        self._cluster_of = cluster_of
        self._settings = settings
        self._emit = emit
        self._now_ms = now_ms
        self._clusters = clusters
        self._refusals = RefusalLog()
        self._changes = 0
        self._directory: Directory | None = None
        self._gate: Gate | None = None
        self._users: Document[Saved, Asked | None] = Document(settings.saved or Saved())
        self._has_changed = False
        self._is_first_save_due = True
        if settings.authenticates:
            self._directory = Directory(USERS_MAX, ENTRIES_MAX)
            self._directory.restore(self._users.value)
            add_configured(self._directory, (settings.first_user, settings.inner_user), settings.migrated)
            self._gate = self._gate_of(self._directory)
        elif settings.accounts is not None:
            self.use_accounts(settings.accounts)
        self._requests = UserRequests(self._directory, self._read, self._touch)

    def _gate_of(self, directory: Directory) -> Gate:
        settings = self._settings
        guard = Guard(
            directory,
            authorizes=settings.authorizes,
            unsigned_codes=settings.unsigned_codes,
            unruled_codes=settings.unruled_codes,
        )
        return Gate(guard, self._refusals)

    @property
    def is_on(self) -> bool:
        return self._gate is not None

    @property
    def epoch(self) -> int:
        """A number that changes with the rules; grants of an earlier epoch are void."""
        return self._changes + (0 if self._directory is None else self._directory.generation)

    @property
    def directory(self) -> Directory | None:
        return self._directory

    def save_first(self) -> None:
        """Write, once, the users of the configuration that are missing from the file."""
        is_due, self._is_first_save_due = self._is_first_save_due, False
        if not is_due or self._directory is None or self._settings.is_shared:
            return
        if self._directory.save() != self._users.value:
            self._stage(None)

    def use_users(self, directory: Directory) -> None:
        """Use the users of a broker in the same process from now on."""
        assert self._settings.is_shared
        self._changes += 1
        self._directory = directory
        self._gate = self._gate_of(directory)

    def use_accounts(self, acl: PlainAcl) -> None:
        """Use the accounts of plain_acl.yml; called again when the file was read again."""
        self._changes += 1
        self._gate = Gate(PlainGuard(acl), self._refusals)

    # ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def check(self, asked: Asked) -> None:
        """Raises AccessError or HeaderError if the request is not allowed."""
        gate = self._gate
        if gate is None:
            return
        command = asked.command
        now_ms = self._now_ms()
        gate.authenticate(asked, command, now_ms)
        info = REQUESTS.get(command.code)
        if info is None:
            return  # the request is not supported, as the answer will say
        header = None if info.header is None else info.header.decode(command.ext)
        found: list[Touch] = []
        for touch in touches(command.code, header):
            found += self._in_all_clusters(touch) if touch.resource is Resource.CLUSTER and not touch.name else [touch]
        reason = gate.verdict(asked, command, found, None, now_ms)
        if reason is not None:
            raise AccessError(reason, gate.refusal_code)
        more = self._of_broker(getattr(header, "broker_name", None), found)
        if more and gate.verdict(asked, command, more, None, now_ms) is not None:
            raise AccessError(OF_ANOTHER_CLUSTER, gate.refusal_code)

    def _of_broker(self, broker: str | None, found: list[Touch]) -> list[Touch]:
        """The resources that a request about a broker touches, besides the cluster that it names."""
        cluster = None if broker is None else self._cluster_of(broker)
        if cluster is None:
            return []
        wanted = (touch._replace(name=cluster) for touch in found if touch.resource is Resource.CLUSTER)
        return [touch for touch in wanted if touch not in found]

    def _in_all_clusters(self, touch: Touch) -> list[Touch]:
        clusters = self._clusters()
        if len(clusters) > CLUSTERS_MAX:
            return [touch]
        return [touch._replace(name=name) for name in clusters]

    def allows(self, asked: Asked) -> bool:
        """True if the request is allowed. If not, the machine checks it again, and answers the error."""
        try:
            self.check(asked)
        except Exception:  # the machine repeats the check: it answers a refusal, and logs and counts a fault
            return False
        return True

    # ── Administration ────────────────────────────────────────────────────────────────────────────────────────────

    def handlers(self) -> dict[int, Handler]:
        return {code: self._served(code, serve) for code, serve in self._requests.table().items()}

    def _served(self, code: int, serve: Callable[[Any], Any]) -> Handler:
        declared = REQUESTS[code].header

        def handler(asked: Asked) -> Command | Slices[Command] | None:
            if self._settings.is_shared:
                raise AccessError("The users belong to the broker in the same process: send the request to it")
            header = None if declared is None else declared.decode(asked.command.ext)
            self._has_changed = False
            answer: Command | Slices[Command] = serve(_Question(asked, asked.command, header))
            if not self._has_changed:
                return answer
            self._stage(asked)
            return None

        return handler

    def _read(self, wanted: type[Any], asked: _Question) -> Any:
        body = small_body(Asked(None, asked.command))
        try:
            return fastjson.decode(body, wanted, untyped_max=len(body), dialect_max=DIALECT_SIZE_MAX)
        except fastjson.TooSlowError as error:
            raise AccessError(str(error)) from None

    def _touch(self) -> None:
        self._changes += 1
        self._has_changed = True

    def _stage(self, author: Asked | None) -> None:
        assert self._directory is not None
        version = self._users.stage(self._directory.save(), author)
        if version is not None:
            self._save(version)

    def _save(self, version: int) -> None:
        content = self._users.staged.encode(standard=True)
        self._emit(Save(Kept.USERS, version, seal(content, self._settings.key)))

    def saved(self, _document: Kept, version: int) -> list[Asked]:
        """A version is durable. Returns the requests to answer."""
        authors, following = self._users.saved(version)
        if following is not None:
            self._save(following)
        return [author for author in authors if author is not None]

    def not_saved(self, _document: Kept, version: int) -> list[Asked]:
        """A version could not be written: the change is undone. Returns the requests to refuse."""
        authors = self._users.failed(version)
        assert self._directory is not None
        self._directory.restore(self._users.value)
        self._changes += 1
        return [author for author in authors if author is not None]
