"""Decodes a broker's registration: a little at a time, and only the changed parts.

Every 30 seconds a broker repeats all its topics, thousands of them in 2 MB of JSON, nearly always unchanged. Routes are
served by the same event loop and must not wait for that. So the JSON is cut between entries of its topic table and of
its table of static mappings:

    shell      {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{…},…,"topicConfigTable":▢,…}}
    pieces     "A":{…},"B":{…}    "C":{…},"D":{…}    "E":{…},"F":{…}
    mappings   "S":{…},"T":{…}

The shell is always decoded. The pieces are compared with the last ones as bytes, from the front and the back, and only
the part in between is decoded. The parser skips fields that are not needed here.

The cuts are guesses that are verified: each piece must be a valid list of entries, and the shell, with a placeholder
entry for each table, must be a valid registration with exactly these entries. As JSON is unambiguous, the whole then
means the same as its parts. A registration that can't be cut is decoded as a whole.

`read` is a generator (`kourou.turns`): it yields after about `SLICE` bytes and returns a `Reading`.

Every step is bounded, whatever a peer sends. JSON with null members or quoted numbers, number keys and fastjson's
dialect have slower decoders, each with its limit; one registration has at most `TOPICS_MAX` topics.

Java: RegisterBrokerBody, DefaultRequestProcessor.
"""

import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from kourou.protocol import fastjson, headers
from kourou.protocol.bodies import DataVersion, TopicConfig, TopicQueueMappingInfo
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.routes import INFLATED_LIMIT_BYTES, Parts
from kourou.protocol.codes import Version
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32
from kourou.turns import Slices

PIECE = 8 * 1024
"""The smallest size of a piece in bytes. A changed topic costs one piece: about 45 topics, in 0.05 ms."""

PIECES_SPARE = 64
"""How many pieces there may be above twice the necessary number."""

SLICE = 64 * 1024
"""Bytes that are decoded between two yields: usually 0.4 ms, at most 2 ms."""

HEAD_MAX = 64 * 1024
"""Bytes in which the topic table is searched: versions and filter servers come before it, usually 200 bytes."""

SHELL_MAX = 128 * 1024
"""The largest registration without its tables, in bytes."""

ENTRY_MAX = 128 * 1024
"""The largest entry of a table in bytes. A topic takes 200; a mapping of a static topic takes 10 per queue."""

WHOLE_MAX = 512 * 1024
"""The largest registration in bytes that can't be cut and is decoded as a whole: 17 ms at most."""

LOOSE_MAX = 128 * 1024
"""The same for JSON with null members, quoted numbers or number keys: 12 ms at most."""

DIALECT_MAX = 12 * 1024
"""The same for fastjson's dialect: 11 ms at most."""

SMALL = 8 * 1024
"""Registrations up to this size in bytes are decoded as a whole, which costs less."""

TOPICS_MAX = 100_000
"""Topics and mappings in one registration. In Java's format, 16 MiB, the largest frame, fit 93,000."""

ENTRIES_IN_SLICE = 512
"""Entries of a compressed registration that are decoded between two yields, if they are small."""

_FIRST_JSON = int(Version.V3_0_11)

T = TypeVar("T")


class Topic(Body):
    """The fields of TopicConfig that routes need."""

    topic_name: str | None = None
    read_queue_nums: Int32 = always(16)
    write_queue_nums: Int32 = always(16)
    perm: Int32 = always(6)
    topic_sys_flag: Int32 = always(0)


class Topics(Body):
    """The needed fields of TopicConfigAndMappingSerializeWrapper."""

    topic_config_table: dict[str, Topic] = always(dict)
    data_version: DataVersion = always(DataVersion())
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = always(dict)


class Registration(Body):
    """The needed fields of RegisterBrokerBody."""

    topic_config_serialize_wrapper: Topics = always(Topics)
    filter_server_list: list[str] = always(list)


class Said(msgspec.Struct, frozen=True, gc=False):
    """The last registration of a broker, to compare with its next one."""

    version: int  # of the sender
    ext: dict[str, str]  # the header fields of the request, without the CRC
    shell: Registration | None  # None: the body could not be cut, and is in the pieces
    pieces: tuple[bytes, ...]  # empty: the shell is everything
    mappings: bytes = b""

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces)) + len(self.mappings)


class Reading(NamedTuple):
    """A decoded registration."""

    topics: Mapping[str, Topic]  # all, or with `is_partial` those not in the last registration
    mappings: Mapping[str, TopicQueueMappingInfo]  # all, or none with `is_repeated`
    shell: Registration  # the rest; its tables are placeholders
    said: Said
    is_partial: bool = False
    is_repeated: bool = False  # it equals the last registration

    @property
    def version(self) -> DataVersion:
        """The version of the topics."""
        return self.shell.topic_config_serialize_wrapper.data_version


Reader: TypeAlias = Slices[Reading]


def read(command: Command, header: headers.RegisterBroker, before: Said | None, *, merge: bool) -> Reader:
    """Decode the body of a registration in any of its forms. Raises BodyError.

    The body is compared with the one `before`. If they differ, `merge` allows a result with the differences only.
    """
    small = read_small(command, header, before)
    if small is not None:
        return small
    _check_crc(command.body, header)
    yield 0
    if command.version >= _FIRST_JSON and not header.compressed:
        reading = yield from _read_parts(command, before, merge=merge)
        if reading is not None:
            return reading
    said = Said(command.version, _ext(command), None, (command.body,))
    if said == before:
        return Reading({}, {}, Registration(), said, is_partial=True, is_repeated=True)
    if header.compressed and command.body and command.version >= _FIRST_JSON:
        shell = yield from _decompress(command.body, command.version)
    else:
        yield 0
        shell = _read_whole(command)
    wrapper = shell.topic_config_serialize_wrapper
    _check_count(len(wrapper.topic_config_table))
    _check_count(len(wrapper.topic_queue_mapping_info_map))
    return Reading(wrapper.topic_config_table, wrapper.topic_queue_mapping_info_map, shell, said)


def _read_parts(command: Command, before: Said | None, *, merge: bool) -> Slices[Reading | None]:
    """Decode a registration in parts; None if it can't be cut."""
    body = command.body
    has_references = yield from _has_references(body)
    parts = None if has_references else _take_apart(body)
    if parts is None:
        return None
    shell = parts.shell
    mappings_text = body[parts.mappings.start : max(parts.mappings)]
    said = Said(command.version, _ext(command), shell, (), mappings_text)
    known = before.pieces if before is not None and before.shell is not None else ()
    shared = _shared(body, parts.topics, known)
    if before is not None and shared.is_all and before == msgspec.structs.replace(said, pieces=known):
        return Reading({}, {}, shell, before, is_partial=True, is_repeated=True)
    if not merge:
        shared = Shared(0, 0, parts.topics)
    read_now = yield from _read_pieces(body, shared.between, _TOPICS)
    if read_now is None:
        return None
    topics, new = read_now
    mappings: Mapping[str, TopicQueueMappingInfo] = shell.topic_config_serialize_wrapper.topic_queue_mapping_info_map
    if mappings_text:
        of_mappings = yield from _read_pieces(body, parts.mappings, _MAPPINGS)
        if of_mappings is None:
            return None
        mappings = of_mappings[0]
    pieces = _regrouped((*known[: shared.front], *new, *known[len(known) - shared.back :]))
    said = msgspec.structs.replace(said, pieces=pieces)
    return Reading(topics, mappings, shell, said, is_partial=bool(shared.front or shared.back))


def read_small(command: Command, header: headers.RegisterBroker, before: Said | None) -> Reading | None:
    """Decode a registration of a few topics: decoding all of it costs less than finding the changes.

    None if it is large, or not ordinary JSON. Raises BodyError.
    """
    body = command.body
    if not 0 < len(body) <= SMALL or command.version < _FIRST_JSON or header.compressed or b"$ref" in body:
        return None
    _check_crc(body, header)
    try:
        whole = _decode_registration(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    said = Said(command.version, _ext(command), whole, ())
    if before is not None and said == before:
        return Reading({}, {}, whole, before, True, True)
    wrapper = whole.topic_config_serialize_wrapper
    return Reading(wrapper.topic_config_table, wrapper.topic_queue_mapping_info_map, whole, said)


def _check_crc(body: bytes, header: headers.RegisterBroker) -> None:
    if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
        raise BodyError("crc32 not match")


def _ext(command: Command) -> dict[str, str]:
    ext = dict(command.ext or {})
    ext.pop("bodyCrc32", None)
    return ext


# ── JSON in parts ───────────────────────────────────────────────────────────────────────────────────────────────────

_TABLE = b'"topicConfigTable":{'
_MAPPING_TABLE = b'"topicQueueMappingInfoMap":{'
_VERSION = b'"dataVersion":'
_AFTER_TABLE_JAVA = b'},"topicQueueMappingDetailMap":'  # of a 5.x broker; a 4.9 broker writes nothing after it
_AFTER_TABLE_OURS = b'},"dataVersion":'
_AFTER_MAPPINGS_OURS = b'},"topicQueueMappingDetailMap":'  # a Java broker writes nothing after it
_END = b"}}}"
_PROBE, _MAPPING_PROBE = b'"?":{}', b'"??":{}'
_COMMA = ord(",")

_entry_end = re.compile(rb'\}(?=,"[^"\\]*+":\{)').search


class Span(NamedTuple):
    """The range of a table's entries, from the first name to the last brace. `end < start`: it is empty."""

    start: int
    end: int


class Cut(NamedTuple):
    """A registration in parts."""

    shell: Registration
    topics: Span
    mappings: Span


class Shared(NamedTuple):
    """The common part of a table and the previous pieces."""

    front: int  # the number of leading pieces in common
    back: int  # the number of trailing pieces in common
    between: Span
    is_all: bool = False  # the two are equal


class Table(NamedTuple):
    """How the entries of a table are decoded: by msgspec or, if they are not ordinary JSON, by `fastjson`."""

    decode: Callable[[bytes], dict[str, Any]]
    type: Any


_TOPICS = Table(msgspec.json.Decoder(dict[str, Topic]).decode, dict[str, Topic])
_MAPPINGS = Table(msgspec.json.Decoder(dict[str, TopicQueueMappingInfo]).decode, dict[str, TopicQueueMappingInfo])


def _has_references(body: bytes) -> Slices[bool]:
    """True if it refers to an earlier object (`$ref`), which a part alone could not resolve."""
    if b"$" not in body:
        return False
    for at in range(0, len(body), SLICE):
        if body.find(b"$ref", at, at + SLICE + 3) >= 0:
            return True
        yield 0
    return False


def _take_apart(body: bytes) -> Cut | None:
    """The shell and the ranges of the tables; None if they can't be determined."""
    start = body.find(_TABLE, 0, HEAD_MAX) + len(_TABLE)
    if start < len(_TABLE):
        return None
    is_java = body.find(_VERSION, 0, start) >= 0
    end = body.rfind(_AFTER_TABLE_JAVA if is_java else _AFTER_TABLE_OURS, start - 1)
    if end < 0:
        end = len(body) - len(_END)
    if end < start - 1:
        return None
    mappings = _mappings_in(body, end, is_java=is_java)
    if start + mappings.start - end + len(body) - max(mappings) > SHELL_MAX:
        return None
    probe = _MAPPING_PROBE if mappings.start < mappings.end else b""
    try:
        shell = _loosely(
            b"".join((body[:start], _PROBE, body[end : mappings.start], probe, body[max(mappings) :])), Registration
        )
    except BodyError:
        return None
    wrapper = shell.topic_config_serialize_wrapper
    if wrapper.topic_config_table.keys() != {"?"} or (probe and wrapper.topic_queue_mapping_info_map.keys() != {"??"}):
        return None
    return Cut(shell, Span(start, end if end > start else start - 1), mappings)


def _mappings_in(body: bytes, after: int, *, is_java: bool) -> Span:
    """The range of the static mappings; empty if there are none, or if they are decoded with the shell."""
    start = body.find(_MAPPING_TABLE, after) + len(_MAPPING_TABLE)
    if start < len(_MAPPING_TABLE):
        return Span(len(body), len(body) - 1)
    end = len(body) - len(_END) if is_java else body.rfind(_AFTER_MAPPINGS_OURS, start)
    return Span(start, end if end > start else start - 1)


def _shared(body: bytes, table: Span, pieces: tuple[bytes, ...]) -> Shared:
    """Compare the table with the pieces: from the front, then from the back. One comma separates pieces."""
    front, back = 0, 0
    start, end = table
    for piece in pieces:
        stop = start + len(piece)
        if not body.startswith(piece, start) or (stop != end and (stop > end or body[stop] != _COMMA)):
            break
        front, start = front + 1, stop + 1
    for piece in reversed(pieces[front:]):
        begin = end - len(piece)
        if begin < start or not body.startswith(piece, begin) or (begin > start and body[begin - 1] != _COMMA):
            break
        back, end = back + 1, begin - 1
    return Shared(front, back, Span(start, end), end < start and front + back == len(pieces))


def _regrouped(pieces: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The same entries in pieces of the right size, if too many are small: each change may leave a short one."""
    if len(pieces) <= PIECES_SPARE + 2 * sum(map(len, pieces)) // max(PIECE, 1):
        return pieces
    groups: list[list[bytes]] = []
    size = PIECE
    for piece in pieces:
        if size >= PIECE:
            groups.append([])
            size = 0
        groups[-1].append(piece)
        size += len(piece)
    return tuple(map(b",".join, groups))


def _read_pieces(body: bytes, span: Span, table: Table) -> Slices[tuple[dict[str, Any], list[bytes]] | None]:
    """The entries in a range, and the pieces that they come from. None if the text can't be cut into entries."""
    entries: dict[str, Any] = {}
    pieces: list[bytes] = []
    at, read_bytes = span.start, 0
    while at <= span.end:
        stop = min(at + PIECE + ENTRY_MAX, span.end)
        cut = _entry_end(body, at + PIECE, stop)
        if cut is None and stop < span.end:
            return None
        end = span.end if cut is None else cut.end()
        piece = body[at:end]
        if not piece:
            return None
        braced = b"{%b}" % piece
        fast = _strictly(braced, table.decode)
        try:
            entries.update(_loosely(braced, table.type) if fast is None else fast)
        except BodyError:
            return None
        _check_count(len(entries))
        pieces.append(piece)
        at = end + 1
        read_bytes += len(piece) if fast is not None else SLICE
        if read_bytes >= SLICE and at <= span.end:
            read_bytes = 0
            yield _held(entries, at - span.start)
    return entries, pieces


def _held(entries: Mapping[str, object], text_size: int) -> int:
    """The memory that a reading takes in bytes, approximately."""
    return 200 * len(entries) + text_size


# ── Other forms ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_whole(command: Command) -> Registration:
    """Decode a registration that can't be cut."""
    body = command.body
    if not body:
        return Registration()
    if len(body) > WHOLE_MAX:
        raise BodyError(f"a registration of {len(body)} bytes in an unusual format; the limit is {WHOLE_MAX}")
    if command.version < _FIRST_JSON:
        return Registration(topic_config_serialize_wrapper=_loosely(body, Topics))
    return _loosely(body, Registration)


def _decompress(data: bytes, version: int) -> Slices[Registration]:
    """Decode the compressed form; see `RegisterBrokerBody`."""
    parts = _Parts((yield from _inflate(data)))
    data_version = _loosely(parts.next(), DataVersion)
    topics: dict[str, Topic] = {}
    for _ in range(_checked_count(parts)):
        config = TopicConfig.from_text(parts.next_text())
        topics[config.topic_name or ""] = _topic(config)
        if parts.is_slice_over():
            yield _held(topics, len(data))
    filter_servers = _loosely(parts.next(), list[str])
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= Version.V5_0_0:
        for _ in range(_checked_count(parts)):
            mapping = _loosely(parts.next(), TopicQueueMappingInfo)
            mappings[mapping.topic or ""] = mapping
            if parts.is_slice_over(slow=True):
                yield _held(topics, len(data)) + _held(mappings, 0)
    return Registration(
        topic_config_serialize_wrapper=Topics(
            topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
        ),
        filter_server_list=filter_servers,
    )


class _Parts(Parts):
    """The parts of a decompressed registration, all of them small."""

    def __init__(self, data: bytearray) -> None:
        super().__init__(data, ENTRY_MAX)
        self._count = self._size = 0  # since the last slice

    def next(self) -> bytes:
        part = super().next()
        self._count += 1
        self._size += len(part)
        return part

    def is_slice_over(self, *, slow: bool = False) -> bool:
        """True if a slice was decoded since the last time it was true."""
        if self._count < ENTRIES_IN_SLICE and self._size < (PIECE if slow else SLICE):
            return False
        self._count = self._size = 0
        return True


def _inflate(data: bytes) -> Slices[bytearray]:
    inflater = zlib.decompressobj()
    inflated = bytearray()
    for at in range(0, len(data), SLICE):
        piece = data[at : at + SLICE]
        while piece:
            try:
                inflated += inflater.decompress(piece, SLICE)
            except zlib.error as error:
                raise BodyError(f"not a zlib stream: {error}") from None
            if len(inflated) > INFLATED_LIMIT_BYTES:
                raise BodyError(f"decompresses to more than {INFLATED_LIMIT_BYTES} bytes")
            piece = inflater.unconsumed_tail
            yield len(inflated)
    return inflated


def _topic(config: TopicConfig) -> Topic:
    return Topic(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _checked_count(parts: _Parts) -> int:
    count = parts.count()
    _check_count(count)
    return count


def _check_count(count: int) -> None:
    if count > TOPICS_MAX:
        raise BodyError(f"the registration has more than {TOPICS_MAX} topics or mappings, the limit")


_decode_registration = msgspec.json.Decoder(Registration).decode


def _loosely(data: bytes, wanted: type[T]) -> T:
    """Decode ordinary JSON or, within their limits, the other forms. Raises BodyError."""
    return fastjson.decode(data, wanted, untyped_max=LOOSE_MAX, number_keys_max=LOOSE_MAX, dialect_max=DIALECT_MAX)


def _strictly(data: bytes, decode: Callable[[bytes], T]) -> T | None:
    """Decode ordinary JSON; None if it is something else."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
