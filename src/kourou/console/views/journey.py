"""The journey of one message, from the records that brokers have stored. Trace records are optional; they add times and
hosts.

A message that a consumer fails to process is stored again: in SCHEDULE_TOPIC_XXXX with its delay level while it waits,
in %RETRY% of the group when it is due, in %DLQ% after too many failures. All these records keep its unique key, which
is indexed. So a waiting record is a failed attempt, and the one with the highest count determines the next step.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kourou.client import Delivery
from kourou.console.views.messages import MessageView
from kourou.console.views.values import long, long_in, ms
from kourou.printable import printable
from kourou.protocol.properties import Property
from kourou.protocol.system_names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from kourou.protocol.traces import PUB, SUB_AFTER, SUB_BEFORE, Trace

REDRIVE_ID: Final = "REDRIVE_ID"
REDRIVE_FROM: Final = "REDRIVE_FROM"
ATTEMPTS_MAX: Final = 100
TRACE_CONTEXT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}.{0,100}", re.ASCII)
TRACE_PLACE: Final = "{trace_id}"


class Attempt(msgspec.Struct, frozen=True):
    """One delivery to a group, as far as it is known."""

    n: int
    at_ms: int | None
    ok: bool | None
    level: int | None = None
    cost_ms: int | None = None
    host: str | None = None
    source: str = "log"
    offset_id: str | None = None


class Next(msgspec.Struct, frozen=True):
    """The next attempt."""

    at_ms: int
    level: int
    n: int


class Dead(msgspec.Struct, frozen=True):
    """The position of the dead letter."""

    at_ms: int | None
    broker: str
    queue: int
    offset: str
    offset_id: str


class Redriven(msgspec.Struct, frozen=True):
    """A copy that was made of the dead letter."""

    at_ms: int | None
    id: str
    to: str


class GroupJourney(msgspec.Struct, frozen=True, kw_only=True):
    """The journey of the message in one group."""

    group: str
    state: str
    text: str
    attempts: list[Attempt]
    next: Next | None = None
    left: int | None = None
    dead: Dead | None = None
    redriven: list[Redriven] = []
    before: str | None = None
    """How many messages of the queue the group consumes before it."""


class Sent(msgspec.Struct, frozen=True):
    """The client that sent it."""

    by: str
    at_ms: int | None
    cost_ms: int | None
    source: str


class Held(msgspec.Struct, frozen=True):
    """Why no consumer can see it yet."""

    kind: str
    due_ms: int | None


class JourneyView(msgspec.Struct, frozen=True):
    message: MessageView | None
    trace: bool
    sent: Sent | None
    held: Held | None
    groups: list[GroupJourney]
    trace_url: str | None = None
    """The page of its trace in the tool of `--trace-url`."""


class GroupEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence about the message in one group."""

    group: str
    committed: int | None
    """The group's offset in the message's queue."""
    wants: bool | None
    """Whether its subscription accepts the message's tag; None if that is not known."""
    retry_max: int
    failed: Sequence[Delivery] = ()
    """Records of failed attempts that wait or waited."""
    again: Sequence[Delivery] = ()
    """Records in the group's retry topic."""
    consumed_again: Mapping[str, bool] = {}
    """By offset id of these: whether the group's offset is past it."""
    dead: Sequence[Delivery] = ()


def group_journey(
    message: Delivery | None,
    evidence: GroupEvidence,
    delays_ms: Sequence[int],
    traces: Sequence[Trace],
    hosts: Sequence[str],
) -> GroupJourney:
    """The journey of the message in one group, and the next step."""
    failed = sorted(evidence.failed, key=lambda one: (one.reconsume_times, one.stored_ms))
    traced = traced_attempts(evidence.group, traces, hosts)
    attempts = [
        Attempt(
            n=one.reconsume_times,
            at_ms=ms(one.stored_ms),
            ok=False,
            level=long_in(one.properties.get(Property.DELAY_LEVEL)),
            offset_id=one.offset_id,
        )
        for one in failed
    ]
    redriven = [one for one in evidence.again if REDRIVE_ID in one.properties]
    dead = max(evidence.dead, key=lambda one: one.stored_ms, default=None)
    last = failed[-1] if failed else None
    count = last.reconsume_times if last is not None else 0
    next_attempt: Next | None = None
    before: int | None = None
    if dead is not None:
        attempts.append(Attempt(n=count + 1, at_ms=ms(dead.stored_ms), ok=False))
        state, text = "dead", f"failed {count + 1} times: it is a dead letter"
        after = [one for one in redriven if one.stored_ms >= dead.stored_ms]
        if after and all(evidence.consumed_again.get(one.offset_id, False) for one in after):
            state, text = "consumed", "it was a dead letter, was redriven, and has been consumed"
    elif last is not None:
        state, text, next_attempt, done = _after_failures(evidence, last, delays_ms)
        if done is not None:
            attempts.append(done)
    elif evidence.committed is None or message is None:
        state, text = "unknown", "the group has no offset in this queue"
    elif message.queue_offset < evidence.committed:
        if evidence.wants is False:
            state, text = "not_subscribed", "skipped: the group does not subscribe to its tag"
        else:
            state, text = "consumed", "the group's offset is past it"
            attempts.append(Attempt(n=1, at_ms=None, ok=True))
    elif evidence.wants is False:
        state, text = "not_subscribed", "not for it: the group does not subscribe to its tag"
    else:
        before = message.queue_offset - evidence.committed
        state, text = "not_yet", f"not consumed yet: {before:,} messages of the queue come before it"
    return GroupJourney(
        group=printable(evidence.group),
        state=state,
        text=text,
        attempts=_merged(attempts, traced)[:ATTEMPTS_MAX],
        next=next_attempt,
        left=max(evidence.retry_max - count, 0) if last is not None and dead is None else None,
        dead=None if dead is None else _dead(dead),
        redriven=[
            Redriven(ms(one.stored_ms), printable(one.properties[REDRIVE_ID]), printable(one.record.topic))
            for one in redriven
        ],
        before=None if before is None else long(before),
    )


def _after_failures(
    evidence: GroupEvidence, last: Delivery, delays_ms: Sequence[int]
) -> tuple[str, str, Next | None, Attempt | None]:
    count = last.reconsume_times
    level = long_in(last.properties.get(Property.DELAY_LEVEL)) or 0
    due = [one for one in evidence.again if one.reconsume_times >= count and REDRIVE_ID not in one.properties]
    if due:
        newest = max(due, key=lambda one: one.stored_ms)
        if evidence.consumed_again.get(newest.offset_id, False):
            done = Attempt(n=count + 1, at_ms=ms(newest.stored_ms), ok=True, offset_id=newest.offset_id)
            return "consumed", f"failed {count} times, then consumed", None, done
        return (
            "retrying",
            f"failed {count} times; the next attempt is due now",
            Next(newest.stored_ms, level, count + 1),
            None,
        )
    delay = delays_ms[min(level, len(delays_ms)) - 1] if delays_ms and level > 0 else 0
    at_ms = last.stored_ms + delay
    return "retrying", f"failed {count} times; it waits for the next attempt", Next(at_ms, level, count + 1), None


def _dead(letter: Delivery) -> Dead:
    return Dead(
        ms(letter.stored_ms),
        printable(letter.queue.broker_name),
        letter.queue_id,
        long(letter.queue_offset),
        letter.offset_id,
    )


def traced_attempts(group: str, traces: Sequence[Trace], hosts: Sequence[str]) -> list[Attempt]:
    """Attempts that the group's members have traced. `hosts`: the host that sent each trace record."""
    results = {(one.request_id, one.message_id): one for one in traces if one.kind == SUB_AFTER}
    found: list[Attempt] = []
    for one, host in zip(traces, hosts, strict=True):
        if one.kind == SUB_BEFORE and one.group == group:
            after = results.get((one.request_id, one.message_id))
            found.append(
                Attempt(
                    n=0,
                    at_ms=ms(one.time_ms),
                    ok=None if after is None else after.is_success,
                    cost_ms=None if after is None else after.cost_ms,
                    host=printable(host),
                    source="trace",
                )
            )
    found.sort(key=lambda one: one.at_ms or 0)
    return [msgspec.structs.replace(one, n=number) for number, one in enumerate(found, 1)]


def _merged(stored: list[Attempt], traced: list[Attempt]) -> list[Attempt]:
    """Attempts by number: times, durations and hosts of traces, levels and ids of the log."""
    by_number = {one.n: one for one in stored}
    for one in traced:
        known = by_number.get(one.n)
        if known is None:
            by_number[one.n] = one
        else:
            by_number[one.n] = msgspec.structs.replace(
                one, ok=known.ok if one.ok is None else one.ok, level=known.level, offset_id=known.offset_id
            )
    return [by_number[number] for number in sorted(by_number)]


def sent_view(message: Delivery | None, traces: Sequence[Trace], hosts: Sequence[str]) -> Sent | None:
    for one, host in zip(traces, hosts, strict=True):
        if one.kind == PUB:
            return Sent(printable(host), ms(one.time_ms), one.cost_ms, "trace")
    if message is None:
        return None
    return Sent(printable(message.record.born_address), ms(message.born_ms), None, "log")


def trace_link(template: str | None, message: Delivery | None) -> str | None:
    """The page of the trace whose context is in the message, if it has one (W3C trace context)."""
    found = None if message is None else TRACE_CONTEXT.fullmatch(message.properties.get("traceparent", ""))
    return None if template is None or found is None else template.replace(TRACE_PLACE, found[1])


def retry_topics(group: str, topic: str) -> list[str]:
    """The possible names of a group's retry topic: for pull, and for pop in two versions."""
    return [f"{RETRY_PREFIX}{group}", f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"]


def group_of(message: Delivery) -> str | None:
    """The group that failed to process a message, from the record that waits for the next attempt."""
    real = message.properties.get(Property.REAL_TOPIC, "")
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if real.startswith(prefix):
            return real.removeprefix(prefix)
    return None


def delays_of(text: str) -> list[int]:
    """`1s 5s 10s …` in ms."""
    units = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    words = [word for word in text.split() if word[:-1].isdigit() and word[-1:] in units and len(word) < 10]
    return [int(word[:-1]) * units[word[-1]] for word in words]
