"""One command: a request or its answer, in JSON or in the compact binary header.

    frame   := length:int32 type:int8 header_length:int24 header body
    header  := JSON object                                                      (type 0)
             | code:int16 language:int8 version:int16 opaque:int32 flag:int32
               remark_length:int32 remark ext_length:int32 ext                  (type 1)
    ext     := (key_length:int16 key value_length:int32 value)*

`length` counts the bytes after it. All integers are big-endian, all text is UTF-8. Every frame states its own header
format, and a peer must read both; Kourou answers in the format of the request.

This module defines both formats. `_wire.pyx` is a compiled codec for usual JSON headers: it passes everything unusual
to the functions here, and tests/property/test_wire.py checks that the two agree.

Java: RemotingCommand, RocketMQSerializable.
"""

import struct
from typing import Annotated

import msgspec

from kourou.protocol.codes import CURRENT_VERSION, CommandFlag, Language
from kourou.protocol.errors import FrameError, LocalProtocolError

JSON_TYPE = 0
BINARY_TYPE = 1
HEADER_LENGTH_MAX = (1 << 24) - 1
LENGTH_MAX = (1 << 31) - 1

HEADER_SIZE_MAX = 1024 * 1024
FIELDS_MAX = 10_000
"""The largest header, and the largest number of its fields. Apache has no such limits, but one thread serves all
connections here, and a header of 16 MiB with a million fields would occupy it for seconds. Real headers stay below
200 KiB (a message with 32 KiB of properties, each character escaped) and 50 fields."""

COLONS_MAX = 50_000
"""The most colons of an unusual header: more than 10,000 fields and the properties of a message can have. One with
more is not decoded a second time: with 70,000 fields that took 22 ms."""

OUR_LANGUAGE = Language.PYTHON.name

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_RESPONSE = int(CommandFlag.RESPONSE)
_ONE_WAY = int(CommandFlag.ONE_WAY)


class Command(msgspec.Struct, gc=False):
    """A request or an answer. `ext` has the header fields, which are all strings.

    An empty `ext` equals None; so does an empty `remark` in the binary format.
    """

    code: int
    opaque: int = 0
    flag: int = 0
    version: int = CURRENT_VERSION
    language: str = OUR_LANGUAGE
    remark: str | None = None
    ext: dict[str, str] | None = None
    body: bytes = b""
    binary: bool = False

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & _ONE_WAY)

    def answer(
        self, code: int = 0, remark: str | None = None, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> "Command":
        """The answer to this request: same opaque, same header format (JSON if the code does not fit binary)."""
        binary = self.binary and -0x8000 <= code <= 0x7FFF
        return Command(code, self.opaque, _RESPONSE, CURRENT_VERSION, OUR_LANGUAGE, remark, ext, body, binary)


# ── Decoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Plain(msgspec.Struct, gc=False, rename={"ext": "extFields"}):
    """The JSON header as all clients but the C++ client write it: every header field is a string."""

    code: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str | None = None
    remark: str | None = None
    ext: dict[str, str] | None = None


class _Lenient(msgspec.Struct, gc=False, rename={"ext": "extFields"}):
    """The JSON header with everything that Java's parser accepts as a string: numbers, booleans, null."""

    code: _Int32 | None = 0
    opaque: _Int32 | None = 0
    flag: _Int32 | None = 0
    version: _Int32 | None = 0
    language: str | None = None
    remark: str | None = None
    ext: dict[str, msgspec.Raw] | None = None


_decode_plain = msgspec.json.Decoder(_Plain).decode
_decode_lenient = msgspec.json.Decoder(_Lenient).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode_json = msgspec.json.Encoder().encode


def decode(data: bytes, start: int, end: int) -> Command:
    """Decode the frame whose bytes after the length field are `data[start:end]`.

    Raises FrameError: the stream is out of step, so the connection must be closed.
    """
    if end - start < 4:
        raise FrameError(f"a frame of {end - start} bytes is too short for the header length")
    word = int.from_bytes(data[start : start + 4])
    kind, header_size = word >> 24, word & HEADER_LENGTH_MAX
    body_at = start + 4 + header_size
    if body_at > end:
        raise FrameError(f"a header of {header_size} bytes does not fit into a frame of {end - start} bytes")
    if header_size > HEADER_SIZE_MAX:
        raise FrameError(f"a header of {header_size} bytes; the limit is {HEADER_SIZE_MAX}")
    header, body = data[start + 4 : body_at], data[body_at:end]
    if kind == JSON_TYPE:
        return decode_json(header, body)
    if kind == BINARY_TYPE:
        return decode_binary(header, body)
    raise FrameError(f"unknown header format {kind}: 0 is JSON, 1 is binary")


def size_error(size: int, limit: int) -> FrameError:
    """The error for a frame length that is out of bounds."""
    if size > limit:
        return FrameError(f"a frame of {size} bytes; the limit is {limit}")
    return FrameError(f"frame length {size}: not a RocketMQ frame")


def decode_json(header: bytes, body: bytes) -> Command:
    """A command from its JSON header. Raises FrameError."""
    try:
        h = _decode_plain(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_json_leniently(header, body)
    if h.ext is not None and len(h.ext) > FIELDS_MAX:
        raise _too_many_fields()
    return Command(h.code, h.opaque, h.flag, h.version, h.language or "OTHER", h.remark, h.ext, body)


def _decode_json_leniently(header: bytes, body: bytes) -> Command:
    if header.count(b":") > COLONS_MAX:
        raise _too_many_fields()
    try:
        h = _decode_lenient(header)
        if h.ext is not None and len(h.ext) > FIELDS_MAX:
            raise _too_many_fields()
        ext = None if h.ext is None else {k: _text(raw) for k, v in h.ext.items() if (raw := bytes(v)) != b"null"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"JSON header does not decode: {error}") from None
    language = h.language or "OTHER"
    return Command(h.code or 0, h.opaque or 0, h.flag or 0, h.version or 0, language, h.remark, ext, body)


def _too_many_fields() -> FrameError:
    return FrameError(f"the header has more than {FIELDS_MAX} fields, the limit")


def _text(raw: bytes) -> str:
    """A header field as a string: numbers, booleans, lists and objects keep their JSON text."""
    return _decode_text(raw) if raw[:1] == b'"' else raw.decode()


_LANGUAGE_OF_BYTE: dict[int, str] = {language.value: language.name for language in Language}
_BYTE_OF_LANGUAGE: dict[str, int] = {language.name: language.value for language in Language}
_FIXED = struct.Struct(">hbhiii")


def decode_binary(header: bytes, body: bytes) -> Command:
    """A command from its binary header. Raises FrameError."""
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
        at = _FIXED.size
        remark, at = _slice(header, at, remark_size, "remark")
        ext_size = int.from_bytes(header[at : at + 4], signed=True) if at + 4 <= len(header) else -1
        fields, _ = _slice(header, at + 4, ext_size, "header fields")
        ext = _decode_fields(fields) if fields else None
        text = remark.decode() or None
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"binary header of {len(header)} bytes does not decode: {error}") from None
    name = _LANGUAGE_OF_BYTE.get(language, "OTHER")
    return Command(code, opaque, flag, version, name, text, ext, body, True)


def _slice(data: bytes, at: int, size: int, what: str) -> tuple[bytes, int]:
    if size < 0 or at + size > len(data):
        raise FrameError(f"binary header: {what} of {size} bytes at {at}; the header ends at {len(data)}")
    return data[at : at + size], at + size


def _decode_fields(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    at, end, count = 0, len(data), 0
    while at < end:
        count += 1
        if count > FIELDS_MAX:
            raise _too_many_fields()
        if at + 2 > end:
            raise FrameError(f"binary header: a field is truncated at {at} of {end}")
        key, at = _slice(data, at + 2, int.from_bytes(data[at : at + 2], signed=True), "field name")
        if at + 4 > end:
            raise FrameError(f"binary header: field {key[:40]!r} has no value")
        value, at = _slice(data, at + 4, int.from_bytes(data[at : at + 4], signed=True), "field value")
        fields[key.decode()] = value.decode()
    return fields


# ── Encoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(command: Command) -> bytes:
    """Encode a whole frame. Raises LocalProtocolError for values that the header format can't represent."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_size: int) -> bytes:
    """Encode the frame up to its body, for a body of `body_size` bytes that is sent separately."""
    if command.ext is not None and len(command.ext) > FIELDS_MAX:
        raise LocalProtocolError(f"a header of {len(command.ext)} fields; the limit is {FIELDS_MAX}")
    try:
        header = encode_binary(command) if command.binary else encode_json(command)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"the command has text that is not valid Unicode: {error}") from None
    size = len(header)
    if size > HEADER_SIZE_MAX:
        raise LocalProtocolError(f"a header of {size} bytes; the limit is {HEADER_SIZE_MAX}")
    if 4 + size + body_size > LENGTH_MAX:
        raise LocalProtocolError(f"a body of {body_size} bytes; a whole frame has at most {LENGTH_MAX}")
    return b"%b%b" % (_pack_sizes(4 + size + body_size, size | command.binary << 24), header)


_pack_sizes = struct.Struct(">iI").pack


def encode_json(command: Command) -> bytes:
    """The JSON header, with its keys in Java's order."""
    ext = b"" if not command.ext else b'"extFields":%b,' % _encode_json(command.ext)
    remark = b"" if command.remark is None else b'"remark":%b,' % _encode_json(command.remark)
    return b'{"code":%d,%b"flag":%d,"language":%b,"opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        ext,
        command.flag,
        _encode_json(command.language),
        command.opaque,
        remark,
        command.version,
    )


def encode_binary(command: Command) -> bytes:
    """The binary header. Raises LocalProtocolError for a code or version of more than 16 bits."""
    remark = (command.remark or "").encode()
    fields = b"".join(map(_encode_field, command.ext.items())) if command.ext else b""
    try:
        head = _FIXED.pack(
            command.code,
            _BYTE_OF_LANGUAGE.get(command.language, Language.OTHER),
            command.version,
            command.opaque,
            command.flag,
            len(remark),
        )
    except struct.error as error:
        raise LocalProtocolError(f"code {command.code} does not fit a binary header: {error}; use JSON") from None
    return b"%b%b%b%b" % (head, remark, len(fields).to_bytes(4), fields)


def _encode_field(item: tuple[str, str]) -> bytes:
    key, value = item[0].encode(), item[1].encode()
    if len(key) > 0x7FFF:
        raise LocalProtocolError(f"a header field name of {len(key)} bytes; the binary header allows 32767")
    return b"%b%b%b%b" % (len(key).to_bytes(2), key, len(value).to_bytes(4), value)
