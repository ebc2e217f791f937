"""Compares the log of a slave with that of a master that has no epochs: an Apache broker without a controller.

    where the master's log begins and ends ─▶ the last own record before that end ─▶ the same at the master: follow
                                                └ another one, or none ─▶ the first that differs, by bisection

After a power failure such a master may have lost the end of its log, which its slave has, and stored other messages
there. The frames of the HA port do not show this: if the sizes of the records happen to match, the slave would continue
after messages that its master does not have.

A segment has up to 1 GiB of records. They are listed in slices (`kourou.turns`).

Java has no such comparison.
"""

from array import array
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from kourou.broker.events import Outbox
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.record import Found
from kourou.store.errors import StoreError
from kourou.store.records import scan_segment
from kourou.store.store import Store
from kourou.store.truncation import SLICE_RECORDS
from kourou.turns import Slices, Turns

ASK_TIMEOUT_MS: Final = 3_000

Asking: TypeAlias = Generator[Command | int, Command | None, int]
"""Yields requests for the master, and is sent their answers; returns the offset up to which both logs are equal.

It also yields the bytes that it holds, where a slice may end.
"""


class RefusedError(Exception):
    """The master does not answer such requests of this broker, so the logs can't be compared."""


def compare_records(
    store: Store,
    outbox: Outbox,
    turns: Turns,
    master: str,
    is_current: Callable[[], bool],
    then: Callable[[int | Exception, int], Slices[None]],
) -> None:
    """Run `then` with the offset up to which the logs are equal, or with the reason why that is not known.

    The reason is a RefusedError, StoreError, OSError, or an error in an answer. Once `is_current` is false, nothing
    more happens.
    """
    asking = equal_to(store)

    def go_on(answer: Command | None, now_ms: int) -> Slices[None]:
        """Up to the next request, or to the end."""
        try:
            step = asking.send(answer)
            while not isinstance(step, Command):
                yield step
                if not is_current():
                    return
                step = next(asking)
        except StopIteration as end:
            yield from then(end.value, now_ms)
        except (RefusedError, StoreError, OSError, BodyError, KeyError, ValueError) as error:
            yield from then(error, now_ms)
        else:
            outbox.ask_broker(master, step, ASK_TIMEOUT_MS, answered)

    def answered(answer: Command | None, now_ms: int) -> None:
        if not is_current():
            return
        if answer is None:
            turns.start(go_on, then(StoreError("it did not answer a request for its records"), now_ms))
        else:
            turns.start(go_on, go_on(answer, now_ms))

    turns.start(go_on, go_on(None, 0))


def equal_to(store: Store) -> Asking:
    """The offset up to which the log, which has records, equals the master's.

    Raises RefusedError, StoreError, OSError, and BodyError, KeyError or ValueError for an invalid answer.
    """
    log = store.log
    start, end = _span(_checked((yield Command(RequestCode.GET_BROKER_RUNTIME_INFO))))
    if end <= log.start or start > log.end:
        raise StoreError(
            f"its log has the offsets {start} to {end}, this one {log.start} to {log.end}. Move this store away; the "
            "broker then copies the master's log"
        )
    if start == log.end:
        return log.end  # all records of this broker have expired there, and it has all later ones
    if log.end <= end and store.dispatched == log.end and store.last_record >= max(start, log.start):
        is_equal, _ = yield from _is_equal(store, store.last_record)
        if is_equal:
            return log.end
    has_answered = has_differed = False
    size, limit = log.segments.file_size, min(log.end, end)
    base = (limit - 1) - (limit - 1) % size
    while base + size > max(start, log.start):
        records, last_end = yield from _records(store, base, max(start, log.start), limit)
        low, high = 0, len(records)  # records before `low` are equal, those from `high` on are not
        while low < high:
            middle = (low + high) // 2 if high < len(records) else high - 1  # the last one first
            is_equal, is_found = yield from _is_equal(store, records[middle])
            has_answered |= is_found
            low, high = (middle + 1, high) if is_equal else (low, middle)
        has_differed |= low < len(records)
        if low:
            if low < len(records):
                return records[low]
            return log.end if limit == log.end and not has_differed else last_end
        base -= size
    if not has_answered:
        raise RefusedError("it has none of the records of this broker that it was asked for")
    raise StoreError("they have no record in common. Move this store away; the broker then copies the master's log")


_Listing: TypeAlias = Generator[int, None, tuple["array[int]", int]]


def _records(store: Store, base: int, start: int, limit: int) -> _Listing:
    """The offsets of the records of a segment that begin at `start` or later and end at `limit` or before.

    And where the last one ends.
    """
    log, found, last_end = store.log, array("q"), base
    if log.segments.holds(base):
        scanner = scan_segment(log.segments, base, limit)
        count = 0
        while scanner.step() == Found.RECORD:
            if base + scanner.at >= start:
                found.append(base + scanner.at)
                last_end = base + scanner.next_at
            count += 1
            if count % SLICE_RECORDS == 0:
                yield len(found) * found.itemsize
    return found, last_end


def _is_equal(store: Store, offset: int) -> Generator[Command, Command | None, tuple[bool, bool]]:
    """Has the master the same record at this offset? And has it one that it sent?"""
    answer = yield Command(RequestCode.VIEW_MESSAGE_BY_ID, ext=headers.ViewMessage(offset=offset).encode())
    assert answer is not None
    if answer.code == ResponseCode.SYSTEM_ERROR:
        return False, False
    body = bytes(_checked(answer).body)
    own = store.log.read(offset, int.from_bytes(store.log.read(offset, 4)))
    return body == bytes(own), True


def _checked(answer: Command | None) -> Command:
    assert answer is not None, "a request gets an answer"
    if answer.code != ResponseCode.SUCCESS:
        raise RefusedError(f"it answered with code {answer.code}: {answer.remark}")
    return answer


def _span(answer: Command) -> tuple[int, int]:
    """Where the master's log begins and ends. Raises BodyError, KeyError, ValueError."""
    table = bodies.KVTable.decode(answer.body).table
    return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
