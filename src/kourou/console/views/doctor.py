"""The doctor of a group: finds out why it does not consume. Evidence in, findings out, the most likely first."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kourou.client.admin import Progress
from kourou.console.facts import GroupOnBroker
from kourou.console.views.groups import Waiting, retry_lag
from kourou.console.views.overview import span
from kourou.console.views.values import long, long_in
from kourou.printable import printable
from kourou.protocol.bodies import ConsumerConnection, ConsumerRunningInfo, SubscriptionData, TopicOffset
from kourou.protocol.codes import Perm
from kourou.protocol.message import MessageQueue
from kourou.protocol.system_names import RETRY_PREFIX

HELD_MS_MAX: Final = 60_000
EVIDENCE_MAX: Final = 20
BROADCASTING: Final = "BROADCASTING"
ORDERLY: Final = "PROP_CONSUMEORDERLY"
STARTED: Final = "PROP_CONSUMER_START_TIMESTAMP"


class Finding(msgspec.Struct, frozen=True):
    """One result: good, doubtful or bad, with its evidence and the remedy."""

    code: str
    severity: str
    text: str
    args: dict[str, Any]
    remedy: str = ""
    evidence: list[list[str]] = []


class DoctorView(msgspec.Struct, frozen=True):
    group: str
    findings: list[Finding]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the checks."""

    group: str
    on: Sequence[GroupOnBroker]
    connections: ConsumerConnection | None
    infos: Mapping[str, ConsumerRunningInfo]
    """The members' own information, by client id."""
    progress: Progress
    ends: Mapping[MessageQueue, TopicOffset]
    """The ends of all topics that the group subscribes to or has offsets in."""
    perms: Mapping[str, int]
    tags: Mapping[str, Sequence[str | None]]
    """The tags of the newest messages of each topic with lag or a filter."""
    dead: int
    waiting: Waiting
    lag_ms: int | None
    now_ms: int


def diagnosis(evidence: Evidence) -> DoctorView:
    found = [*_members(evidence), *_settings(evidence), *_offsets(evidence), *_work(evidence)]
    if not any(one.severity != "good" for one in found):
        lag = f"it is {evidence.progress.lag:,} messages behind" if evidence.progress.lag > 0 else "it has no lag"
        if evidence.waiting.unread:
            lag += f"; {evidence.waiting.unread:,} delayed messages were not examined, and may be its retries"
        found.append(Finding("ok", "good", f"nothing is wrong: {lag}", {"lag": long(evidence.progress.lag)}))
    return DoctorView(printable(evidence.group), found)


def _rows(rows: Iterator[list[str]] | list[list[str]]) -> list[list[str]]:
    return [[printable(cell) for cell in row] for row in list(rows)[:EVIDENCE_MAX]]


def _members(evidence: Evidence) -> Iterator[Finding]:
    connections = evidence.connections
    if connections is None or not connections.connection_set:
        yield Finding(
            "no_members",
            "bad",
            "no member is connected",
            {},
            "start a consumer of this group; if one runs, check its group name, its name servers and its log",
        )
        return
    subscribed: dict[str, list[str]] = {}
    for client_id, info in evidence.infos.items():
        words = sorted(
            f"{one.topic} {one.sub_string or '*'}" for one in info.subscription_set if not _is_retry(one.topic)
        )
        subscribed.setdefault(", ".join(words), []).append(client_id)
    if len(subscribed) > 1:
        yield Finding(
            "different_subscriptions",
            "bad",
            "members of the group have different subscriptions: each gets messages meant for others, which are lost",
            {"kinds": len(subscribed)},
            "give all members the same topics and filters, or put the others into another group",
            _rows([[client, words] for words, clients in subscribed.items() for client in clients]),
        )
    places: dict[str, set[str]] = {}
    for one in connections.connection_set:
        places.setdefault(one.client_id or "", set()).add(one.client_addr or "")
    same = {client: where for client, where in places.items() if len(where) > 1}
    if same:
        yield Finding(
            "same_client_id",
            "bad",
            "several processes have the same client id: they count as one member, so queues are not shared among them",
            {"ids": [printable(client) for client in same]},
            "give each process an instance name of its own (rocketmq.client.name, instance_name)",
            _rows([[client, *sorted(where)] for client, where in same.items()]),
        )
    queues: dict[str, int] = {}
    for queue in evidence.ends:
        queues[queue.topic] = queues.get(queue.topic, 0) + 1
    if connections.message_model != BROADCASTING:
        for topic in connections.subscription_table:
            if not _is_retry(topic) and 0 < queues.get(topic, 0) < len(places):
                yield Finding(
                    "more_members_than_queues",
                    "doubtful",
                    f"{len(places)} members share {queues[topic]} queues of {printable(topic)}: the others get nothing",
                    {"members": len(places), "queues": queues[topic], "topic": printable(topic)},
                    f"give {printable(topic)} at least {len(places)} queues, or run fewer members",
                )


def _settings(evidence: Evidence) -> Iterator[Finding]:
    for topic, perm in evidence.perms.items():
        if not perm & Perm.READ and not _is_retry(topic):
            yield Finding(
                "no_permission",
                "bad",
                f"{printable(topic)} may not be read",
                {"topic": printable(topic)},
                f"kourou admin updateTopicPerm -t {printable(topic)} -p 6",
            )
    off = [one.broker for one in evidence.on if not one.config.consume_enable]
    if off:
        yield Finding(
            "consume_disabled",
            "bad",
            f"the group may not consume on {', '.join(map(printable, off))} (consumeEnable=false)",
            {"brokers": [printable(name) for name in off]},
            f"kourou admin updateSubGroup -g {printable(evidence.group)} -s true, with -c or -b",
        )
    if evidence.connections is not None and evidence.connections.message_model == BROADCASTING:
        yield Finding(
            "broadcast",
            "doubtful",
            "the group broadcasts: each member gets all messages and stores its own offsets, which brokers do not know",
            {},
            "the lag of the group is meaningless; check the members",
        )


def _offsets(evidence: Evidence) -> Iterator[Finding]:
    outside = []
    for queue, state in evidence.progress.queues.items():
        end = evidence.ends.get(queue)
        if end is not None and not end.min_offset <= state.consumer_offset <= end.max_offset:
            bounds = f"{end.min_offset} to {end.max_offset}"
            outside.append([queue.topic, f"{queue.broker_name}:{queue.queue_id}", str(state.consumer_offset), bounds])
    if outside:
        yield Finding(
            "offset_outside",
            "bad",
            f"{len(outside)} committed offsets are outside their queues: messages expired, or the topic is new",
            {"queues": len(outside)},
            "members continue at their configured start position; reset the offsets to choose another one",
            _rows(outside),
        )
    connections = evidence.connections
    if connections is None:
        return
    for topic, subscription in connections.subscription_table.items():
        yield from _filter(evidence, topic, subscription)
        wrapped = [queue for queue in evidence.ends if queue.topic == topic]
        stored = sum(evidence.ends[queue].max_offset - evidence.ends[queue].min_offset for queue in wrapped)
        known = [evidence.progress.queues[queue] for queue in wrapped if queue in evidence.progress.queues]
        is_idle = evidence.progress.tps == 0 and all(state.broker_offset <= state.consumer_offset for state in known)
        if stored and is_idle and connections.consume_from_where == "CONSUME_FROM_LAST_OFFSET" and not _is_retry(topic):
            yield Finding(
                "started_at_end",
                "good",  # most groups that have consumed everything look like this
                f"no message of {printable(topic)} is left for it; if it never got the {stored:,} stored messages, "
                "they are older than the group: a new group starts at the end",
                {"topic": printable(topic), "messages": long(stored)},
                "to deliver them, reset the group to the first offset or to a time",
            )


def _filter(evidence: Evidence, topic: str, subscription: SubscriptionData) -> Iterator[Finding]:
    tags = evidence.tags.get(topic, ())
    wanted = set(subscription.tags_set)
    if wanted and tags and not wanted & {tag for tag in tags if tag}:
        seen = sorted({tag or "(none)" for tag in tags})
        yield Finding(
            "tag_not_subscribed",
            "doubtful",
            f"the newest {len(tags)} messages of {printable(topic)} have none of the tags that the group subscribes to",
            {"topic": printable(topic), "tags": [printable(tag) for tag in seen]},
            "compare the tags of the producer with the subscription",
            _rows([["subscribed", ", ".join(sorted(wanted))], ["seen", ", ".join(seen)]]),
        )


def _work(evidence: Evidence) -> Iterator[Finding]:
    held, locks = [], []
    owned: set[MessageQueue] = set()
    for client_id, info in evidence.infos.items():
        owned |= {*info.mq_table, *info.mq_pop_table}
        is_orderly = info.properties.get(ORDERLY) == "true"
        started = long_in(info.properties.get(STARTED)) or 0
        for queue, state in info.mq_table.items():
            place = [client_id, queue.topic, f"{queue.broker_name}:{queue.queue_id}"]
            since = max(state.last_consume_timestamp, started)
            waits = evidence.now_ms - since
            if state.cached_msg_count and waits > HELD_MS_MAX:
                text = f"nothing consumed for {span(waits / 1000)}" if since > 0 else "nothing consumed yet"
                held.append([*place, f"{state.cached_msg_count} messages", text])
            if is_orderly and not state.locked:
                locks.append([*place, "not locked"])
    if held:
        yield Finding(
            "held",
            "bad",
            "members have messages that they do not finish: their listeners hang or wait",
            {"queues": len(held)},
            "check the stacks of these members",
            _rows(held),
        )
    if locks:
        yield Finding(
            "order_lock",
            "doubtful",
            "an orderly member has queues without a lock: another member, perhaps a dead one, still has it",
            {"queues": len(locks)},
            "locks of a dead member expire after 60 s (rebalanceLockMaxLiveTime); if not, check the other member",
            _rows(locks),
        )
    behind = [q for q, s in evidence.progress.queues.items() if s.broker_offset > s.consumer_offset]
    unowned = [q for q in behind if q not in owned and not _is_retry(q.topic)]
    if evidence.infos and unowned and not _is_broadcast(evidence):
        yield Finding(
            "unassigned",
            "doubtful",
            f"{len(unowned)} queues with lag belong to no member that answers",
            {"queues": len(unowned)},
            "wait for the next rebalancing (20 s); then compare the subscriptions of the members",
            _rows([[queue.topic, f"{queue.broker_name}:{queue.queue_id}"] for queue in unowned]),
        )
    waiting = retry_lag(evidence.progress) + evidence.waiting.count
    if waiting:
        is_all = bool(behind) and all(_is_retry(queue.topic) for queue in behind)
        least = "at least " if evidence.waiting.unread else ""
        yield Finding(
            "retrying",
            "doubtful",
            f"{least}{waiting:,} messages failed and wait for their next attempt"
            + (": all of the lag is in retries" if is_all else ""),
            {"count": long(waiting), "all": is_all},
            "see the journey of one of them, and the log of the members",
        )
    if evidence.dead:
        yield Finding(
            "dead_letters",
            "doubtful",
            f"{evidence.dead:,} messages failed too often and are dead letters",
            {"count": long(evidence.dead)},
            "examine them, fix the cause, and redrive them",
        )
    if evidence.lag_ms is not None and evidence.lag_ms > HELD_MS_MAX and evidence.infos and not held:
        yield Finding(
            "slow",
            "doubtful",
            f"the oldest message waits for {span(evidence.lag_ms / 1000)}; they consume {evidence.progress.tps:.1f}/s",
            {"ms": evidence.lag_ms, "rate": evidence.progress.tps},
            "run more members, up to the number of queues, or make the listener faster",
        )


def _is_broadcast(evidence: Evidence) -> bool:
    return evidence.connections is not None and evidence.connections.message_model == BROADCASTING


def _is_retry(topic: str | None) -> bool:
    return (topic or "").startswith(RETRY_PREFIX)
