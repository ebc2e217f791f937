"""The consumer groups of a broker: what they may do, and which topics are forbidden to them.

Java: SubscriptionGroupManager.
"""

import logging
from collections.abc import Callable

from kourou.broker import names
from kourou.broker.settings import BrokerSettings
from kourou.broker.topics import SAID_EVERY, next_version
from kourou.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from kourou.store.wall_clock import WallClock

log = logging.getLogger(__name__)

READ_FORBIDDEN = 1 << 2
"""The bit of a forbidden table's number that keeps a group from reading a topic."""


class Groups:
    """Settings of all groups of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        kept: SubscriptionGroupWrapper | None,
        touch: Callable[[], None],
        clock: WallClock | None = None,
    ) -> None:
        self._settings = settings
        self._touch = touch
        self._clock = clock or WallClock()
        self._auto_created = 0
        self._not_created = 0  # because of the limit
        self.table: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(group_name=name) for name in names.SYSTEM_GROUPS
        }
        self.forbidden: dict[str, dict[str, int]] = {}
        self.version = DataVersion()
        if kept is not None:
            self.table.update(kept.subscription_group_table)
            self.forbidden = {group: dict(topics) for group, topics in kept.forbidden_table.items()}
            self.version = kept.data_version

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        return self.table.get(group)

    def find(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """A group's settings; made if that is allowed."""
        found = self.table.get(group)
        if found is None and (self._settings.auto_create_groups or self._is_made_anyway(group)):
            found = self._create(group, now_ms)
        return found

    def _is_made_anyway(self, group: str) -> bool:
        return self._settings.create_system_groups and group.startswith(names.SYSTEM_GROUP_PREFIX)

    def _create(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        if names.group_fault(group) is not None:
            return None
        if self._auto_created >= self._settings.auto_groups_max:
            if self._not_created % SAID_EVERY == 0:
                log.warning(
                    "group %.120s not created: %d were, the limit (maxAutoCreatedGroups)", group, self._auto_created
                )
            self._not_created += 1
            return None
        self._auto_created += 1
        created = SubscriptionGroupConfig(group_name=group)
        self.put(created, now_ms)
        log.info("group created name=%s", group)
        return created

    def put(self, group: SubscriptionGroupConfig, now_ms: int) -> None:
        assert group.group_name is not None
        self.table[group.group_name] = group
        self._has_changed(now_ms)

    def remove(self, group: str, now_ms: int) -> bool:
        """True if it was there."""
        self.forbidden.pop(group, None)
        if self.table.pop(group, None) is None:
            return False
        self._has_changed(now_ms)
        return True

    def forbid(self, group: str, topic: str, bits: int, now_ms: int) -> None:
        """Set what of a topic is forbidden to a group; 0: nothing."""
        if bits > 0:
            self.forbidden.setdefault(group, {})[topic] = bits
        else:
            self.forbidden.pop(group, None)
        self._has_changed(now_ms)

    def may_read(self, group: str, topic: str) -> bool:
        return not self.forbidden.get(group, {}).get(topic, 0) & READ_FORBIDDEN

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The whole table, as it is kept and sent."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table, forbidden_table=self.forbidden, data_version=self.version
        )

    def _has_changed(self, now_ms: int) -> None:
        self.version = next_version(self.version, self._clock.at(now_ms))
        self._touch()
