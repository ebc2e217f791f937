"""The broker's tables in `config/*.json`: topics, groups, offsets.

    config/topics.json          topics.json.bak          the previous content
    config/consumerOffset.json  consumerOffset.json.bak  topics.json.broken   a file that could not be read

The format is that of Java's broker, which writes with fastjson and reads our files:

    {
    →"dataVersion":{                    tabs; no blank after a colon
    →→"counter":4,                      members of an object in the order of their names, null ones left out
    →→"stateVersion":0,
    →→"timestamp":1794779923673
    →},
    →"offsetTable":{
    →→"orders@billing":{
    →→→0:11,                            numbers as keys, not quoted
    →→→1:10

`load` reads the file or, if it is missing, empty or incomplete (a crash of a Java broker leaves such files), its
backup, and logs an error. A file of valid JSON with unexpected contents is an error, and so are two incomplete files: a
broker that started with an older table, or without topics or offsets, would lose or repeat messages. Saving replaces
the file atomically, and a good backup is kept until there is a better one. Sizes are not limited: what was written can
be read again.

Unknown members, written by a newer broker, are kept and written again.

Java: ConfigManager.
"""

import hashlib
import logging
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import inspect

from kourou.protocol import fastjson
from kourou.protocol.bodies import (
    ConsumerFilterWrapper,
    DataVersion,
    DelayOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicQueueMappingSerializeWrapper,
    TransactionMetricsSerializeWrapper,
)
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32, Int64
from kourou.store.disk import Disk
from kourou.store.errors import BadStoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

OffsetTable = dict[str, dict[Int32, Int64]]
"""`topic@group`, then queue id, then offset."""


class ConsumerOffsets(Body):
    """The progress of groups: the offsets that they have consumed, and those that they have pulled."""

    offset_table: OffsetTable = always(dict)
    pull_offset_table: OffsetTable = always(dict)
    data_version: DataVersion = always(DataVersion())


# ── The files ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One of the files."""

    name: str
    content: str
    """Its contents, in words."""
    shape: type[T]
    pretty: bool = True
    keep_unknown: bool = True
    """Whether unknown members are kept. It costs a second parse."""


TOPICS = Kind("topics.json", "topics", TopicConfigSerializeWrapper)
GROUPS = Kind("subscriptionGroup.json", "consumer groups", SubscriptionGroupWrapper)
CONSUMER_OFFSETS = Kind("consumerOffset.json", "consumer offsets", ConsumerOffsets, keep_unknown=False)
DELAY_OFFSETS = Kind("delayOffset.json", "offsets of delay levels", DelayOffsetSerializeWrapper)
STATIC_TOPICS = Kind("topicQueueMapping.json", "static topics", TopicQueueMappingSerializeWrapper)
TIMER_METRICS = Kind("timermetrics", "counts of waiting timers", TimerMetricsSerializeWrapper, pretty=False)
TRANSACTION_METRICS = Kind(
    "transactionMetrics", "counts of open transactions", TransactionMetricsSerializeWrapper, pretty=False
)
FILTERS = Kind("consumerFilter.json", "filters of consumers", ConsumerFilterWrapper)

# Plain values: their contents are not interpreted yet.
ORDERS: Kind[dict[str, Any]] = Kind("consumerOrderInfo.json", "states of ordered consumption", dict)
REQUEST_MODES = Kind("messageRequestMode.json", "request modes of groups", MessageRequestModeSerializeWrapper)


class Sealer(Protocol):
    """Encrypts the content of a file."""

    def seal(self, content: bytes) -> bytes: ...

    def is_clear(self, data: bytes) -> bool:
        """True if these bytes should be sealed and are not."""

    def unseal(self, data: bytes) -> bytes:
        """Raises BadStoreError."""


class MetadataFile(Generic[T]):
    """One metadata file: `load` once, then `save` after each change.

    `encode` runs in the thread that owns the value, `write` may run in another.
    """

    def __init__(self, disk: Disk, folder: Path, kind: Kind[T], sealer: Sealer | None = None) -> None:
        self._sealer = sealer
        self._disk = disk
        self._kind = kind
        self.path = folder / kind.name
        self.problem: str | None = None  # why the backup was loaded
        self._writer = _Writer(kind.pretty)
        self._unknown: Mapping[str, Any] = {}
        self._written: bytes | None = None  # digest of the file's content
        self._good = False  # the file is worth a backup
        self._broken: bytes | None = None  # its unreadable content

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    @property
    def broken(self) -> Path:
        return self.path.with_name(self.path.name + ".broken")

    def load(self) -> T | None:
        """The last saved value; None if there is none. Raises BadStoreError, OSError."""
        if self._sealer is not None:
            self._seal_clear_files(self._sealer)
        content, kept = self._read(self.path), self._read(self.backup)
        if content is None and kept is None:
            return None
        try:
            value = self._decode(content)
        except BodyError as error:
            value = self._load_backup(content, kept, str(error))
            self._broken = content
            return value
        self._good = True
        self._written = _digest(content or b"")
        return value

    def _seal_clear_files(self, sealer: Sealer) -> None:
        """No copy of the content from before there was a key may stay readable."""
        for path in (self.broken, self.backup, self.path):
            data = self._disk.read(path)
            if data is not None and sealer.is_clear(data):
                self._disk.replace(path, sealer.seal(data))

    def _read(self, path: Path) -> bytes | None:
        data = self._disk.read(path)
        return data if data is None or self._sealer is None else self._sealer.unseal(data)

    def problem_of_backup(self) -> str | None:
        """Why the backup could not replace the file; None if it could, or there is none. Raises OSError."""
        kept = self._read(self.backup)
        if kept is None:
            return None
        try:
            _read(kept, self._kind.shape)
        except BodyError as error:
            return f"{self.backup} is broken ({error}): it can't take the place of {self.path.name}"
        return None

    def _load_backup(self, content: bytes | None, kept: bytes | None, why: str) -> T:
        try:
            value = self._decode(kept)
        except BodyError as error:
            raise BadStoreError(
                f"{self.path} {why}, and its backup {self.backup.name} {error}: restore one of them from a copy, "
                f"or move both away to start without {self._kind.content}"
            ) from None
        if content is not None and _is_whole(content):
            raise BadStoreError(
                f"{self.path} {why}. The older {self.backup.name} is not used in its place: repair the file, or move "
                f"it away to start with {self.backup.name}"
            )
        self.problem = f"{self.path} {why}: {self.backup.name} is used instead, changes after it are lost"
        log.error("%s", self.problem)
        return value

    def _decode(self, content: bytes | None) -> T:
        """Raises BodyError with a text that can follow the name of the file."""
        if content is None:
            raise BodyError("is missing")
        if not content.strip():
            raise BodyError("is empty")
        try:
            value = _read(content, self._kind.shape)
            self._unknown = _unknown_members(content, self._kind.shape) if self._kind.keep_unknown else {}
        except BodyError as error:
            raise BodyError(f"is broken ({error})") from None
        return value

    def save(self, value: T) -> bool:
        """Write the value if it changed. Returns whether it did. Raises OSError."""
        return self.write(self.encode(value))

    def encode(self, value: T) -> bytes:
        """The content of the file."""
        slices = self.encode_slices(value)
        while True:
            try:
                next(slices)
            except StopIteration as end:
                return b"".join(end.value)

    def encode_slices(self, value: T) -> Generator[int, None, list[bytes]]:
        """The same in slices of about a millisecond; yields the bytes so far.

        Tables may change between the slices. An entry is written as it is at its slice or as it was at the start; later
        entries are not included.
        """
        return self._writer.slices(value, self._unknown)

    def write(self, content: bytes | list[bytes]) -> bool:
        """Replace the content durably. Returns False if it is unchanged. Raises OSError."""
        digest = _digest(content)
        if digest == self._written:
            return False
        if self._broken is not None:
            # Possibly a mistake in an editor: keep it for the administrator.
            broken = self._broken if self._sealer is None else self._sealer.seal(self._broken)
            self._disk.replace(self.broken, broken)
            self._broken = None
        self._written = None
        if self._sealer is not None:
            content = self._sealer.seal(content if isinstance(content, bytes) else b"".join(content))
        self._disk.replace(self.path, content, backup=self._good)
        self._written = digest
        self._good = True
        return True


def _digest(content: bytes | list[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in [content] if isinstance(content, bytes) else content:
        digest.update(part)
    return digest.digest()


# ── Reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read(content: bytes, shape: type[T]) -> T:
    if issubclass(shape, Body):
        return shape.decode(content, trusted=True)
    value = fastjson.loads(content, trusted=True)
    if not isinstance(value, dict):
        raise BodyError("not an object")
    return cast(T, value)


def _is_whole(content: bytes) -> bool:
    """True if this is complete JSON. A truncated write never is."""
    try:
        fastjson.loads(content, trusted=True)
    except BodyError:
        return False
    return True


def _unknown_members(content: bytes, shape: type) -> Mapping[str, Any]:
    """The members that a type does not have, in objects nested like the originals."""
    if not issubclass(shape, Body):
        return {}
    return cast(Mapping[str, Any], _unknown(fastjson.loads(content, trusted=True), inspect.type_info(shape)))


def _unknown(value: Any, shape: inspect.Type) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {}
    found: dict[str, Any] = {}
    if isinstance(shape, inspect.StructType):
        known = _members(shape.cls)
        for name, member in value.items():
            if name not in known:
                found[name] = member
            elif below := _unknown(member, known[name]):
                found[name] = below
    elif isinstance(shape, inspect.DictType):
        found = {name: below for name, member in value.items() if (below := _unknown(member, shape.value_type))}
    elif isinstance(shape, inspect.UnionType):
        structs = [arm for arm in shape.types if isinstance(arm, inspect.StructType | inspect.DictType)]
        found = _unknown(value, structs[0]) if structs else {}
    return found


@cache
def _members(cls: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    info = inspect.type_info(cls)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields}


# ── Writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


_NOTHING: Mapping[str, Any] = {}

ENTRIES_IN_SLICE = 256
NUMBERS_IN_SLICE = 8192
BYTES_IN_SLICE = 32 * 1024
"""How much is written in one slice: about a millisecond."""


class _Items:
    """The entries of a table at one moment. Two lists: a list of pairs takes ten times as long to create."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        self.keys = list(table)
        self.values = list(table.values())


class _Content:
    """Text in parts: one large buffer would be copied as it grows."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def __iadd__(self, text: bytes) -> "_Content":
        self.parts.append(text)
        self.size += len(text)
        return self


def pretty(value: msgspec.Struct) -> str:
    """A value in the format of Apache's broker for files and operators."""
    return _Writer(pretty=True).text(value)


class _Writer:
    """Writes values as fastjson does: compact, or pretty with tabs.

    Tables have thousands of entries, of which one changes at a time. Bodies are immutable, so the cached text of an
    unchanged object is still right.
    """

    def __init__(self, pretty: bool) -> None:
        self._lines = tuple("\n" + "\t" * depth if pretty else "" for depth in range(fastjson.DEPTH_LIMIT))
        self._texts: dict[str, tuple[Body, str]] = {}  # of the one large table of bodies: each, and its text

    def text(self, value: Any, unknown: Mapping[str, Any] = _NOTHING, depth: int = 0) -> str:
        if type(value) in (str, int, bool):
            return _scalar(value)
        if isinstance(value, msgspec.Struct):
            return self._struct(value, unknown, depth)
        if isinstance(value, Mapping):
            return self._mapping(value, unknown, depth)
        if isinstance(value, list | tuple | set | frozenset):
            return self._list(value, depth)
        return _scalar(value)

    def _struct(self, value: msgspec.Struct, unknown: Mapping[str, Any], depth: int) -> str:
        members: list[str] = []
        for name, attribute, key in _plan(type(value)):
            member = getattr(value, attribute)
            if member is not None:
                members.append(key + self.text(member, unknown.get(name, _NOTHING), depth + 1))
        if unknown:
            more = sorted(unknown.keys() - _members(type(value)).keys())
            members += (f"{_scalar(name)}:{self.text(unknown[name], _NOTHING, depth + 1)}" for name in more)
            members.sort()
        return self._block("{", members, "}", depth)

    def _mapping(self, value: Mapping[Any, Any], unknown: Mapping[str, Any], depth: int) -> str:
        members = [
            f"{_key(key)}:{self.text(member, unknown.get(key, _NOTHING), depth + 1)}" for key, member in value.items()
        ]
        return self._block("{", members, "}", depth)

    def _list(self, value: Iterable[Any], depth: int) -> str:
        items = list(value)
        if all(type(item) is int for item in items):
            return f"[{','.join(map(str, items))}]"
        return self._block("[", [self.text(item, _NOTHING, depth + 1) for item in items], "]", depth)

    def _block(self, begin: str, members: Sequence[str], end: str, depth: int) -> str:
        if not members:
            return begin + end
        line = self._lines[depth + 1]
        return f"{begin}{line}{f',{line}'.join(members)}{self._lines[depth]}{end}"

    # ── In slices ─────────────────────────────────────────────────────────────────────────────────────────────────

    def slices(self, value: Any, unknown: Mapping[str, Any]) -> Generator[int, None, list[bytes]]:
        """A whole file; yields the bytes so far. Only the tables directly below the top may be large."""
        content = _Content()
        if isinstance(value, ConsumerOffsets):
            yield from self._offsets(value, content)
        elif isinstance(value, msgspec.Struct):
            # A snapshot: the members of a table are immutable values.
            members = [(name, key, _copied(getattr(value, attribute))) for name, attribute, key in _plan(type(value))]
            more = unknown.keys() - _members(type(value)).keys()
            members += ((name, f"{_scalar(name)}:", unknown[name]) for name in more)
            begin = b"{"
            for name, key, member in sorted(members, key=lambda member: member[1]):
                if member is None:
                    continue
                content += begin + f"{self._lines[1]}{key}".encode()
                if isinstance(member, _Items):
                    yield from self._table(member, unknown.get(name, _NOTHING), content)
                else:
                    below = _NOTHING if name in more else unknown.get(name, _NOTHING)
                    content += self.text(member, below, 1).encode()
                begin = b","
            content += f"{self._lines[0]}}}".encode() if begin == b"," else b"{}"
        else:
            content += self.text(value, unknown).encode()
        return content.parts

    def _table(self, items: _Items, unknown: Mapping[str, Any], content: _Content) -> Generator[int, None, None]:
        """A table below the top: like `_mapping`, a few entries at a time."""
        texts = self._texts if items.values and isinstance(items.values[0], Body) else {}
        count = len(items.keys)
        begin, line = "{", self._lines[2]
        members: list[str] = []
        size = 0
        for number, (key, member) in enumerate(zip(items.keys, items.values, strict=True), 1):
            body, text = texts.get(key, _NO_ENTRY)
            if body is not member:
                text = f"{_key(key)}:{self.text(member, unknown.get(key, _NOTHING), 2)}"
                texts[key] = member, text
            members.append(text)
            size += len(text)
            if len(members) == ENTRIES_IN_SLICE or size >= BYTES_IN_SLICE or number == count:
                content += f"{begin}{line}{f',{line}'.join(members)}".encode()
                begin = ","
                members.clear()
                size = 0
                yield content.size
        content += f"{self._lines[1]}}}".encode() if count else b"{}"
        if len(texts) > count + ENTRIES_IN_SLICE:  # entries were removed
            there = set(items.keys)
            yield content.size
            for number, key in enumerate(list(texts)):
                if key not in there:
                    del texts[key]
                if number % NUMBERS_IN_SLICE == 0:
                    yield content.size

    def _offsets(self, value: ConsumerOffsets, content: _Content) -> Generator[int, None, None]:
        """The only large file that is written every few seconds, including what Java derives from its table."""
        line = self._lines[1]
        content += f'{{{line}"dataVersion":{self.text(value.data_version, _NOTHING, 1)}'.encode()
        content += f',{line}"groupTopicMap":'.encode()
        yield from self._topics_by_group(value.offset_table, content)
        content += f',{line}"offsetTable":'.encode()
        yield from self._offset_table(value.offset_table, content)
        content += f',{line}"pullOffsetTable":'.encode()
        yield from self._offset_table(value.pull_offset_table, content)
        content += f"{self._lines[0]}}}".encode()

    def _topics_by_group(self, table: OffsetTable, content: _Content) -> Generator[int, None, None]:
        groups: dict[str, list[str]] = {}
        for number, name in enumerate(list(table), 1):
            topic, _, group = name.partition("@")
            if topic and group and "@" not in group:
                groups.setdefault(group, []).append(_scalar(topic))
            if number % ENTRIES_IN_SLICE == 0:
                yield content.size
        begin, line = "{", self._lines[3]
        written = content.size
        has_groups = bool(groups)
        for group in list(groups):
            topics = groups.pop(group)  # a large table is also freed in small steps
            content += f"{begin}{self._lines[2]}{_scalar(group)}:[".encode()
            begin = ","
            for at in range(0, len(topics), ENTRIES_IN_SLICE):
                some = f",{line}".join(topics[at : at + ENTRIES_IN_SLICE])
                content += f"{',' if at else ''}{line}{some}".encode()
                if content.size - written >= BYTES_IN_SLICE:
                    written = content.size
                    yield written
            content += f"{self._lines[2]}]".encode()
        content += f"{self._lines[1]}}}".encode() if has_groups else b"{}"

    def _offset_table(self, table: OffsetTable, content: _Content) -> Generator[int, None, None]:
        outer, inner = self._lines[2], self._lines[3]
        begin, written = "{", content.size
        for name in list(table):
            queues = table.get(name)
            if queues is None:  # removed since the start
                continue
            content += f"{begin}{outer}{_scalar(name)}:{{".encode()
            begin = ","
            between = inner
            for part in numbers(queues):
                content += between.encode() + part.replace(b",", b"," + inner.encode())
                between = "," + inner
                if content.size - written >= BYTES_IN_SLICE:
                    written = content.size
                    yield written
            content += f"{outer}}}".encode() if between is not inner else b"}"
        content += f"{self._lines[1]}}}".encode() if begin == "," else b"{}"


def _copied(value: Any) -> Any:
    return _Items(value) if isinstance(value, Mapping) else value


def numbers(queues: Mapping[int, int]) -> Iterable[bytes]:
    """`0:11,1:10`, in several parts if there are many. Works because the JSON has only integers."""
    parts: Iterable[Mapping[int, int]] = (queues,) if queues else ()
    if len(queues) > NUMBERS_IN_SLICE:
        ids, offsets = list(queues), list(queues.values())
        parts = (
            dict(zip(ids[at : at + NUMBERS_IN_SLICE], offsets[at : at + NUMBERS_IN_SLICE], strict=True))
            for at in range(0, len(ids), NUMBERS_IN_SLICE)
        )
    for part in parts:
        text = msgspec.json.encode(part).translate(None, b'"{}')
        assert not text.translate(None, b"0123456789-:,"), "an offset table has only integers"
        yield text


_NO_ENTRY: tuple[None, str] = (None, "")


def _scalar(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _key(key: Any) -> str:
    return str(key) if type(key) is int else _scalar(key)


@cache
def _plan(cls: type[msgspec.Struct]) -> list[tuple[str, str, str]]:
    """(name, attribute, `"name":`) of each member, in the order of their names."""
    fields = sorted((field.encode_name, field.name) for field in msgspec.structs.fields(cls))
    return [(name, attribute, f'"{name}":') for name, attribute in fields]
