"""Offsets by request: groups set back or forward, offsets copied and shown.

There are two ways to set a group to another place. The broker's own: it notes the offset, and the next pull of each
queue, or the one that waits there, continues from it; this also works while the group is not connected. The
older one (useServerSideResetOffset=false): connected consumers are pushed the new offsets, and commit them themselves.

Java: AdminBrokerProcessor.resetOffset, Broker2Client.resetOffset, ConsumerOffsetManager.
"""

import logging
from collections.abc import Callable

from kourou.broker import names
from kourou.broker.admin import tables
from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Large, Outbox, Refused, Request, Tell
from kourou.broker.groups import Groups
from kourou.broker.long_polls import LongPolls
from kourou.broker.offsets import Offsets
from kourou.broker.request_bodies import too_much
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.topics import Topics
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import split_names
from kourou.protocol.message import MessageQueue
from kourou.store.consume_queue import Boundary
from kourou.store.metadata import ConsumerOffsets
from kourou.store.reading import Reader
from kourou.turns import Slices

log = logging.getLogger(__name__)

_ONE_WAY = int(CommandFlag.ONE_WAY)
_NEVER = 2**63 - 1

QUEUES_IN_SLICE = 128
"""Queues that are examined before other requests have their turn: less than a millisecond."""


class OffsetRequests:
    """Serves requests about offsets."""

    def __init__(
        self,
        settings: BrokerSettings,
        reader: Reader,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        polls: LongPolls,
        outbox: Outbox,
        delay_offsets: Callable[[], bytes],
    ) -> None:
        """`delay_offsets` gives how far the delay levels are, as JSON."""
        self._settings = settings
        self._reader = reader
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._polls = polls
        self._outbox = outbox
        self._delay_offsets = delay_offsets

    # ── Setting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def reset(self, asked: Request[headers.InvokeBrokerToResetOffset]) -> Slices[Large]:
        """INVOKE_BROKER_TO_RESET_OFFSET: a group continues from a time, or in one queue from an offset."""
        yield 0
        header = asked.header
        if self._settings.server_side_reset:
            table = yield from self._reset_here(header)
            waiting = self._polls.by_queue
            woken = [key for queue_id in table if (key := (header.topic, queue_id)) in waiting]
            self._polls.wake(woken, asked.now_ms)
        else:
            table = yield from self._reset_at_clients(header, asked)
        log.info(
            "offsets reset group=%s topic=%s time=%d queues=%d peer=%s",
            header.group,
            header.topic,
            header.timestamp,
            len(table),
            asked.peer.address,
        )
        entries = yield from self._by_queue(header.topic, table)
        return entries.answer(asked.command, bodies.ResetOffsetBody(), "offsetTable")

    def _by_queue(self, topic: str, table: dict[int, int]) -> Slices[tables.Entries]:
        entries = tables.Entries()
        for number, (queue_id, offset) in enumerate(table.items(), 1):
            entries.add_pair(self._queue(topic, queue_id), offset)
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        return entries

    def _reset_here(self, header: headers.InvokeBrokerToResetOffset) -> Slices[dict[int, int]]:
        name, group = header.topic, header.group
        if self._settings.role is Role.SLAVE:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        if self._groups.get(group) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist")
        if header.queue_id < 0:
            table = yield from self._offsets_at(name, topic.read_queue_nums, header.timestamp)
        else:
            self._check_queue(topic, header.queue_id)
            table = {header.queue_id: self._target(header)}
        if not table:
            raise Refused(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        if self._topics.get(name) is None:  # deleted meanwhile
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        had = self._offsets.of_topic(group, name)
        self._check_room(sum(queue_id not in had for queue_id in table))
        self._offsets.reset(group, name, table)
        return table

    def _offsets_at(self, topic: str, queues: int, time_ms: int) -> Slices[dict[int, int]]:
        table: dict[int, int] = {}
        for queue_id in range(queues):
            table[queue_id] = self._offset_at(topic, queue_id, time_ms)
            if queue_id % QUEUES_IN_SLICE == QUEUES_IN_SLICE - 1:
                yield 100 * len(table)
        return table

    def _check_room(self, more: int) -> None:
        if more > self._offsets.room:
            limit = self._settings.offsets_max
            raise too_much(f"there would be {self._offsets.count + more} offsets", limit, "maxConsumerOffsets")

    def _check_queue(self, topic: TopicConfig, queue_id: int) -> None:
        if queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"Topic {topic.topic_name} has no queue {queue_id}")

    def _target(self, header: headers.InvokeBrokerToResetOffset) -> int:
        if header.offset is None or header.offset == -1:
            return self._offset_at(header.topic, header.queue_id, header.timestamp)
        start, end = self._reader.offsets(header.topic, header.queue_id)
        if not start <= header.offset <= end:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"Target offset {header.offset} not in consume queue range [{start}-{end}]"
            )
        return header.offset

    def _offset_at(self, topic: str, queue_id: int, time_ms: int) -> int:
        """The offset of the first message stored then or later; a negative time means the end of the queue."""
        if time_ms < 0:
            return self._reader.offsets(topic, queue_id)[1]
        return max(self._reader.offset_by_time(topic, queue_id, time_ms, Boundary.LOWER), 0)

    def _reset_at_clients(self, header: headers.InvokeBrokerToResetOffset, asked: Asked) -> Slices[dict[int, int]]:
        name, group = header.topic, header.group
        topic = self._topics.get(name)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST,
                f"[reset-offset] reset offset failed, no topic in this broker. topic={name}",
            )
        table: dict[int, int] = {}
        for queue_id in range(topic.write_queue_nums):
            consumed = self._offsets.get(group, name, queue_id)
            if consumed == -1:
                raise Refused(ResponseCode.SYSTEM_ERROR, f"THe consumer group <{group}> not exist")
            offset = self._offset_at(name, queue_id, header.timestamp)
            table[queue_id] = offset if header.is_force or offset < consumed else consumed
            if queue_id % QUEUES_IN_SLICE == QUEUES_IN_SLICE - 1:
                yield 100 * len(table)
        members = self._clients.group(group)
        if members is None:
            raise Refused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {group} Topic: {name} "
                f"Timestamp: {header.timestamp}",
            )
        body = yield from self._push_body(name, table, for_c=asked.command.language == "CPP")
        ext = headers.ResetConsumerClientOffset(
            topic=name, group=group, timestamp=header.timestamp, is_force=header.is_force
        ).encode()
        for peer in list(members.clients):
            command = Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, flag=_ONE_WAY, ext=ext, body=body)
            self._outbox.put(Tell(peer, command))
        return table

    def _push_body(self, topic: str, table: dict[int, int], *, for_c: bool) -> Slices[bytes]:
        if not for_c:
            entries = yield from self._by_queue(topic, table)
            return b"".join(tables.parts(bodies.ResetOffsetBody(), {"offsetTable": entries}))
        entries = tables.Entries()
        for number, (queue_id, at) in enumerate(table.items(), 1):
            queue = bodies.MessageQueueForC(topic=topic, broker_name=self._settings.name, queue_id=queue_id, offset=at)
            entries.add(queue.encode())
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        return b"".join(tables.parts(bodies.ResetOffsetBodyForC(), {"offsetTable": entries}))

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, self._settings.name, queue_id)

    def clone(self, asked: Request[headers.CloneGroupOffset]) -> Slices[Command]:
        """CLONE_GROUP_OFFSET: a group continues at the offsets of another one, in one topic or in all."""
        yield 0
        header = asked.header
        source, destination = header.src_group, header.dest_group
        if self._groups.find(destination, asked.now_ms) is None:  # as the first consumer of a new group finds it
            fault = names.group_fault(destination)
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, fault or f"Group {destination} does not exist")
        topics = {header.topic} if header.topic and header.topic.strip() else self._offsets.topics_of(source)
        members = self._clients.group(source)
        for topic in topics:
            if self._topics.get(topic) is None or not self._offsets.of_topic(source, topic):
                continue
            subscribed = members.subscriptions if members is not None and not header.offline else {}
            if subscribed and topic not in subscribed:
                continue
            if source != destination:
                had = len(self._offsets.of_topic(destination, topic))
                self._check_room(len(self._offsets.of_topic(source, topic)) - had)
                self._offsets.copy(source, destination, topic)
            yield 0
        return asked.command.answer()

    # ── Showing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def correction(self, asked: Request[headers.QueryCorrectionOffset]) -> Slices[Large]:
        """QUERY_CORRECTION_OFFSET: the smallest offset of a topic's groups, for each queue."""
        yield 0
        header = asked.header
        topic = header.topic
        left_out = set(split_names(header.filter_groups or "", ","))
        smallest: dict[int, int] = {}
        number = 0
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in list(self._offsets.of_topic(group, topic).items()):
                if offset >= self._reader.offsets(topic, queue_id)[0]:
                    smallest[queue_id] = min(offset, smallest.get(queue_id, _NEVER))
                number += 1
                if number % QUEUES_IN_SLICE == 0:
                    yield 100 * len(smallest)
        for queue_id, offset in list(self._offsets.of_topic(header.compare_group, topic).items()):
            if smallest.get(queue_id, _NEVER) > offset:
                smallest[queue_id] = _NEVER
            number += 1
            if number % QUEUES_IN_SLICE == 0:
                yield 100 * len(smallest)
        entries = tables.Entries()
        yield from tables.add_offsets(entries, smallest)
        return entries.answer(asked.command, bodies.QueryCorrectionOffsetBody(), "correctionOffsets")

    def show_all(self, asked: Asked) -> Slices[Large]:
        """GET_ALL_CONSUMER_OFFSET: the whole table, for slaves."""
        yield 0
        version = self._offsets.version
        consumed = yield from tables.offset_table(self._offsets.table)
        pulled = yield from tables.offset_table(self._offsets.pulled)
        shell = ConsumerOffsets(data_version=version)
        return tables.answer(asked.command, shell, {"offsetTable": consumed, "pullOffsetTable": pulled})

    def show_delays(self, asked: Asked) -> Command:
        """GET_ALL_DELAY_OFFSET: how far the delay levels are, for slaves."""
        return asked.command.answer(body=self._delay_offsets())
