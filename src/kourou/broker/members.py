"""Requests of clients about groups: heartbeats, leaving, the members of a group, offsets, locks.

Java: ClientManageProcessor, ConsumerManageProcessor, the lock requests of AdminBrokerProcessor.
"""

from collections.abc import Iterator
from typing import Final

from kourou.broker import names
from kourou.broker.access import Access
from kourou.broker.clients import Client, Clients
from kourou.broker.consumer_filters import ConsumerFilters
from kourou.broker.events import Asked, Refused, Request
from kourou.broker.filtering import Filtering
from kourou.broker.groups import Groups
from kourou.broker.heartbeat_limits import HeartbeatLimits
from kourou.broker.offsets import Offsets
from kourou.broker.queue_locks import QueueLocks
from kourou.broker.request_bodies import RequestBodies, too_much
from kourou.broker.settings import BrokerSettings
from kourou.broker.strict_locks import StrictLocks
from kourou.broker.topics import Topics
from kourou.protocol import bodies, headers
from kourou.protocol.codes import ResponseCode, TopicSysFlag
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.store.store import Store
from kourou.turns import Slices, at_once

SMALL: Final = 16 * 1024
"""Bytes of a body that is served at once, in the order of its connection's requests: two milliseconds at most."""

SMALL_WITH_FILTERS: Final = 2 * 1024
"""The same for a heartbeat with expressions, which have to be compiled."""

QUEUES_IN_SLICE: Final = 200
"""Queues that are locked before others have their turn."""

_UNIT_SUB = int(TopicSysFlag.UNIT_SUB)


class Members:
    """Serves heartbeats, group membership, offsets and queue locks."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        locks: QueueLocks,
        strict_locks: StrictLocks,
        filters: ConsumerFilters,
        filtering: Filtering,
        bodies: RequestBodies,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._locks = locks
        self._strict_locks = strict_locks
        self._filters = filters
        self._filtering = filtering
        self._bodies = bodies
        self._limits = HeartbeatLimits(clients, settings)

    # ── Heartbeats ───────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, asked: Asked) -> Command | Slices[Command]:
        """HEART_BEAT: registers a client with these groups. A heartbeat with a fingerprint is of version 2."""
        slices = self._heartbeat(asked)
        body = asked.command.body
        return at_once(slices) if len(body) <= (SMALL if b"SQL92" not in body else SMALL_WITH_FILTERS) else slices

    def _heartbeat(self, asked: Asked) -> Slices[Command]:
        yield 0
        command, now_ms = asked.command, asked.now_ms
        beat = yield from self._bodies.read_in_slices(bodies.HeartbeatData, asked)
        yield len(command.body)
        self._limits.check(beat, asked.peer, now_ms)
        client_id = beat.client_id or ""
        is_second_kind = beat.heartbeat_fingerprint != 0
        changed = not is_second_kind
        for data in beat.consumer_data_set:
            if not data.group_name:
                continue
            if self._settings.reject_pull_consumers and data.consume_type == "CONSUME_ACTIVELY":
                continue
            group = self._groups.find(data.group_name, now_ms)
            if group is None:
                continue
            if self._clients.heartbeat_changes(data.group_name, beat.heartbeat_fingerprint) and is_second_kind:
                changed = True
            ordered = any(self._topics.is_order(one.topic or "") for one in data.subscription_data_set)
            retry_topic = names.retry_topic(data.group_name)
            # Without room, the group consumes all the same; messages that it sends back are refused.
            if self._topics.get(retry_topic) is not None or self._topics.has_room_for(retry_topic):
                self._topics.ensure(
                    retry_topic,
                    group.retry_queue_nums,
                    now_ms,
                    order=ordered,
                    sys_flag=_UNIT_SUB if data.unit_mode else 0,
                )
            client = Client(asked.peer, client_id, command.language, command.version, now_ms)
            with_subscriptions = not (is_second_kind and beat.without_sub)
            self._clients.register_consumer(
                data,
                client,
                now_ms,
                notify=group.notify_consumer_ids_changed_enable,
                with_subscriptions=with_subscriptions,
            )
            if with_subscriptions:
                for _ in self._filters.register(data.group_name, data.subscription_data_set, now_ms):
                    yield len(command.body)
            elif self._clients.lacks_subscriptions(data.group_name):
                changed = True  # the client reports them in its next heartbeat
            yield len(command.body)
        user = self._access.name_of(asked) if beat.producer_data_set else None
        for producer in beat.producer_data_set:
            if producer.group_name:
                client = Client(asked.peer, client_id, command.language, command.version, now_ms, user)
                self._clients.register_producer(producer.group_name, client, now_ms)
                yield len(command.body)
        answer = headers.HeartbeatAnswer(is_support_heart_beat_v2=True, is_sub_change=changed)
        return command.answer(ext=answer.encode())

    def unregister(self, asked: Request[headers.UnregisterClient]) -> Command:
        """UNREGISTER_CLIENT: a client leaves a group."""
        header = asked.header
        if header.producer_group is not None:
            self._clients.unregister_producer(header.producer_group, asked.peer)
        if header.consumer_group is not None:
            group = self._groups.get(header.consumer_group)
            notify = group is None or group.notify_consumer_ids_changed_enable
            self._clients.unregister_consumer(header.consumer_group, asked.peer, notify=notify)
        return asked.command.answer()

    def check_config(self, asked: Asked) -> Command:
        """CHECK_CLIENT_CONFIG: does a filter compile?"""
        subscription = self._bodies.read(bodies.CheckClientRequestBody, asked).subscription_data
        if subscription is not None:
            self._filtering.check_config(subscription)
        return asked.command.answer()

    def list_consumers(self, asked: Request[headers.GetConsumerListByGroup]) -> Command:
        """GET_CONSUMER_LIST_BY_GROUP: the ids of a group's members."""
        header = asked.header
        group = self._clients.group(header.consumer_group)
        if group is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {header.consumer_group}")
        ids = list(dict.fromkeys(group.client_ids()))
        body = bodies.GetConsumerListByGroupResponseBody(consumer_id_list=ids)
        return asked.command.answer(body=body.encode())

    # ── Offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def update_offset(self, asked: Request[headers.UpdateConsumerOffset]) -> Command:
        """UPDATE_CONSUMER_OFFSET."""
        header = asked.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if self._groups.get(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!")
        config = self._topics.get(topic)
        if config is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        is_queue = 0 <= queue_id < max(config.read_queue_nums, config.write_queue_nums)
        if not is_queue and self._store.queues.get(topic, queue_id) is None:  # and it had no such queue in the past
            raise Refused(ResponseCode.INVALID_PARAMETER, f"Topic {topic} has no queue {queue_id}")
        if self._settings.server_side_reset and self._offsets.is_reset(group, topic, queue_id):
            return asked.command.answer(remark="Offset has been previously reset")
        if not self._offsets.commit(group, topic, queue_id, header.commit_offset):
            limit = self._settings.offsets_max
            raise too_much(f"there are {self._offsets.count} offsets", limit, "maxConsumerOffsets")
        return asked.command.answer()

    def query_offset(self, asked: Request[headers.QueryConsumerOffset]) -> Command:
        """QUERY_CONSUMER_OFFSET: the offset of a group, or where it may begin without missing a message."""
        header = asked.header
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        offset = self._offsets.get(group, topic, queue_id)
        if offset < 0:
            if header.set_zero_if_not_found is False:
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first"
                )
            if not self._first_is_recent(topic, queue_id):
                raise Refused(
                    ResponseCode.QUERY_NOT_FOUND, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
                )
            offset = 0
        return asked.command.answer(ext={"offset": str(offset)})

    def _first_is_recent(self, topic: str, queue_id: int) -> bool:
        """Does the queue still have its very first message, and is that near the end of the log?"""
        queue = self._store.queues.get(topic, queue_id)
        if queue is None or queue.start > 0 or queue.end <= 0:
            return False
        physical, _, _ = queue.entry(0)
        return self._store.log.end - physical <= self._store.reader.limits.memory_window

    # ── Locks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def lock(self, asked: Asked) -> Command | Slices[Command | None] | None:
        """LOCK_BATCH_MQ: the existing queues that the client has now."""
        slices = self._lock(asked)
        return at_once(slices) if len(asked.command.body) <= SMALL else slices

    def _lock(self, asked: Asked) -> Slices[Command | None]:
        yield 0
        size = len(asked.command.body)
        body = yield from self._bodies.read_in_slices(bodies.LockBatchRequestBody, asked)
        group, client_id = body.consumer_group or "", body.client_id or ""
        if names.group_fault(group) is not None:  # an invalid group has no locks
            return asked.command.answer(body=bodies.LockBatchResponseBody().encode())
        got: list[MessageQueue] = []
        for queues in _some_at_a_time(body.mq_set):
            yield size
            there = [queue for queue in queues if self._topics.has_queue(queue.topic, queue.queue_id)]
            got += self._locks.lock(group, there, client_id, asked.now_ms)
        yield size
        return self._strict_locks.lock(body, got, asked)

    def unlock(self, asked: Asked) -> Command | Slices[Command]:
        """UNLOCK_BATCH_MQ."""
        slices = self._unlock(asked)
        return at_once(slices) if len(asked.command.body) <= SMALL else slices

    def _unlock(self, asked: Asked) -> Slices[Command]:
        yield 0
        body = yield from self._bodies.read_in_slices(bodies.UnlockBatchRequestBody, asked)
        for queues in _some_at_a_time(body.mq_set):
            yield len(asked.command.body)
            self._locks.unlock(body.consumer_group or "", queues, body.client_id or "")
        self._strict_locks.unlock(body)
        return asked.command.answer()


def _some_at_a_time(queues: list[MessageQueue]) -> Iterator[list[MessageQueue]]:
    for at in range(0, len(queues), QUEUES_IN_SLICE):
        yield queues[at : at + QUEUES_IN_SLICE]
