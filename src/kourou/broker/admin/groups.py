"""Consumer groups by request: made, changed, deleted, shown, and forbidden to read a topic.

Java: AdminBrokerProcessor, SubscriptionGroupManager.
"""

import logging

import msgspec

from kourou.broker import names
from kourou.broker.admin import attributes, pages
from kourou.broker.events import Asked, Refused
from kourou.broker.groups import READ_FORBIDDEN, Groups
from kourou.broker.offsets import Offsets
from kourou.broker.stats import Stats
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import SubscriptionGroupConfig
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command

log = logging.getLogger(__name__)


class GroupRequests:
    """Serves requests about consumer groups."""

    def __init__(self, groups: Groups, offsets: Offsets, stats: Stats) -> None:
        self._groups = groups
        self._offsets = offsets
        self._stats = stats

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def update(self, asked: Asked) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        self._put([self._checked(SubscriptionGroupConfig.decode(asked.command.body))], asked)
        return asked.command.answer()

    def update_all(self, asked: Asked) -> Command:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all of them, or none."""
        wanted = bodies.SubscriptionGroupList.decode(asked.command.body).group_config_list
        self._put([self._checked(group) for group in wanted], asked)
        return asked.command.answer()

    def _checked(self, wanted: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The group as it will be. Raises Refused."""
        name = wanted.group_name or ""
        fault = names.group_fault(name)
        if fault is not None:
            raise Refused(ResponseCode.INVALID_PARAMETER, fault)
        there = self._groups.get(name)
        altered = attributes.alter(attributes.OF_GROUPS, None if there is None else there.attributes, wanted.attributes)
        return msgspec.structs.replace(wanted, attributes=altered)

    def _put(self, groups: list[SubscriptionGroupConfig], asked: Asked) -> None:
        for group in groups:
            self._groups.put(group, asked.now_ms)
            log.info("group set name=%s peer=%s", group.group_name, asked.peer.address)

    def delete(self, asked: Asked) -> Command:
        """DELETE_SUBSCRIPTIONGROUP. One that is not there is none to worry about."""
        header = headers.DeleteSubscriptionGroup.decode(asked.command.ext)
        if self._groups.remove(header.group_name, asked.now_ms):
            log.info(
                "group deleted name=%s with_offsets=%s peer=%s",
                header.group_name,
                header.clean_offset,
                asked.peer.address,
            )
        if header.clean_offset:
            self._offsets.remove_group(header.group_name)
        self._stats.forget_group(header.group_name)
        return asked.command.answer()

    def forbid(self, asked: Asked) -> Command:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: may a group read a topic? With `readable`, from now on."""
        header = headers.UpdateGroupForbidden.decode(asked.command.ext)
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

    def show(self, asked: Asked) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG: one that is not there is made, if groups make themselves."""
        name = headers.GetSubscriptionGroupConfig.decode(asked.command.ext).group
        group = self._groups.find(name, asked.now_ms)
        if group is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return asked.command.answer(body=group.encode())

    def show_all(self, asked: Asked) -> Command:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: all of them, or a page."""
        header = headers.GetAllSubscriptionGroup.decode(asked.command.ext)
        groups = self._groups
        page = pages.page(groups.table, groups.version, header.data_version, header.group_seq, header.max_group_num)
        wrapper = bodies.SubscriptionGroupWrapper(
            subscription_group_table=page,
            forbidden_table={group: topics for group, topics in groups.forbidden.items() if group in page},
            data_version=groups.version,
        )
        return asked.command.answer(ext={"totalGroupNum": str(len(groups.table))}, body=wrapper.encode())
