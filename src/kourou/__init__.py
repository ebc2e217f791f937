"""Kourou: a RocketMQ-compatible message broker in Python.

The layers, from the bottom (imports point down only; tests/architecture holds them to it):

    protocol    bytes <-> values: frames, commands, headers, bodies, messages; pure
    nameserver  who serves which topic: a machine of events and effects; pure
    net         asyncio connections that carry frames
    server      the processes: clocks, files and sockets around a machine
    cli         the command `kourou`
"""

from kourou import _backend
from kourou._version import __version__

_backend.install()

__all__ = ["__version__"]
