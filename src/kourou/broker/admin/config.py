"""The broker's settings by request, and housekeeping.

Only harmless properties can be changed (`kourou.broker.properties.change`). A change is in force until the broker
stops; broker.conf is not written.

Java: AdminBrokerProcessor: updateBrokerConfig, getBrokerConfig, cleanExpiredConsumeQueue, cleanUnusedTopic.
"""

import logging

from kourou.broker import names
from kourou.broker.events import Asked, Refused
from kourou.broker.properties import (
    Configuration,
    GuardedPropertyError,
    PropertyError,
    apply,
    change,
    to_properties,
)
from kourou.broker.request_bodies import too_much
from kourou.broker.topics import Topics, next_version
from kourou.protocol import conf_text
from kourou.protocol.bodies import DataVersion
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.store.store import Store

log = logging.getLogger(__name__)

_BLACK_LIST = frozenset(("configBlackList", "brokerConfigPath"))
"""Properties that no request changes, as with Apache; configBlackList adds to them."""

_SHOWN_AS = {
    key: f"is{key[0].upper()}{key[1:]}" for key in ("brokerContainer", "inBrokerContainer", "scanAvailableNameSrv")
}
"""Three properties have one name in a file and another one in this answer."""

_NOT_SHOWN_WHEN_EMPTY = frozenset(
    (
        "brokerConfigPath",
        "dLegerGroup",
        "dLegerPeers",
        "dLegerSelfId",
        "haMasterAddress",
        "preferredLeaderId",
        "readOnlyCommitLogStorePaths",
        "storePathBrokerIdentity",
        "storePathDLedgerCommitLog",
        "storePathEpochFile",
    )
)
"""Properties that are not set are null in Java; others are empty."""


class ConfigRequests:
    """Serves requests about settings and files."""

    def __init__(self, configuration: Configuration, topics: Topics, store: Store, now_ms: int) -> None:
        self._configuration = configuration
        self._settings = configuration.broker  # all parts share this object
        self._topics = topics
        self._store = store
        self._version = DataVersion(timestamp=now_ms)
        self._black_list = _BLACK_LIST.union(word.strip() for word in self._settings.unchangeable.split(";"))

    def show(self, asked: Asked) -> Command:
        """GET_BROKER_CONFIG: all properties."""
        text = conf_text.dumps(
            {
                _SHOWN_AS.get(key, key): value
                for key, value in to_properties(self._configuration).items()
                if value or key not in _NOT_SHOWN_WHEN_EMPTY
            }
        )
        return asked.command.answer(ext={"version": self._version.encode().decode()}, body=text.encode())

    def update(self, asked: Asked) -> Command:
        """UPDATE_BROKER_CONFIG: all of the changes, or none."""
        properties = self._properties(asked.command.body)
        if not self._black_list.isdisjoint(properties):
            raise Refused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            changed = change(self._configuration, properties)
        except GuardedPropertyError as error:
            raise Refused(ResponseCode.NO_PERMISSION, str(error)) from None
        except PropertyError as error:
            raise Refused(ResponseCode.INVALID_PARAMETER, str(error)) from None
        had = self._settings.permission
        apply(self._settings, changed.broker)
        self._store.reconfigure(changed.store)
        self._configuration = Configuration(self._settings, changed.store, changed.process, changed.given)
        self._version = next_version(self._version, asked.wall_ms)
        log.info("settings changed %s peer=%s", shown(properties), asked.peer.address)
        if self._settings.permission != had:
            self._topics.version = next_version(self._topics.version, asked.wall_ms)
            self._topics.changed.update(self._topics.table)  # the next registration contains all topics
        return asked.command.answer()

    def _properties(self, body: bytes) -> dict[str, str]:
        if len(body) > self._settings.config_size_max:
            raise too_much(f"the body has {len(body)} bytes", self._settings.config_size_max, "maxConfigBodySize")
        try:
            return conf_text.loads(body.decode())
        except UnicodeDecodeError:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the properties are not UTF-8") from None

    # ── Housekeeping ──────────────────────────────────────────────────────────────────────────────────────────────

    def _check_alone(self) -> None:
        """Raises Refused in a Raft group."""
        if self._settings.raft:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                "members of a Raft group keep their queues: members that are behind would number later messages "
                "differently",
            )

    def remove_expired_queues(self, asked: Asked) -> Command:
        """CLEAN_EXPIRED_CONSUMEQUEUE: removes queues whose messages have all expired."""
        self._check_alone()
        try:
            count = self._store.remove_expired_queues(
                keep=(names.SCHEDULE_TOPIC, names.HALF_TOPIC, names.HALF_OP_TOPIC)
            )
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"queues can't be removed: {error}") from None
        log.info("expired queues removed count=%d peer=%s", count, asked.peer.address)
        return asked.command.answer()

    def remove_unused_topics(self, asked: Asked) -> Command:
        """CLEAN_UNUSED_TOPIC: removes the queues of topics that no longer exist."""
        self._check_alone()
        try:
            removed = self._store.remove_unused_topics(_Used(self._topics))
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"queues can't be removed: {error}") from None
        log.info("queues of unused topics removed topics=%s peer=%s", removed, asked.peer.address)
        return asked.command.answer()

    def remove_expired_segments(self, asked: Asked) -> Command:
        """DELETE_EXPIRED_COMMITLOG: deletes expired files at once, not at the hour of deleteWhen."""
        self._store.remove_expired()
        return asked.command.answer()


class _Used:
    """Names of topics that are in use: all existing ones, and the system's own."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._topics.table or self._topics.is_system(name))
