"""How tests wait for what another process, thread or task does in its own time.

A broker answers a send before consumers see the message, before its index knows the key and before name servers know
the topic; offsets are committed without an answer; a heartbeat, a rebalance, a metric or a deletion shows a little
later. A test that asserts such a thing waits for it here, with a deadline that only a real failure reaches: machines
that run tests can be busy. What the order of events guarantees is asserted at once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE_S = 30.0
POLL_S = 0.02


class GaveUpError(AssertionError):
    """What was waited for did not come."""


def wait_for(what: str, look: Callable[[], Found | None], seconds: float = PATIENCE_S) -> Found:
    """The first answer of `look` that is true, which is neither None nor False nor empty.

    Raises GaveUpError when there was none within `seconds`.
    """
    end = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > end:
            raise GaveUpError(f"waited {seconds} s for {what}")
        time.sleep(POLL_S)
    return found


def wait_equal(ask: Callable[[], object], expected: object, seconds: float = PATIENCE_S) -> None:
    """Until `ask()` gives what is expected. Raises GaveUpError with its last answer."""
    end = time.monotonic() + seconds
    while (found := ask()) != expected:
        if time.monotonic() > end:
            raise GaveUpError(f"waited {seconds} s for {expected!r}; it still is {found!r}")
        time.sleep(POLL_S)


async def eventually(look: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Until `look()` is true, while the loop runs. Raises GaveUpError."""
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise GaveUpError(f"did not happen within {seconds} s")
        await asyncio.sleep(POLL_S)


async def answered(ask: Callable[[], Awaitable[Found | None]], seconds: float = PATIENCE_S) -> Found:
    """The first answer of `ask` that is true: neither None nor False nor empty. Raises GaveUpError."""
    end = time.monotonic() + seconds
    while not (found := await ask()):
        if time.monotonic() > end:
            raise GaveUpError(f"no answer within {seconds} s but {found!r}")
        await asyncio.sleep(POLL_S)
    return found


async def becomes(ask: Callable[[], Awaitable[object]], expected: object, seconds: float = PATIENCE_S) -> None:
    """Until `ask()` gives what is expected. Raises GaveUpError with its last answer."""
    end = time.monotonic() + seconds
    while (found := await ask()) != expected:
        if time.monotonic() > end:
            raise GaveUpError(f"waited {seconds} s for {expected!r}; it still is {found!r}")
        await asyncio.sleep(POLL_S)
