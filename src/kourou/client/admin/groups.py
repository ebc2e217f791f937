"""Consumer groups: settings, members, progress, and resetting their offsets."""

import builtins
from datetime import datetime

import msgspec

from kourou.client import naming
from kourou.client.admin.requests import AdminRequests, Without
from kourou.client.errors import NoBrokerError
from kourou.client.offsets import BrokerOffsets
from kourou.client.pacing import SilentServerError
from kourou.client.queue_bounds import search_offset
from kourou.net.errors import ConnectFailedError, TransportError
from kourou.protocol.bodies import (
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    GetConsumerStatusBody,
    GroupForbidden,
    OffsetWrapper,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    ResetOffsetBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    TopicList,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import ConsumerNotOnlineError, PeerFailedError, RefusedError
from kourou.protocol.headers import (
    CloneGroupOffset,
    ConsumeMessageDirectly,
    DeleteSubscriptionGroup,
    GetAllSubscriptionGroup,
    GetBrokerConsumeStats,
    GetConsumerConnectionList,
    GetConsumerRunningInfo,
    GetConsumeStats,
    GetSubscriptionGroupConfig,
    InvokeBrokerToGetConsumerStatus,
    InvokeBrokerToResetOffset,
    QueryConsumeTimeSpan,
    QueryTopicsByConsumer,
    UpdateGroupForbidden,
)
from kourou.protocol.message import MessageQueue


class Progress(msgspec.Struct, frozen=True):
    """The progress of a group."""

    queues: dict[MessageQueue, OffsetWrapper]
    tps: float
    """Messages consumed per second, as brokers count them."""

    @property
    def lag(self) -> int:
        """Messages that are stored and not consumed yet."""
        return sum(queue.broker_offset - queue.consumer_offset for queue in self.queues.values())

    @property
    def in_flight(self) -> int:
        """Messages that are pulled and not consumed yet."""
        return sum(max(queue.pull_offset - queue.consumer_offset, 0) for queue in self.queues.values())


class Groups:
    """`mq.admin.groups`"""

    def __init__(self, requests: AdminRequests) -> None:
        self._ask = requests

    def _wrap(self, name: str) -> str:
        return self._ask.session.wrap(name)

    # ── Settings ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def list(self, cluster: str | None = None) -> builtins.list[str]:
        """The names of all groups that brokers have settings for."""
        found: set[str] = set()
        for address in await self._ask.masters(cluster):
            found.update((await self.configs(address)).subscription_group_table)
        return sorted(self._ask.session.unwrap(group) for group in found)

    async def configs(self, broker: str) -> SubscriptionGroupWrapper:
        """All groups of one broker, with their settings."""
        code, header = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, GetAllSubscriptionGroup()
        return await self._ask.body(SubscriptionGroupWrapper, broker, code, header)

    async def config(self, group: str, broker: str) -> SubscriptionGroupConfig:
        """One group's settings on one broker."""
        header = GetSubscriptionGroupConfig(group=self._wrap(group))
        return await self._ask.body(SubscriptionGroupConfig, broker, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)

    async def create(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        config: SubscriptionGroupConfig | None = None,
    ) -> None:
        """Create a group or change it, on all masters of a cluster (or of all clusters), or on one broker."""
        naming.check_group(group)
        settings = msgspec.structs.replace(config or SubscriptionGroupConfig(), group_name=self._wrap(group))
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=settings.encode())

    async def create_all(
        self,
        groups: builtins.list[SubscriptionGroupConfig],
        *,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Create or change several groups at once, on all masters of a cluster (or of all), or on one broker."""
        for group in groups:
            naming.check_group(group.group_name or "")
        wanted = [msgspec.structs.replace(one, group_name=self._wrap(one.group_name or "")) for one in groups]
        body = SubscriptionGroupList(group_config_list=wanted).encode()
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=body)

    async def set_mode(
        self,
        group: str,
        topic: str,
        mode: str,
        *,
        share: int = 0,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> None:
        """Whether a group pulls (`PULL`) or pops (`POP`) from a topic. `share`: members that may pop from one queue."""
        body = SetMessageRequestModeRequestBody(
            topic=self._wrap(topic), consumer_group=self._wrap(group), mode=mode, pop_share_queue_num=share
        ).encode()
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)

    async def delete(
        self, group: str, *, cluster: str | None = None, broker: str | None = None, with_offsets: bool = False
    ) -> None:
        """Delete a group's settings and, if wanted, its offsets."""
        header = DeleteSubscriptionGroup(group_name=self._wrap(group), clean_offset=with_offsets)
        for address in await self._ask.masters(cluster, broker):
            await self._ask.broker(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def forbid(self, group: str, topic: str, *, readable: bool, broker: str) -> GroupForbidden:
        """Forbid a topic to a group on one broker, or allow it again."""
        header = UpdateGroupForbidden(group=self._wrap(group), topic=self._wrap(topic), readable=readable)
        return await self._ask.body(GroupForbidden, broker, RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)

    # ── Progress ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def progress(self, group: str, topic: str | None = None, without: Without | None = None) -> Progress:
        """The progress of a group, in one topic or in all. The progress of an unknown group has no queues.

        With `without`, the brokers that do not answer are entered there, unless none answers.
        """
        header = GetConsumeStats(consumer_group=self._wrap(group), topic=None if topic is None else self._wrap(topic))
        queues: dict[MessageQueue, OffsetWrapper] = {}
        tps = 0.0

        async def ask(address: str) -> ConsumeStats:
            try:
                return await self._ask.body(ConsumeStats, address, RequestCode.GET_CONSUME_STATS, header)
            except PeerFailedError:
                return ConsumeStats()  # this broker does not know the group

        for stats in await self._ask.each(await self._ask.masters_of_group(group), ask, without):
            queues.update(stats.offset_table)
            tps += stats.consume_tps
        return Progress({queue: queues[queue] for queue in sorted(queues)}, tps)

    async def broker_progress(self, broker: str, *, orderly: bool = False) -> ConsumeStatsList:
        """The progress of all groups on one broker."""
        header = GetBrokerConsumeStats(is_order=orderly)
        return await self._ask.body(ConsumeStatsList, broker, RequestCode.GET_BROKER_CONSUME_STATS, header)

    async def topics(self, group: str) -> builtins.list[str]:
        """The topics that a group consumes."""
        header = QueryTopicsByConsumer(group=self._wrap(group))
        found: set[str] = set()
        for address in await self._ask.masters_of_group(group):
            table = await self._ask.body(TopicList, address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
            found.update(table.topic_list)
        return sorted(self._ask.session.unwrap(topic) for topic in found)

    async def time_spans(self, group: str, topic: str, without: Without | None = None) -> builtins.list[QueueTimeSpan]:
        """For each queue: the store times of its first, its last and the group's next message.

        `without`: as for `progress`.
        """
        header = QueryConsumeTimeSpan(topic=self._wrap(topic), group=self._wrap(group))
        code = RequestCode.QUERY_CONSUME_TIME_SPAN
        addresses = await self._ask.masters_of(topic)
        bodies = await self._ask.each(
            addresses, lambda address: self._ask.body(QueryConsumeTimeSpanBody, address, code, header), without
        )
        return [span for body in bodies for span in body.consume_time_span_set]

    # ── Members ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def connections(self, group: str) -> ConsumerConnection:
        """The members of a group. Raises ConsumerNotOnlineError if there are none."""
        header = GetConsumerConnectionList(consumer_group=self._wrap(group))
        failure: RefusedError | TransportError | None = None
        for address in await self._ask.masters_of_group(group):
            try:
                code = RequestCode.GET_CONSUMER_CONNECTION_LIST
                return await self._ask.body(ConsumerConnection, address, code, header)
            except TransportError as error:  # members are connected to all brokers: another one knows them as well
                failure = failure or error
            except ConsumerNotOnlineError as error:
                failure = error
        raise failure or ConsumerNotOnlineError(f"Not found the consumer group consumer: {group}")

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> ConsumerRunningInfo:
        """The internal state of a member. Raises RefusedError if it is no longer connected."""
        header = GetConsumerRunningInfo(
            consumer_group=self._wrap(group), client_id=client_id, jstack_enable=with_stacks
        )
        failure: RefusedError | TransportError | None = None
        for address in await self._ask.masters_of_group(group):
            try:
                code = RequestCode.GET_CONSUMER_RUNNING_INFO
                return await self._ask.body(ConsumerRunningInfo, address, code, header)
            except (RefusedError, ConnectFailedError, SilentServerError) as error:
                failure = error
        raise failure or NoBrokerError(f"group {group!r} has no members: no broker has a consumer of it")

    async def status(self, group: str, topic: str, client_id: str | None = None) -> dict[str, dict[MessageQueue, int]]:
        """The offsets of a topic that each member has in memory, by client id."""
        header = InvokeBrokerToGetConsumerStatus(
            topic=self._wrap(topic), group=self._wrap(group), client_addr=client_id
        )
        found: dict[str, dict[MessageQueue, int]] = {}
        for address in await self._ask.masters_of(topic):
            code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
            body = await self._ask.body(GetConsumerStatusBody, address, code, header)
            for member, table in body.consumer_table.items():
                found.setdefault(member, {}).update(table)
        return found

    async def consume_directly(
        self, group: str, client_id: str, message_id: str, *, topic: str | None = None
    ) -> ConsumeMessageDirectlyResult:
        """Let a member consume one message, given by its offset id, now. Returns the result."""
        header = ConsumeMessageDirectly(
            consumer_group=self._wrap(group),
            client_id=client_id,
            msg_id=message_id,
            topic=None if topic is None else self._wrap(topic),
        )
        address = await self._ask.broker_in_id(message_id)
        code = RequestCode.CONSUME_MESSAGE_DIRECTLY
        return await self._ask.body(ConsumeMessageDirectlyResult, address, code, header)

    # ── Resetting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def reset_to_time(
        self, group: str, topic: str, when: datetime | float | None, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset a group to a time (a datetime, or seconds since the epoch), or to the end (None).

        Running members follow within seconds. Without `force`, no offset is moved backwards. The new offsets are
        returned.
        """
        time_ms = -1 if when is None else round((when.timestamp() if isinstance(when, datetime) else when) * 1000)
        header = InvokeBrokerToResetOffset(
            group=self._wrap(group), topic=self._wrap(topic), timestamp=time_ms, is_force=force
        )
        found: dict[MessageQueue, int] = {}
        for address in await self._ask.masters_of(topic):
            try:
                code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
                found.update((await self._ask.body(ResetOffsetBody, address, code, header)).offset_table)
            except ConsumerNotOnlineError:
                return await self._reset_stored(group, topic, time_ms, force=force)
        return found

    async def _reset_stored(self, group: str, topic: str, time_ms: int, *, force: bool) -> dict[MessageQueue, int]:
        """Changes the stored offsets, for a group without running members."""
        progress = await self.progress(group, topic)
        offsets = BrokerOffsets(self._ask.session, self._wrap(group))
        found = {}
        for queue, state in progress.queues.items():
            if queue.topic != self._wrap(topic):
                continue
            offset = state.broker_offset
            if time_ms >= 0:
                offset = await search_offset(self._ask.session, queue, time_ms)
            if force or offset > state.consumer_offset:
                await offsets.reset(queue, offset)
                found[queue] = offset
        return found

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> dict[MessageQueue, int]:
        """Reset a group to an offset of one queue. Its broker stores the offset, and tells running members."""
        wrapped = MessageQueue(self._wrap(queue.topic), queue.broker_name, queue.queue_id)
        await self._ask.route(queue.topic)
        header = InvokeBrokerToResetOffset(
            group=self._wrap(group),
            topic=wrapped.topic,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=-1,
            is_force=True,
        )
        address = self._ask.session.routes.master(queue.broker_name)
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        return (await self._ask.body(ResetOffsetBody, address, code, header)).offset_table

    async def set_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Store one offset of a group. Running members do not notice, and overwrite it with their own."""
        wrapped = MessageQueue(self._wrap(queue.topic), queue.broker_name, queue.queue_id)
        await self._ask.route(queue.topic)
        await BrokerOffsets(self._ask.session, self._wrap(group)).reset(wrapped, offset)

    async def skip_accumulated(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Skip everything that the group has not consumed yet."""
        return await self.reset_to_time(group, topic, None)

    async def clone_offsets(self, source: str, target: str, topic: str, *, offline: bool = True) -> None:
        """Copy the offsets that group `source` has in a topic to group `target`."""
        header = CloneGroupOffset(
            src_group=self._wrap(source), dest_group=self._wrap(target), topic=self._wrap(topic), offline=offline
        )
        for address in await self._ask.masters_of(topic):
            await self._ask.broker(address, RequestCode.CLONE_GROUP_OFFSET, header)
