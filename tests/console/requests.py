"""The bodies that the server's routes take, so that a server without brokers refuses what the real one would refuse."""

import asyncio
import re
from types import MappingProxyType
from typing import Any

import msgspec

from kourou.console.calls import Way
from kourou.console.routes import all_ways


class _Asked(Exception):
    def __init__(self, kind: type) -> None:
        self.kind = kind


class _Probe:
    """Takes the place of a call, up to the moment when the handler reads the body."""

    console = None
    path = MappingProxyType({"group": "x", "topic": "x"})

    def read(self, kind: type) -> Any:
        raise _Asked(kind)


def _kind_of(way: Way) -> type | None:
    try:
        asyncio.run(_run(way))
    except _Asked as asked:
        return asked.kind
    except Exception:
        return None  # it takes no body
    return None


async def _run(way: Way) -> None:
    await way.handler(_Probe())  # type: ignore[arg-type]


def _pattern(path: str) -> "re.Pattern[str]":
    parts = re.split(r"\{[^}]*\}", path)
    return re.compile("[^/]+".join(map(re.escape, parts)))


CHANGES = [(way.method, _pattern(way.path), way) for way in all_ways() if way.is_change]
_KINDS: dict[str, type | None] = {}


def problem_of(method: str, path: str, body: bytes) -> str | None:
    """Why the server would refuse a change by its form; None if it would not."""
    way = next((way for given, pattern, way in CHANGES if given == method and pattern.fullmatch(path)), None)
    if way is None:
        return f"{method} {path}: there is no such route"
    name = f"{way.method} {way.path}"
    if name not in _KINDS:
        _KINDS[name] = _kind_of(way)
    kind = _KINDS[name]
    if kind is None:
        return None
    try:
        msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        return f"{name}: {error}"
    return None
