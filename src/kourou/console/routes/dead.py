"""Dead letters: the groups that have some, their messages, redriving; jobs."""

import asyncio
import shlex
from typing import Any, Final

import msgspec

from kourou.client import Delivery
from kourou.client.admin.dead_letters import ORIGIN, TO_RETRY, origin_topic
from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.errors import ConsoleError
from kourou.console.filters import ALL, parse
from kourou.console.finding import cursor_of, time_ms
from kourou.console.jobs import Job, JobView
from kourou.console.letters import Choice, LetterPlace, Tally, pages, places_of, tally
from kourou.console.limits import LIST_BODY_SIZE, PAGE_MESSAGES_MAX, REDRIVE_RATE_MAX
from kourou.console.routes.messages import filter_of, scanned
from kourou.console.routes.topics import known_topic
from kourou.console.scanning import Cursor
from kourou.console.sessions import Role
from kourou.console.views.messages import MessagePage, MessageView, Origin, kinds_of, message_view
from kourou.console.views.values import long, ms
from kourou.printable import printable
from kourou.protocol.codes import Perm
from kourou.protocol.properties import Property
from kourou.protocol.system_names import DEAD_LETTER_PREFIX

GROUPS_MAX: Final = 500
COUNTED_SECONDS: Final = 10.0
"""How long the counts of a selection of dead letters are cached."""


class DeadGroup(msgspec.Struct, frozen=True):
    group: str
    count: str
    last_ms: int | None
    readable: bool


class DeadGroups(msgspec.Struct, frozen=True):
    groups: list[DeadGroup]


async def listing(call: Call) -> DeadGroups:
    topics = await call.look.topics()
    names = [name.removeprefix(DEAD_LETTER_PREFIX) for name in topics if name.startswith(DEAD_LETTER_PREFIX)][
        :GROUPS_MAX
    ]
    counts = await asyncio.gather(*(call.look.dead_count(name, 8.0) for name in names))
    rows = []
    for name, (count, last) in zip(names, counts, strict=True):
        on = topics[DEAD_LETTER_PREFIX + name]
        rows.append(DeadGroup(printable(name), long(count), ms(last), all(one.config.perm & Perm.READ for one in on)))
    return DeadGroups(sorted(rows, key=lambda row: -int(row.count)))


async def letters(call: Call) -> MessagePage:
    group = call.path["group"]
    count, _ = await call.look.dead_count(group)
    topic = DEAD_LETTER_PREFIX + group
    if topic not in await call.look.topics():
        return MessagePage(messages=[], cursor=None, scanned="0", of="0", stopped="end", count="0")
    newest = call.choice("order", "newest", "oldest") == "newest"
    limit = call.number("limit", 50, 1, PAGE_MESSAGES_MAX)
    result = await scanned(call, topic, filter_of(call), newest=newest, limit=limit)
    views = [_letter(call, letter) for letter in result.messages]
    return MessagePage(
        messages=views,
        cursor=None if result.cursor is None else result.cursor.encode(),
        scanned=long(result.scanned),
        of=long(result.of),
        stopped=result.stopped,
        count=long(count),
        kinds=kinds_of(views),
    )


def _letter(call: Call, letter: Delivery) -> MessageView:
    view = message_view(letter, with_bodies=call.sees_bodies, most=LIST_BODY_SIZE)
    origin = origin_topic(letter.properties)
    first = letter.properties.get(Property.ORIGIN_MESSAGE_ID) or letter.properties.get(Property.DLQ_ORIGIN_MESSAGE_ID)
    return msgspec.structs.replace(
        view,
        origin=Origin(None if origin is None else printable(origin), None if first is None else printable(first)),
        redriven=call.console.jobs.redriven_by(letter),
    )


# ── Redriving ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Redrive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    target: str = TO_RETRY
    topic: str | None = None
    only: list[LetterPlace] | None = None
    q: str = ""
    since: str | None = msgspec.field(default=None, name="from")
    until: str | None = msgspec.field(default=None, name="to")
    rate: float = 100
    again: bool = False
    preview: bool = False
    confirm: str | None = None


class RedrivePreview(msgspec.Struct, frozen=True):
    """The messages of a redrive. If not `complete`, only `read` of `of` letters were counted, but all are sent."""

    count: str
    before: str
    to: dict[str, int]
    without_target: str
    missing: str
    read: str
    of: str
    complete: bool


async def redrive(call: Call) -> Any:
    given = call.read(Redrive)
    group = call.path["group"]
    target = await _target(call, given)
    if not 0 < given.rate <= REDRIVE_RATE_MAX:
        raise ConsoleError("bad_request", f"rate: more than 0, up to {REDRIVE_RATE_MAX} a second")
    topic = await known_topic(call.look, DEAD_LETTER_PREFIX + group)
    choice, found = await _counted(call, topic, given)
    count = found.count(again=given.again)
    cli = redrive_command(group, target, given)
    if given.preview:
        to, without = found.targets(topic, target, again=given.again)
        body = RedrivePreview(
            count=long(count),
            before=long(found.before),
            to={printable(name): number for name, number in to.items()},
            without_target=long(without),
            missing=long(found.missing),
            read=long(found.read),
            of=long(found.of),
            complete=found.is_complete,
        )
        return Preview(body, cli, group)
    call.confirm(given.confirm, group)
    if not count and found.is_complete:
        raise ConsoleError("conflict", "there is nothing to redrive", _why_nothing(found))
    mq, jobs = call.look.mq, call.console.jobs
    letters = pages(mq, call.console.scan_gate, choice, lambda _: False)
    job = Job(group, call.viewer.user, target, given.rate, letters, count, is_least=not found.is_complete)
    jobs.start(mq, job, again=given.again)
    least = "" if found.is_complete else "at least "
    call.note("redrive", group, text=f"{least}{count} dead letters to {target}, job {job.id}", cli=cli)
    return Done({"job": job.id}, cli)


def _why_nothing(found: Tally) -> str:
    if found.before:
        return "they were redriven before: choose again, or redrive these again"
    if found.missing:
        return "the chosen dead letters are no longer stored"
    return "no dead letter matches: choose again"


def redrive_command(group: str, target: str, given: Redrive) -> str:
    """The equivalent pipeline; empty if letters were selected or a filter is used, for which there is none."""
    keys = [term.value for term in parse(given.q).terms if (term.name, term.operator) == ("key", ":")]
    has_other_terms = len(keys) < len(parse(given.q).terms) or len(keys) > 1
    if given.only is not None or has_other_terms or given.again:
        return ""
    words = ["kourou", "pipeline", "dlq", "redrive", group, "--target", target, "--state", "DIR"]
    if (since := time_ms(given.since or "", "from")) is not None:
        words += ["--since", str(since)]
    if (until := time_ms(given.until or "", "to")) is not None:
        words += ["--until", str(until + 1)]  # ours is included, that of pipelines is not
    words += [*(word for key in keys for word in ("--key", key)), "--rate", f"{given.rate:g}"]
    return " ".join(map(shlex.quote, words))


async def _target(call: Call, given: Redrive) -> str:
    if given.target in (ORIGIN, TO_RETRY):
        return given.target
    if given.target != "topic" or not given.topic:
        raise ConsoleError("bad_request", "target: retry, origin, or topic with a name is expected")
    return await known_topic(call.look, given.topic)


async def _counted(call: Call, topic: str, given: Redrive) -> tuple[Choice, Tally]:
    """The selection, and its number of letters. A dialog asks after each change, so the counts are cached briefly."""
    mq, console = call.look.mq, call.console
    wanted = parse(given.q)

    async def ask() -> tuple[Choice, Tally]:
        if given.only is not None:
            choice = Choice(topic, ALL, Cursor([], 0), await places_of(mq, topic, given.only))
        else:
            cursor = await cursor_of(call.look, topic, "", given.since or "", given.until or "")
            choice = Choice(topic, wanted, cursor)
        jobs = console.jobs
        return choice, await tally(mq, console.scan_gate, choice, lambda letter: jobs.redriven_by(letter) is not None)

    only = None if given.only is None else tuple(given.only)
    key = ("choice", topic, given.q, given.since, given.until, only, console.jobs.changes)
    found, _ = await console.facts.get(key, COUNTED_SECONDS, ask)
    return found


# ── Jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class JobList(msgspec.Struct, frozen=True):
    jobs: list[JobView]


async def jobs(call: Call) -> JobList:
    short = [msgspec.structs.replace(job.view(), failures=[], results=[]) for job in call.console.jobs.all()]
    return JobList(short)


async def job(call: Call) -> JobView:
    return call.console.jobs.get(call.path["id"]).view()


async def stop(call: Call) -> Any:
    found = call.console.jobs.get(call.path["id"])
    call.console.jobs.stop(found)
    call.note("stop job", found.id)
    return Done({"job": found.id}, "")


WAYS: Final = (
    Way("GET", "/api/dead", listing),
    Way("GET", "/api/dead/{group}", letters),
    Way("POST", "/api/dead/{group}/redrive", redrive, Role.OPERATE),
    Way("GET", "/api/jobs", jobs),
    Way("GET", "/api/jobs/{id}", job),
    Way("DELETE", "/api/jobs/{id}", stop, Role.OPERATE),
)
