"""The consumer groups of a broker: their settings, and the topics that are forbidden to them.

Java: SubscriptionGroupManager.
"""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from kourou.broker import names
from kourou.broker.events import Refused
from kourou.broker.request_bodies import too_much
from kourou.broker.settings import BrokerSettings
from kourou.broker.topics import NAMES_IN_SLICE, SAID_EVERY, next_version
from kourou.protocol.bodies import DataVersion, SubscriptionGroupConfig, SubscriptionGroupWrapper
from kourou.protocol.codes import ADVICE, ResponseCode
from kourou.protocol.names import shown
from kourou.store.wall_clock import WallClock
from kourou.turns import Slices

log = logging.getLogger(__name__)

T = TypeVar("T")

FORBIDDEN_MAX = 100
"""Topics that may be forbidden to one group."""

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
        """A group's settings; a missing group is created if that is allowed."""
        found = self.table.get(group)
        if found is None and (self._settings.auto_create_groups or self._is_made_anyway(group)):
            found = self._create(group, now_ms)
        return found

    def may_be_found(self, group: str) -> bool:
        """Would `find` return a group of this name? It is not created."""
        if group in self.table:
            return True
        may_be_made = self._settings.auto_create_groups or self._is_made_anyway(group)
        return may_be_made and names.group_fault(group) is None and self._has_room_for(group)

    def _has_room_for(self, group: str) -> bool:
        if self.count < min(self._settings.auto_groups_max, self._settings.groups_max):
            return True
        if self._not_created % SAID_EVERY == 0:
            log.warning(
                "group %s not created: the limit of %d is reached (maxAutoCreatedGroups)", shown(group), self.count
            )
        self._not_created += 1
        return False

    def _is_made_anyway(self, group: str) -> bool:
        return self._settings.create_system_groups and group.startswith(names.SYSTEM_GROUP_PREFIX)

    def _create(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        if names.group_fault(group) is not None or not self._has_room_for(group):
            return None
        created = SubscriptionGroupConfig(group_name=group)
        self.put(created, now_ms)
        log.info("group created name=%s", group)
        return created

    @property
    def count(self) -> int:
        """The number of groups without the broker's own."""
        return len(self.table) - len(names.SYSTEM_GROUPS)

    def check_room(self, groups: Iterable[SubscriptionGroupConfig]) -> None:
        """Raises Refused if there may not be as many groups as there would be with these."""
        more = len({group.group_name for group in groups} - self.table.keys())
        if more and self.count + more > self._settings.groups_max:
            raise too_much(f"there would be {self.count + more} groups", self._settings.groups_max, "maxGroups")

    def put(self, group: SubscriptionGroupConfig, now_ms: int) -> None:
        """Create or change a group."""
        self.put_all((group,), now_ms)

    def put_all(self, groups: Iterable[SubscriptionGroupConfig], now_ms: int) -> None:
        """Create or change groups, all at once."""
        for group in groups:
            assert group.group_name is not None
            self.table[group.group_name] = group
        self._has_changed(now_ms)

    def remove(self, group: str, now_ms: int) -> bool:
        """True if it existed."""
        self.forbidden.pop(group, None)
        if self.table.pop(group, None) is None:
            return False
        self._has_changed(now_ms)
        return True

    def forbid(self, group: str, topic: str, bits: int, now_ms: int) -> None:
        """Set the bits of the operations that are forbidden to a group in a topic; 0: none."""
        if bits > 0:
            if group not in self.forbidden and len(self.forbidden) >= self._settings.groups_max:
                raise too_much(f"{len(self.forbidden)} groups have forbidden topics", len(self.forbidden), "maxGroups")
            topics = self.forbidden.get(group, {})
            if topic not in topics and len(topics) >= FORBIDDEN_MAX:
                raise Refused(
                    ResponseCode.INVALID_PARAMETER, f"{len(topics)} topics are forbidden to the group, the limit"
                )
            self.forbidden.setdefault(group, topics)[topic] = bits
        else:
            self.forbidden.pop(group, None)
        self._has_changed(now_ms)

    def adopt(
        self, table: dict[str, SubscriptionGroupConfig], forbidden: dict[str, dict[str, int]], version: DataVersion
    ) -> Slices[None]:
        """A slave takes over its master's groups, all of them and no others."""
        yield from _adopt(self.table, table)
        yield from _adopt(self.forbidden, forbidden)
        self.version = version
        self._touch()

    def merge(
        self,
        table: dict[str, SubscriptionGroupConfig],
        forbidden: dict[str, dict[str, int]],
        gone: Iterable[str],
        version: DataVersion,
    ) -> None:
        """A follower takes over some groups of its leader, with all that is forbidden to them, and drops others."""
        for name, group in table.items():
            self.table[name] = group
            self.forbidden.pop(name, None)
        self.forbidden |= forbidden
        for name in gone:
            self.table.pop(name, None)
            self.forbidden.pop(name, None)
        self.version = version
        self._touch()

    def may_read(self, group: str, topic: str) -> bool:
        return not self.forbidden.get(group, {}).get(topic, 0) & READ_FORBIDDEN

    def wrapper(self) -> SubscriptionGroupWrapper:
        """The whole table, as it is saved and sent."""
        return SubscriptionGroupWrapper(
            subscription_group_table=self.table, forbidden_table=self.forbidden, data_version=self.version
        )

    def _has_changed(self, now_ms: int) -> None:
        self.version = next_version(self.version, self._clock.at(now_ms))
        self._touch()


def no_group(name: str) -> Refused:
    """The refusal of a request for a group that does not exist."""
    return Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name} {ADVICE}")


def _adopt(kept: dict[str, T], new: dict[str, T]) -> Slices[None]:
    """Replace the entries in place, because other parts refer to the dictionary."""
    for number, (name, entry) in enumerate(new.items(), 1):
        kept[name] = entry
        if number % NAMES_IN_SLICE == 0:
            yield 0
    for number, name in enumerate(list(kept), 1):
        if name not in new:
            kept.pop(name, None)
        if number % NAMES_IN_SLICE == 0:
            yield 0
