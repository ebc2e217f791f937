"""Kourou: a RocketMQ-compatible message broker in Python, and clients for it and for Apache's.

    async with kourou.connect("127.0.0.1:9876") as mq:
        await mq.send("orders", b"...")

    async with kourou.embedded() as broker:
        ...                                     # a broker in this process, at broker.namesrv

The layers, from the bottom (imports point down only; tests/architecture checks this):

    protocol    bytes <-> values: frames, commands, headers, bodies, messages; pure
    store       files
    nameserver  the name server: a machine of events and effects; pure
    broker      the broker: a machine like that
    net         asyncio connections that carry frames
    client      producers, consumers, administration
    server      the processes: clocks, files and sockets around a machine
    cli         the command `kourou`

The names of this package are imported when they are first used, so `import kourou` is fast.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kourou import _backend
from kourou._version import __version__

_backend.install()

if TYPE_CHECKING:
    from kourou.client import Client, DeadLetter, Delivery, KourouError, Message, RetryLater, connect
    from kourou.embedded import Embedded as embedded  # noqa: N813

_LAZY = dict.fromkeys(
    ("Client", "DeadLetter", "Delivery", "KourouError", "Message", "RetryLater", "connect"), "kourou.client"
)

__all__ = [
    "Client",
    "DeadLetter",
    "Delivery",
    "KourouError",
    "Message",
    "RetryLater",
    "__version__",
    "connect",
    "embedded",
]


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'kourou' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`kourou.embedded` is the function that makes a broker, even after the module of that name was imported.

    Importing a module sets it as an attribute of its package; this one attribute keeps its meaning.
    """

    @property
    def embedded(self) -> Any:
        return import_module("kourou.embedded").Embedded

    @embedded.setter
    def embedded(self, module: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
