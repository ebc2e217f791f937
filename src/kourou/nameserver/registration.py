"""What a name server reads of a broker's registration, a little at a time, and only what is new.

Every 30 seconds a broker repeats all its topics, thousands of them in 2 MB of JSON, nearly always the same ones.
Routes are served by the same loop and must not wait for that. So the JSON is taken apart where the entries of its
topic table meet:

    shell    {"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{…},…,"topicConfigTable":▢,…}}
    pieces   "A":{…},"B":{…}    "C":{…},"D":{…}    "E":{…},"F":{…}

The shell is always read. The pieces are compared with those of last time as bytes, from the front and the back, and
only what lies between is read. Fields that nobody here looks at are skipped by the parser.

Nothing is taken on trust. Where a piece ends is a guess, but each piece must read as a list of entries, and the shell,
with an entry of ours in the place of the table, as a registration that has just this entry. JSON has one meaning: the
whole says what its parts say. A registration that does not come apart is read in one go.

`read` is a generator: it yields after about `SLICE` bytes so that others have their turn, and returns a `Reading`.

What strangers can make us do is bounded: a piece or shell that is not JSON as everyone writes it takes a reader that is
fifty times slower, and may be `SLOW_MAX` bytes long; nobody registers more than `TOPICS_MAX` topics.

Java: RegisterBrokerBody, DefaultRequestProcessor.
"""

import re
import zlib
from collections.abc import Callable, Generator, Mapping
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from kourou.protocol import fastjson, headers
from kourou.protocol.bodies import DataVersion, TopicConfig, TopicQueueMappingInfo
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.bodies.routes import INFLATED_LIMIT_BYTES, Parts
from kourou.protocol.codes import Version
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32

PIECE = 16 * 1024
"""Bytes of a piece, at least. A changed topic makes one piece be read: some ninety topics, in 0.1 ms."""

PIECES_SPARE = 64
"""How many pieces more than twice the necessary there may be."""

SLICE = 256 * 1024
"""Bytes that are read before others have their turn: about a millisecond."""

HEAD_MAX = 64 * 1024
"""Bytes before the topic table in which it is looked for: versions and filter servers, 200 bytes as a rule."""

SLOW_MAX = 128 * 1024
"""Bytes that the slow reader is given at once, which takes it some 30 ms."""

SHELL_MAX = 2 * 1024 * 1024
"""Bytes of a registration without its topics: what is left are mappings of static topics, some 13,000 of them."""

SMALL = 8 * 1024
"""Bytes of a registration that is read as a whole."""

TOPICS_MAX = 100_000
"""Topics and mappings in one registration. As Java writes them, 16 MiB, the largest frame, have room for 93,000."""

_FIRST_JSON = int(Version.V3_0_11)

T = TypeVar("T")


class Topic(Body):
    """Of TopicConfig, what routes are made of."""

    topic_name: str | None = None
    read_queue_nums: Int32 = always(16)
    write_queue_nums: Int32 = always(16)
    perm: Int32 = always(6)
    topic_sys_flag: Int32 = always(0)


class Topics(Body):
    """Of TopicConfigAndMappingSerializeWrapper."""

    topic_config_table: dict[str, Topic] = always(dict)
    data_version: DataVersion = always(DataVersion())
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = always(dict)


class Registration(Body):
    """Of RegisterBrokerBody."""

    topic_config_serialize_wrapper: Topics = always(Topics)
    filter_server_list: list[str] = always(list)


class Said(msgspec.Struct, frozen=True, gc=False):
    """What a broker said last, to compare with what it says next."""

    version: int  # of the request's author
    ext: dict[str, str]  # the header fields of the request, all but the CRC
    shell: Registration | None  # None: the pieces are the whole body, which did not come apart
    pieces: tuple[bytes, ...]  # none: the shell is all of it

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.pieces)) if self.pieces else 0


class Reading(NamedTuple):
    """A registration that was read."""

    topics: Mapping[str, Topic]  # all, or with `is_partial` those that are not in what was said before
    shell: Registration  # the rest of it; its own table has no meaning
    said: Said
    is_partial: bool = False
    is_repeated: bool = False  # it says what was said before, all of it


Reader: TypeAlias = Generator[None, None, Reading]


def read(command: Command, header: headers.RegisterBroker, before: Said | None, *, merge: bool) -> Reader:
    """The body of a registration in any of its forms. Raises BodyError.

    It is compared with the one `before`. When they differ, `merge` allows for the difference alone.
    """
    small = read_small(command, header, before)
    if small is not None:
        return small
    body, version, ext = command.body, command.version, _ext(command)
    _check_crc(body, header)
    is_json = version >= _FIRST_JSON and not header.compressed
    if is_json and (parts := _take_apart(body)) is not None:
        shell, table = parts
        known = before.pieces if before is not None and before.shell is not None else ()
        shared = _shared(body, table, known)
        if before is not None and shared.is_all and before == Said(version, ext, shell, before.pieces):
            return Reading({}, shell, before, is_partial=True, is_repeated=True)
        if not merge:
            shared = Shared(0, 0, table)
        read_now = yield from _read_pieces(body, shared.between)
        if read_now is not None:
            topics, new = read_now
            pieces = _regrouped((*known[: shared.front], *new, *known[len(known) - shared.back :]))
            return Reading(
                topics, shell, Said(version, ext, shell, pieces), is_partial=bool(shared.front or shared.back)
            )
    said = Said(version, ext, None, (body,))
    if said == before:
        return Reading({}, Registration(), said, is_partial=True, is_repeated=True)
    if header.compressed and body and command.version >= _FIRST_JSON:
        shell = yield from _decompress(body, command.version)
    else:
        shell = _read_whole(command)
    topics_said = shell.topic_config_serialize_wrapper.topic_config_table
    _check_count(len(topics_said))
    return Reading(topics_said, shell, said)


def read_small(command: Command, header: headers.RegisterBroker, before: Said | None) -> Reading | None:
    """A registration of a few topics: reading all of it costs less than finding out what of it is new.

    None: it is none, or not in the form that nearly all have. Raises BodyError.
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
        return Reading({}, whole, before, True, True)
    return Reading(whole.topic_config_serialize_wrapper.topic_config_table, whole, said)


def _check_crc(body: bytes, header: headers.RegisterBroker) -> None:
    if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
        raise BodyError("crc32 not match")


def _ext(command: Command) -> dict[str, str]:
    ext = dict(command.ext or {})
    ext.pop("bodyCrc32", None)
    return ext


# ── JSON, taken apart ───────────────────────────────────────────────────────────────────────────────────────────────

_TABLE = b'"topicConfigTable":{'
_VERSION = b'"dataVersion":'
_AFTER_TABLE_JAVA = b'},"topicQueueMappingDetailMap":'  # from a broker of 5.x; from one of 4.9 nothing follows
_AFTER_TABLE_OURS = b'},"dataVersion":'
_PROBE = b'"?":{}'
_COMMA = ord(",")

_entry_end = re.compile(rb'\}(?=,"[^"\\]*+":\{)').search


class Span(NamedTuple):
    """Where entries of the topic table are, from the first name to the last brace. `end < start`: there are none."""

    start: int
    end: int


class Shared(NamedTuple):
    """What a table has in common with the pieces of the one before."""

    front: int  # so many of the first pieces are the first here
    back: int  # so many of the last pieces are the last here
    between: Span
    is_all: bool = False  # there is nothing else, here or there


def _take_apart(body: bytes) -> tuple[Registration, Span] | None:
    """The shell and where the topics are; None where this is not to be told."""
    start = body.find(_TABLE, 0, HEAD_MAX) + len(_TABLE)
    if start < len(_TABLE):
        return None
    after = _AFTER_TABLE_JAVA if body.find(_VERSION, 0, start) >= 0 else _AFTER_TABLE_OURS
    end = body.rfind(after, start - 1)
    if end < 0:
        end = len(body) - len(b"}}}")
    size = start + len(body) - end
    if end < start - 1 or size > SHELL_MAX or (b"$" in body and b"$ref" in body):
        return None
    try:
        shell = fastjson.decode(b"%b%b%b" % (body[:start], _PROBE, body[end:]), Registration, untyped_max=SLOW_MAX)
    except BodyError:
        return None
    topics = shell.topic_config_serialize_wrapper
    if topics.topic_config_table.keys() != {"?"}:
        return None
    _check_count(len(topics.topic_queue_mapping_info_map))
    return shell, Span(start, end if end > start else start - 1)


def _shared(body: bytes, table: Span, pieces: tuple[bytes, ...]) -> Shared:
    """Compares the table with the pieces: from the front, then from the back. Pieces are apart by one comma."""
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
    """The same entries in pieces of the right size, if too many became small: each change may leave a short one."""
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


def _read_pieces(body: bytes, span: Span) -> Generator[None, None, tuple[dict[str, Topic], list[bytes]] | None]:
    """The topics there, and the pieces that they were read from. None: they are not what they seem to be."""
    topics: dict[str, Topic] = {}
    pieces: list[bytes] = []
    at, read_bytes = span.start, 0
    while at <= span.end:
        cut = _entry_end(body, at + PIECE, span.end)
        end = span.end if cut is None else cut.end()
        piece = body[at:end]
        table = b"{%b}" % piece
        fast = _strictly(table, _decode_table)
        if not piece or (fast is None and len(piece) > SLOW_MAX):
            return None
        try:
            topics.update(fastjson.decode(table, dict[str, Topic]) if fast is None else fast)
        except BodyError:
            return None
        _check_count(len(topics))
        pieces.append(piece)
        at = end + 1
        read_bytes += len(piece) if fast is not None else SLICE
        if read_bytes >= SLICE and at <= span.end:
            read_bytes = 0
            yield
    return topics, pieces


# ── Other forms ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_whole(command: Command) -> Registration:
    """A registration that does not come apart, in one go."""
    body = command.body
    if not body:
        return Registration()
    if command.version < _FIRST_JSON:
        return Registration(topic_config_serialize_wrapper=fastjson.decode(body, Topics, untyped_max=SLOW_MAX))
    if len(body) <= SLOW_MAX:
        return Registration.decode(body)
    registration = None if b"$ref" in body else _strictly(body, _decode_registration)
    if registration is None:
        raise BodyError(f"a registration of {len(body)} bytes that is not ordinary JSON; the limit is {SLOW_MAX}")
    return registration


def _decompress(data: bytes, version: int) -> Generator[None, None, Registration]:
    """The compressed form, see `RegisterBrokerBody`."""
    inflated = yield from _inflate(data)
    parts = Parts(inflated)
    data_version = DataVersion.decode(parts.next())
    topics: dict[str, Topic] = {}
    for number in range(_checked_count(parts)):
        config = TopicConfig.from_text(parts.next_text())
        topics[config.topic_name or ""] = _topic(config)
        if number % ENTRIES_IN_SLICE == ENTRIES_IN_SLICE - 1:
            yield
    filter_servers = fastjson.decode(parts.next(), list[str], untyped_max=SLOW_MAX)
    mappings: dict[str, TopicQueueMappingInfo] = {}
    if version >= Version.V5_0_0:
        for number in range(_checked_count(parts)):
            mapping = fastjson.decode(parts.next(), TopicQueueMappingInfo, untyped_max=SLOW_MAX)
            mappings[mapping.topic or ""] = mapping
            if number % ENTRIES_IN_SLICE == ENTRIES_IN_SLICE - 1:
                yield
    return Registration(
        topic_config_serialize_wrapper=Topics(
            topic_config_table=topics, data_version=data_version, topic_queue_mapping_info_map=mappings
        ),
        filter_server_list=filter_servers,
    )


ENTRIES_IN_SLICE = 512


def _inflate(data: bytes) -> Generator[None, None, bytes]:
    inflater = zlib.decompressobj()
    parts: list[bytes] = []
    size = 0
    while data:
        try:
            parts.append(inflater.decompress(data, SLICE))
        except zlib.error as error:
            raise BodyError(f"not a zlib stream: {error}") from None
        size += len(parts[-1])
        if size > INFLATED_LIMIT_BYTES:
            raise BodyError(f"inflates to more than {INFLATED_LIMIT_BYTES} bytes")
        data = inflater.unconsumed_tail
        if data:
            yield
    return b"".join(parts)


def _topic(config: TopicConfig) -> Topic:
    return Topic(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )


def _checked_count(parts: Parts) -> int:
    count = parts.count()
    _check_count(count)
    return count


def _check_count(count: int) -> None:
    if count > TOPICS_MAX:
        raise BodyError(f"more than {TOPICS_MAX} topics or mappings in one registration")


_decode_table = msgspec.json.Decoder(dict[str, Topic]).decode
_decode_registration = msgspec.json.Decoder(Registration).decode


def _strictly(data: bytes, decode: Callable[[bytes], T]) -> T | None:
    """Read by msgspec alone; None where that does not do."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
