"""Methods without asyncio, made from the methods of `kourou.client`.

    class Client(Part[AsyncClient]):
        send = waits(AsyncClient.send)
        pull = makes(AsyncClient.pull, PullConsumer)

Each has the parameters and the docstring of the asyncio method, for users and for type checkers, which see a ParamSpec.
If that does not work for its types (a generic class, another callback), the method is written out, and `documented_by`
gives it the docstring.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from kourou.sync.loop import Loop

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class Part(Generic[A]):
    """An object of a client without asyncio: the asyncio object that does the work, and the loop that runs it."""

    __slots__ = ("_inner", "_loop")

    def __init__(self, inner: A, loop: Loop) -> None:
        self._inner = inner
        self._loop = loop


class _Method(Generic[P, T]):
    """A method that is called with the asyncio method of the same name, and the loop."""

    def __init__(
        self,
        method: Callable[..., Any],
        perform: Callable[[Callable[..., Any], Loop], T],
        result: object = inspect.Signature.empty,
    ) -> None:
        name = method.__name__

        @wraps(method)
        def call(part: Part[Any], *arguments: P.args, **options: P.kwargs) -> T:
            inner = getattr(part._inner, name)
            return perform(lambda: inner(*arguments, **options), part._loop)

        signature = inspect.signature(method)
        if result is not inspect.Signature.empty:
            signature = signature.replace(return_annotation=result)
        vars(call)["__signature__"] = signature
        self._call = call
        self.__doc__ = method.__doc__

    def __get__(self, part: Part[Any] | None, owner: type) -> Callable[P, T]:
        return self._call if part is None else MethodType(self._call, part)  # type: ignore[return-value]


def waits(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> _Method[P, T]:
    """A method that waits for the result of a coroutine."""
    return _Method(method, lambda begin, loop: loop.run(begin()))


def calls(method: Callable[Concatenate[S, P], T]) -> _Method[P, T]:
    """A method that calls an ordinary one, in the loop's thread."""
    return _Method(method, lambda call, loop: loop.call(call))


def makes(method: Callable[Concatenate[S, P], B], kind: Callable[[B, Loop], C]) -> _Method[P, C]:
    """A method that returns the object of the asyncio method, wrapped in `kind`."""
    return _Method(method, lambda make, loop: kind(loop.call(make), loop), kind)


def lists(method: Callable[Concatenate[S, P], AsyncIterator[T]]) -> _Method[P, list[T]]:
    """A method that returns the items of an asynchronous iterator as a list."""

    def perform(begin: Callable[[], AsyncIterator[T]], loop: Loop) -> list[T]:
        async def work() -> list[T]:
            return [item async for item in begin()]

        return loop.run(work())

    return _Method(method, perform, list)


def documented_by(twin: type) -> Callable[[type[T]], type[T]]:
    """Methods and properties without a docstring get that of the asyncio class."""

    def document(kind: type[T]) -> type[T]:
        for name, member in list(vars(kind).items()):
            doc = getattr(getattr(twin, name, None), "__doc__", None)
            if name.startswith("_") or getattr(member, "__doc__", None) or doc is None:
                continue
            if isinstance(member, property):
                setattr(kind, name, property(member.fget, doc=doc))
            elif inspect.isfunction(member):
                member.__doc__ = doc
        return kind

    return document
