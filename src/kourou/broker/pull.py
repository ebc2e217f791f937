"""Pulling: messages of a queue from an offset on, now or when there are some.

The order of the checks is Apache's. A pull that finds nothing and may wait is held by `LongPolls`; the offset that a
pull carries is committed when it first comes, not when it is tried again.

Java: PullMessageProcessor, DefaultPullMessageResultHandler.
"""

from kourou.broker import subscriptions
from kourou.broker.access import Access
from kourou.broker.clients import Clients
from kourou.broker.events import Asked, Outbox, Peer, Refused, ReplyParts, Request
from kourou.broker.filtering import Filtering, MessageFilter
from kourou.broker.groups import Groups
from kourou.broker.long_polls import Held, LongPolls
from kourou.broker.offsets import Offsets
from kourou.broker.replication import Replication
from kourou.broker.settings import READ, BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.protocol import headers
from kourou.protocol.bodies import SubscriptionData, SubscriptionGroupConfig, TopicConfig
from kourou.protocol.codes import ADVICE, MASTER_ID, PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.store.reading import GetResult, GetStatus
from kourou.store.store import Store

_BULK = int(PullSysFlag.BULK)
_COMMIT = int(PullSysFlag.COMMIT_OFFSET)
_SUSPEND = int(PullSysFlag.SUSPEND)
_SUBSCRIPTION = int(PullSysFlag.SUBSCRIPTION)

_SUCCESS = int(ResponseCode.SUCCESS)
_NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)
_RETRY = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_MOVED = int(ResponseCode.PULL_OFFSET_MOVED)

_CODE = {
    GetStatus.FOUND: _SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: _RETRY,
    GetStatus.MESSAGE_WAS_REMOVING: _RETRY,
    GetStatus.OFFSET_FOUND_NULL: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: _NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: _MOVED,
    GetStatus.OFFSET_TOO_SMALL: _MOVED,
    GetStatus.NO_MATCHED_LOGIC_QUEUE: _MOVED,
    GetStatus.NO_MESSAGE_IN_QUEUE: _MOVED,
}

# Why a pull is not allowed, as a number that clients may look at.
BY_BROKER, BY_GROUP, BY_TOPIC, BY_BROADCASTING, BY_SUBSCRIPTION = "1", "2", "3", "4", "5"


class Pull:
    """Serves pulls."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        topics: Topics,
        groups: Groups,
        clients: Clients,
        offsets: Offsets,
        filtering: Filtering,
        stats: Stats,
        outbox: Outbox,
        replication: Replication,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._replication = replication
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._filtering = filtering
        self._stats = stats
        self._outbox = outbox
        self.polls = LongPolls(self._again)

    def pull(self, asked: Request[headers.PullMessage]) -> None:
        """PULL_MESSAGE and LITE_PULL_MESSAGE."""
        command = asked.command
        header = asked.header
        group, topic = self._check(header, asked)
        subscription = self._subscription(header, group)
        wants = self._filter(header, subscription)
        if self._settings.reject_pull_consumers:
            self._check_member(header, asked.peer)
        offset = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if offset is not None and self._settings.server_side_reset:
            result = self._reset_to(header, offset)
            code, remark = _MOVED, "OFFSET_RESET"
            self._pulled(header, result)  # its commit was in flight before it got the reset
        else:
            result = self._read(header, header.queue_offset, wants)
            code, remark = self._code(group, result, header.queue_offset), result.status.name
            self._pulled(header, result)
            self._commit(header)
        if code == _NOT_FOUND and header.sys_flag & _SUSPEND and self._may_hold():
            from_heartbeat = None if header.sys_flag & _SUBSCRIPTION else subscription
            self._hold(asked, wants, topic, group, from_heartbeat)
        else:
            self._answer(asked.peer, command, header, topic, group, result, code, remark)

    # ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _check(self, header: headers.PullMessage, asked: Asked) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        settings = self._settings
        if settings.end_in_doubt:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: there may be a newer master of the group, "
                "and this broker has not compared its log with that one's yet",
            )
        if not self._replication.may_be_read:
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while: this slave serves no reads while its "
                "master is available (slaveReadEnable)",
            )
        if not settings.is_readable:
            raise _forbidden(f"the broker[{settings.ip}] pulling message is forbidden", BY_BROKER)
        if asked.command.code == RequestCode.LITE_PULL_MESSAGE and not settings.lite_pull:
            raise _forbidden(f"the broker[{settings.ip}] for lite pull consumer is forbidden", BY_BROKER)
        group = self._groups.find(header.consumer_group, asked.now_ms)
        if group is None:
            raise Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {ADVICE}",
            )
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {header.consumer_group}", BY_GROUP)
        topic = self._topics.get(header.topic)
        if topic is None:
            raise Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {ADVICE}"
            )
        if not topic.perm & READ:
            raise _forbidden(f"the topic[{header.topic}] pulling message is forbidden", BY_TOPIC)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{asked.peer.address}]",
            )
        return group, topic

    def _subscription(self, header: headers.PullMessage, group: SubscriptionGroupConfig) -> SubscriptionData:
        if header.sys_flag & _SUBSCRIPTION:
            try:
                return subscriptions.build(header.topic, header.subscription, header.expression_type)
            except subscriptions.SubscriptionFault:
                raise Refused(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
                ) from None
        members = self._clients.group(header.consumer_group)
        if members is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{ADVICE}")
        if members.is_broadcasting and not group.consume_broadcast_enable:
            raise _forbidden(
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way", BY_BROADCASTING
            )
        if not self._groups.may_read(header.consumer_group, header.topic):
            raise _forbidden(
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]", BY_SUBSCRIPTION
            )
        subscription = members.subscriptions.get(header.topic)
        if subscription is None or subscription.sub_version < header.sub_version:
            members.is_outdated = True
        if subscription is None:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{ADVICE}")
        if subscription.sub_version < header.sub_version:
            raise Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription

    def _filter(self, header: headers.PullMessage, subscription: SubscriptionData) -> MessageFilter:
        is_inline = bool(header.sys_flag & _SUBSCRIPTION)
        return self._filtering.of_pull(subscription, header.consumer_group, header.sub_version, is_inline=is_inline)

    def _check_member(self, header: headers.PullMessage, peer: Peer) -> None:
        members = self._clients.group(header.consumer_group)
        if members is None or (members.consume_type == "CONSUME_ACTIVELY" and peer not in members.clients):
            raise Refused(
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                f"the consumer's group info not exist, or the pull consumer is rejected by server.{ADVICE}",
            )

    # ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, header: headers.PullMessage, offset: int, wants: MessageFilter) -> GetResult:
        result = self._store.reader.get(
            header.topic,
            header.queue_id,
            offset,
            header.max_msg_nums,
            accepts=wants.accepts,
            accepts_unit=wants.accepts_unit,
            accepts_record=wants.accepts_record,
            scan_max=wants.scan_max,
            max_size=header.max_msg_bytes if header.max_msg_bytes and header.max_msg_bytes > 0 else None,
            is_bulk=bool(header.sys_flag & _BULK),
        )
        if result.status is not GetStatus.FOUND:
            self._stats.missed += 1
        return result

    def _reset_to(self, header: headers.PullMessage, offset: int) -> GetResult:
        start, end = self._store.reader.offsets(header.topic, header.queue_id)
        return GetResult(GetStatus.OFFSET_TOO_SMALL, offset, start, end)

    def _pulled(self, header: headers.PullMessage, result: GetResult) -> None:
        self._offsets.pulled_to(header.consumer_group, header.topic, header.queue_id, result.next_offset)

    def _commit(self, header: headers.PullMessage) -> None:
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if header.sys_flag & _COMMIT and self._settings.role is not Role.SLAVE:
            self._offsets.commit(group, topic, queue_id, header.commit_offset)

    def _answer(
        self,
        peer: Peer,
        command: Command,
        header: headers.PullMessage,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        result: GetResult,
        code: int,
        remark: str,
    ) -> None:
        ext = {
            "suggestWhichBrokerId": str(self._suggest(group, result)),
            "nextBeginOffset": str(result.next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
            "topicSysFlag": str(topic.topic_sys_flag),
            "groupSysFlag": str(group.group_sys_flag),
        }
        answer = command.answer(code, remark, ext)
        if code == _SUCCESS:
            self._stats.got(header.topic, header.consumer_group, len(result.records), result.size)
            if not command.is_one_way:
                is_bulk = bool(header.sys_flag & _BULK)
                self._outbox.put(ReplyParts(peer, answer, result.records, result.size, is_bulk))
        else:
            self._outbox.reply(peer, command, answer)

    def _suggest(self, group: SubscriptionGroupConfig, result: GetResult) -> int:
        """Which member of the broker group to pull from next: a slave, if this one would have to read from disk.

        A slave that serves reads only while it has no master never suggests itself: it refuses them later, and Java's
        consumers follow a suggestion until an answer has another one, and a refusal has none. Without a master in the
        route, they come here all the same.
        """
        if not self._settings.slave_read:
            return MASTER_ID
        if not self._replication.has_master:
            return self._settings.broker_id
        if result.behind > self._store.reader.limits.memory_window:
            return group.which_broker_when_consume_slowly
        return group.broker_id

    def _code(self, group: SubscriptionGroupConfig | None, result: GetResult, offset: int) -> int:
        """The code of the answer. A slave without a message for a consumer sends it to its master, if there is one.

        A slave without a master may lack what consumers have seen already: they wait for it, as for new messages.
        """
        code = _code(result, offset)
        if self._settings.role is not Role.SLAVE or code == _SUCCESS or group is None:
            return code
        if self._replication.has_master and self._suggest(group, result) == MASTER_ID:
            return _RETRY
        if result.status is GetStatus.OFFSET_OVERFLOW_BADLY:
            result.next_offset = offset
            return _NOT_FOUND
        return code

    # ── Waiting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _may_hold(self) -> bool:
        return self.polls.waiting < self._settings.held_pulls_max

    def _hold(
        self,
        asked: Request[headers.PullMessage],
        wants: MessageFilter,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        subscription: SubscriptionData | None,
    ) -> None:
        header = asked.header
        wait_ms = header.suspend_timeout_millis if self._settings.long_polling else self._settings.short_polling_ms
        deadline_ms = asked.now_ms + max(wait_ms, 0)
        epoch = self._access.epoch
        self.polls.hold(Held(asked, wants, deadline_ms, header.queue_offset, epoch, topic, group, subscription))

    def _again(self, held: Held, last: bool) -> bool:
        """Try a held pull again. Returns whether it was answered; the last attempt always answers."""
        header = held.header
        if held.epoch != self._access.epoch:  # users, policies or accounts have changed while it waited
            refusal = self._access.refusal(held.asked, header)
            if refusal is not None:
                self._outbox.reply(held.peer, held.command, refusal)
                return True
            held.epoch = self._access.epoch
        try:
            self._renew(held)
        except Refused as refused:
            answer = held.command.answer(refused.code, refused.remark, refused.ext)
            self._outbox.reply(held.peer, held.command, answer)
            return True
        reset_to = self._offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset_to is not None and self._settings.server_side_reset:
            result, code, remark = self._reset_to(header, reset_to), _MOVED, "OFFSET_RESET"
        else:
            result = self._read(header, held.seen_to, held.wants)
            code, remark = self._code(held.group, result, held.seen_to), result.status.name
        if not last and code in (_NOT_FOUND, _RETRY):
            if code == _RETRY:
                held.seen_to = result.next_offset
            return False
        if code == _NOT_FOUND and held.seen_to != header.queue_offset:
            code, remark = _RETRY, GetStatus.NO_MATCHED_MESSAGE.name
        self._answer(held.peer, held.command, header, held.topic, held.group, result, code, remark)
        return True

    def _renew(self, held: Held) -> None:
        """Check a held pull again if the topic, the group or its subscription have changed. Raises Refused.

        With another filter, it has to see the messages that the former one has passed over: a consumer that changes
        its subscription waits with the old one until then.
        """
        header, subscription = held.header, held.subscription
        if subscription is not None:
            subscription = self._clients.subscription(header.consumer_group, header.topic)
        if (
            self._settings.is_readable
            and self._topics.get(header.topic) is held.topic
            and self._groups.get(header.consumer_group) is held.group
            and subscription is held.subscription
        ):
            wants = self._filtering.renewed(held.wants)
        else:
            held.group, held.topic = self._check(header, held.asked)
            subscription = self._subscription(header, held.group)
            wants = self._filter(header, subscription)
            if held.subscription is not None:
                held.subscription = subscription
        if wants is not held.wants:
            held.wants, held.seen_to = wants, header.queue_offset


def _code(result: GetResult, offset: int) -> int:
    """The answer's code. Offset 0 of an empty queue is PULL_NOT_FOUND, not PULL_OFFSET_MOVED."""
    if not offset and result.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return _NOT_FOUND
    return _CODE[result.status]


def _forbidden(remark: str, kind: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": kind})
