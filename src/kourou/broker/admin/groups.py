"""Consumer groups by request: made, changed, deleted, shown, and forbidden to read a topic.

Java: AdminBrokerProcessor, SubscriptionGroupManager.
"""

import logging
from typing import Final

import msgspec

from kourou.broker import names
from kourou.broker.admin import attributes, tables
from kourou.broker.admin.pages import Pages
from kourou.broker.events import Asked, Large, Refused, Request
from kourou.broker.groups import READ_FORBIDDEN, Groups
from kourou.broker.offsets import Offsets
from kourou.broker.request_bodies import RequestBodies, too_much
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.turns import Slices

log = logging.getLogger(__name__)

LOGGED_MAX: Final = 10
"""Groups of one request that are logged each with a line of its own."""

CHECKED_IN_SLICE: Final = 100
"""Groups that are checked before others have their turn."""


class GroupRequests:
    """Serves requests about consumer groups."""

    def __init__(
        self, settings: BrokerSettings, groups: Groups, offsets: Offsets, stats: Stats, bodies: RequestBodies
    ) -> None:
        self._settings = settings
        self._groups = groups
        self._offsets = offsets
        self._stats = stats
        self._bodies = bodies
        self._pages: Pages[SubscriptionGroupConfig] = Pages()

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, asked: Asked) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        self._put([self._checked(self._bodies.read(SubscriptionGroupConfig, asked))], asked)
        return asked.command.answer()

    def update_all(self, asked: Asked) -> Slices[Command]:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all of them, or none."""
        yield 0
        wanted = (yield from self._bodies.read_in_slices(bodies.SubscriptionGroupList, asked)).group_config_list
        limit = self._settings.groups_per_request
        if len(wanted) > limit:
            raise too_much(f"the request has {len(wanted)} groups", limit, "maxGroupsPerRequest")
        checked: list[SubscriptionGroupConfig] = []
        for group in wanted:
            checked.append(self._checked(group))
            if len(checked) % CHECKED_IN_SLICE == 0:
                yield len(asked.command.body)
        self._put(checked, asked)
        return asked.command.answer()

    def _checked(self, wanted: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The group as it will be stored. Raises Refused."""
        name = wanted.group_name or ""
        fault = names.group_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        there = self._groups.get(name)
        altered = attributes.alter(attributes.OF_GROUPS, None if there is None else there.attributes, wanted.attributes)
        return msgspec.structs.replace(wanted, attributes=altered)

    def _put(self, groups: list[SubscriptionGroupConfig], asked: Asked) -> None:
        """All at once: a part of them is never visible. Raises Refused."""
        if not groups:
            return
        self._groups.check_room(groups)
        self._groups.put_all(groups, asked.now_ms)
        for group in groups[:LOGGED_MAX]:
            log.info("group set name=%s peer=%s", group.group_name, asked.peer.address)
        if len(groups) > LOGGED_MAX:
            log.info("groups set count=%d peer=%s", len(groups), asked.peer.address)

    def delete(self, asked: Request[headers.DeleteSubscriptionGroup]) -> Slices[Command]:
        """DELETE_SUBSCRIPTIONGROUP. It succeeds if the group does not exist."""
        yield 0
        header = asked.header
        if self._groups.remove(header.group_name, asked.now_ms):
            log.info(
                "group deleted name=%s with_offsets=%s peer=%s",
                header.group_name,
                header.clean_offset,
                asked.peer.address,
            )
        if header.clean_offset:
            yield from self._offsets.remove_group(header.group_name)
        self._stats.forget_group(header.group_name)
        return asked.command.answer()

    def forbid(self, asked: Request[headers.UpdateGroupForbidden]) -> Command:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: may a group read a topic? With `readable`, from now on."""
        header = asked.header
        group, topic, groups = header.group, header.topic, self._groups
        if header.readable is not None and header.readable != groups.may_read(group, topic):
            fault = names.group_fault(group) or names.topic_fault(topic)
            if fault is not None:
                raise Refused(ResponseCode.INVALID_PARAMETER, fault)
            bits = groups.forbidden.get(group, {}).get(topic, 0)
            bits = bits & ~READ_FORBIDDEN if header.readable else bits | READ_FORBIDDEN
            groups.forbid(group, topic, bits, asked.now_ms)
        shown = bodies.GroupForbidden(topic=topic, group=group, readable=groups.may_read(group, topic))
        return asked.command.answer(remark="", body=shown.encode())

    # ── Showing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, asked: Request[headers.GetSubscriptionGroupConfig]) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG: creates a missing group if groups are created automatically."""
        name = asked.header.group
        group = self._groups.find(name, asked.now_ms)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return asked.command.answer(body=group.encode())

    def show_all(self, asked: Request[headers.GetAllSubscriptionGroup]) -> Slices[Large]:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all of them, or a page."""
        yield 0
        header = asked.header
        groups = self._groups
        page = yield from self._pages.page(
            groups.table, groups.version, header.data_version, header.group_seq, header.max_group_num
        )
        forbidden: dict[str, dict[str, int]] = {}
        ext, version = {"totalGroupNum": str(len(groups.table))}, groups.version
        for number, group in enumerate(list(groups.forbidden), 1):
            if group in page and group in groups.forbidden:
                forbidden[group] = dict(groups.forbidden[group])
            if number % CHECKED_IN_SLICE == 0:
                yield 0
        entries = yield from tables.whole_table(page)
        held = yield from tables.whole_table(forbidden)
        shell = bodies.SubscriptionGroupWrapper(data_version=version)
        return tables.answer(asked.command, shell, {"subscriptionGroupTable": entries, "forbiddenTable": held}, ext)
