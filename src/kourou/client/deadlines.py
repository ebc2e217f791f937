"""One time limit for several steps: finding a route, connecting, asking."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from kourou.net.errors import RequestTimedOutError, TransportError

T = TypeVar("T")


async def within(
    work: Coroutine[Any, Any, T],
    deadline: float | None,
    failure: str,
    kind: type[TransportError] = RequestTimedOutError,
) -> T:
    """Returns the result of the work. At the deadline, a time of `time.monotonic`, cancels it and raises `kind`."""
    if deadline is None:
        return await work
    begun = time.monotonic()
    try:
        async with asyncio.timeout(max(deadline - begun, 0)):
            return await work
    except TimeoutError:
        raise kind(f"{failure} within {max(deadline - begun, 0):.3g} s") from None
