"""Which user's function is running: so that it may close the consumer, or the client, that has called it.

`close` waits for listeners and callbacks, so one that waited for `close` would wait for itself. Inside of a call,
`close` begins to close, and returns at once.

Context variables are copied to the tasks that a function starts and to the thread in which it runs. A call that has
returned does not count any more.
"""

import asyncio
import contextvars
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any


class _Call:
    __slots__ = ("is_running", "owners")

    def __init__(self, owners: tuple[object, ...]) -> None:
        self.owners = owners
        self.is_running = True


_call: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("kourou_user_call", default=None)


@contextmanager
def user_call(*owners: object) -> Iterator[None]:
    """A user's function is called on behalf of these objects: a consumer, the session of a client."""
    call = _Call(owners)
    token = _call.set(call)
    try:
        yield
    finally:
        call.is_running = False
        _call.reset(token)


def is_called_by(owner: object) -> bool:
    """Does this run in a user's function that `owner` waits for?"""
    call = _call.get()
    return call is not None and call.is_running and any(one is owner for one in call.owners)


def task_outside(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """A task that belongs to no call, wherever it is started."""
    context = contextvars.copy_context()
    context.run(_call.set, None)
    return asyncio.get_running_loop().create_task(work, name=name, context=context)
