"""The overview: brokers, rates, and problems first."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from kourou.console.facts import Member
from kourou.console.rings import History
from kourou.console.views.values import long, long_in, number_in, size_in
from kourou.printable import printable

DISK_RATIO_MAX: Final = 0.85
FLUSH_LATE_MS_MAX: Final = 5_000
BEHIND_MS_MAX: Final = 30_000
SLAVE_BEHIND_MAX: Final = 256 * 1024 * 1024
PROBLEMS_MAX: Final = 100
YEAR_SECONDS: Final = 365 * 86400.0

_FREE: Final = re.compile(r"Total : ([^,]+), Free : ([^,]+)\.?$")


class BrokerRow(msgspec.Struct, frozen=True):
    """One broker."""

    name: str
    id: int
    cluster: str
    address: str
    role: str
    ok: bool
    reason: str = ""
    version: str = ""
    in_rate: float | None = msgspec.field(default=None, name="in")
    out_rate: float | None = msgspec.field(default=None, name="out")
    put_p99_ms: float | None = None
    flush_behind: str | None = None
    dispatch_behind: str | None = None
    disk_ratio: float | None = None
    keeps_ms: int | None = None
    kourou: bool = False


class Problem(msgspec.Struct, frozen=True):
    """A problem that needs attention."""

    severity: str
    code: str
    args: dict[str, Any]
    text: str
    link: str | None = None
    action: str | None = None


class GroupState(msgspec.Struct, frozen=True):
    """The state of a group, from the background search. `at`: the time, by the clock of the console."""

    group: str
    lag: int
    lag_ms: int | None
    dead: int
    members: int
    at: float = 0.0


class Overview(msgspec.Struct, frozen=True):
    """The first page. `topics` and `groups` without those of the system; `checked`: groups that were searched."""

    clusters: list[str]
    topics: int | None
    groups: int | None
    checked: int
    brokers: list[BrokerRow]
    rates: dict[str, float]
    disk_ratio: float | None
    disk_full_in_s: float | None
    problems: list[Problem]
    history: History


Runtime = Mapping[str, str] | str
"""The runtime information of a broker, or why there is none."""


def broker_row(member: Member, runtime: Runtime, now_ms: int) -> BrokerRow:
    """One broker, from its runtime information."""
    base = BrokerRow(
        name=printable(member.name),
        id=member.id,
        cluster=printable(member.cluster),
        address=printable(member.address),
        role="master" if member.is_master else "slave",
        ok=not isinstance(runtime, str),
        reason=printable(runtime) if isinstance(runtime, str) else "",
    )
    if isinstance(runtime, str):
        return base
    earliest = long_in(runtime.get("earliestMessageTimeStamp"))
    flush = size_in(runtime.get("remainHowManyDataToFlush", ""))
    behind = long_in(runtime.get("dispatchBehindBytes"))
    p99 = number_in(runtime.get("putLatency99"))
    ratio = number_in(runtime.get("commitLogDiskRatio"))
    return msgspec.structs.replace(
        base,
        version=printable(runtime.get("brokerVersionDesc", "")),
        in_rate=first_rate(runtime.get("putTps")),
        out_rate=first_rate(runtime.get("getTransferredTps")),
        put_p99_ms=p99 or None,
        flush_behind=None if flush is None else long(flush),
        dispatch_behind=None if behind is None else long(behind),
        disk_ratio=ratio if ratio is not None and ratio >= 0 else None,
        keeps_ms=max(now_ms - earliest, 0) if earliest is not None and earliest > 0 else None,
        kourou="kourouFlushLateMillis" in runtime,
    )


def first_rate(text: str | None) -> float | None:
    """The rate of the last ten seconds, which is the first of three."""
    words = (text or "").split(" ")
    value = number_in(words[0])
    return value if value is None or value >= 0 else None


def seconds_to_full(runtime: Runtime, log_bytes: list[float | None], seconds: float) -> float | None:
    """When the disk will be full at the rate of the last hour; None if not known, or more than a year ahead."""
    known = [value for value in log_bytes if value is not None]
    if isinstance(runtime, str) or len(known) < 12 or seconds < 60:
        return None
    found = _FREE.search(runtime.get("commitLogDirCapacity", ""))
    free = None if found is None else size_in(found[2])
    grown = known[-1] - known[0]
    if free is None or grown <= 0:
        return None
    left = free / (grown / seconds)
    return left if left <= YEAR_SECONDS else None


def problems(
    members: Iterable[Member],
    runtimes: Mapping[str, Runtime],
    groups: Iterable[GroupState],
    slaves: Mapping[str, int],
    missing: Mapping[str, Sequence[str]],
) -> list[Problem]:
    """The problems, the worst first.

    By the address of the master, `slaves`: how many bytes slaves are behind; `missing`: members of the Raft group.
    """
    members = list(members)
    found = list(_of_brokers(members, runtimes, slaves))
    found += _of_raft_groups(members, missing)
    found += _of_groups(groups)
    found.sort(key=lambda one: one.severity != "bad")
    return found[:PROBLEMS_MAX]


def _of_brokers(members: list[Member], runtimes: Mapping[str, Runtime], slaves: Mapping[str, int]) -> Iterable[Problem]:
    if not members:
        yield Problem("bad", "no_brokers", {}, "no broker is registered with the name server")
    for name in sorted({member.name for member in members} - {member.name for member in members if member.is_master}):
        text = f"{printable(name)} has no master: messages are refused"
        yield Problem("bad", "no_master", {"broker": printable(name)}, text, None, "broker")
    for member in members:
        runtime = runtimes.get(member.address, "not asked yet")
        args = {"broker": printable(member.name), "address": printable(member.address)}
        link = f"/brokers/{member.address}"
        if isinstance(runtime, str):
            if runtime != "not asked yet":
                text = f"{args['broker']} at {args['address']} does not answer: {printable(runtime)}"
                yield Problem("bad", "broker_down", args, text, link, "broker")
            continue
        ratio = number_in(runtime.get("commitLogDiskRatio")) or 0.0
        if ratio >= DISK_RATIO_MAX:
            text = f"the disk of {args['broker']} is {ratio:.0%} full"
            yield Problem("bad", "disk_full", {**args, "ratio": ratio}, text, link, "broker")
        late = long_in(runtime.get("kourouFlushLateMillis")) or 0
        if late > FLUSH_LATE_MS_MAX:
            text = f"{args['broker']} flushes {late / 1000:.0f} s late: a power failure would lose messages"
            yield Problem("bad", "flush_late", {**args, "ms": late}, text, link, "broker")
        errors = long_in(runtime.get("kourouInternalErrors")) or 0
        if errors:
            text = f"{args['broker']} had {errors} internal errors since it started: see its log"
            yield Problem("doubtful", "internal_errors", {**args, "count": errors}, text, link, "broker")
        behind = slaves.get(member.address, 0)
        if behind > SLAVE_BEHIND_MAX:
            text = f"the slave of {args['broker']} at {args['address']} is {behind:,} bytes behind"
            yield Problem("doubtful", "slave_behind", {**args, "bytes": long(behind)}, text, link, "broker")


def _of_raft_groups(members: Iterable[Member], missing: Mapping[str, Sequence[str]]) -> Iterable[Problem]:
    for member in members:
        for one in missing.get(member.address, ()):
            args = {"member": printable(one), "broker": printable(member.name)}
            text = f"member {args['member']} of the Raft group {args['broker']} is missing"
            yield Problem("bad", "raft_missing", args, text, f"/brokers/{member.address}?tab=replication", "broker")


def _of_groups(groups: Iterable[GroupState]) -> Iterable[Problem]:
    for state in sorted(groups, key=lambda one: -(one.lag_ms or 0)):
        name = printable(state.group)
        if state.lag and (state.lag_ms or 0) > BEHIND_MS_MAX:
            seconds = (state.lag_ms or 0) // 1000
            text = f"{name} is {span(seconds)} behind: {state.lag:,} messages"
            args = {"group": name, "lag": long(state.lag), "ms": state.lag_ms}
            yield Problem("doubtful", "group_behind", args, text, f"/groups/{name}", "doctor")
        if state.dead:
            text = f"{name} has {state.dead:,} dead letters"
            yield Problem(
                "doubtful", "dead_letters", {"group": name, "count": long(state.dead)}, text, f"/dead/{name}", "dead"
            )


def span(seconds: float) -> str:
    """`41 s`, `12 min`, `3 h`, `2 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
