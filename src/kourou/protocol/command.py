"""One command: a request or its answer, in JSON or in the compact binary header.

    frame   := length:int32 type:int8 header_length:int24 header body
    header  := JSON object                                                      (type 0)
             | code:int16 language:int8 version:int16 opaque:int32 flag:int32
               remark_length:int32 remark ext_length:int32 ext                  (type 1)
    ext     := (key_length:int16 key value_length:int32 value)*

`length` counts what follows it. All integers are big-endian, all text is UTF-8. Every frame names its own header form,
and a peer must read both; we answer in the form of the request.

This module is the truth about both forms. `_wire.pyx` is its compiled twin for the usual JSON header: it hands whatever
is unusual to the functions here, and tests/property/test_wire.py holds the two equal.

Java: RemotingCommand, RocketMQSerializable.
"""

import struct
from typing import Annotated, Any

import msgspec

from kourou.protocol.codes import CURRENT_VERSION, CommandFlag, Language
from kourou.protocol.errors import FrameError, LocalProtocolError

JSON_TYPE = 0
BINARY_TYPE = 1
HEADER_LENGTH_MAX = (1 << 24) - 1
LENGTH_MAX = (1 << 31) - 1

HEADER_SIZE_MAX = 1024 * 1024
FIELDS_MAX = 10_000
"""The largest header that is read or written, and how many fields it may have. Apache has no such limits; but one
thread serves everybody here, and a header of 16 MiB in a million fields would keep it busy for seconds. Real ones stay
below 200 KiB (a message with 32 KiB of properties, each character escaped) and 50 fields."""

OUR_LANGUAGE = Language.PYTHON.name

_Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_RESPONSE = int(CommandFlag.RESPONSE)
_ONE_WAY = int(CommandFlag.ONE_WAY)


class Command(msgspec.Struct, gc=False):
    """A request or an answer. `ext` holds the header fields of the request's kind, all of them text.

    Empty `ext` and None are the same thing; so are empty `remark` and None in the binary form.
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
        """The answer to this request: its opaque, and its form of header (JSON where a code needs it)."""
        binary = self.binary and -0x8000 <= code <= 0x7FFF
        return Command(code, self.opaque, _RESPONSE, CURRENT_VERSION, OUR_LANGUAGE, remark, ext, body, binary)


# ── Decoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


class _Plain(msgspec.Struct, gc=False, rename={"ext": "extFields"}):
    """The JSON header as everyone but the C++ client writes it: text in every header field."""

    code: _Int32 = 0
    opaque: _Int32 = 0
    flag: _Int32 = 0
    version: _Int32 = 0
    language: str | None = None
    remark: str | None = None
    ext: dict[str, str] | None = None


class _Lenient(msgspec.Struct, gc=False, rename={"ext": "extFields"}):
    """The JSON header with whatever Java's reader takes for text: numbers, booleans, null."""

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
    """The command of the frame whose bytes after the length field are `data[start:end]`.

    Raises FrameError: the peer and we disagree about where things lie, so the connection can't go on.
    """
    if end - start < 4:
        raise FrameError(f"frame of {end - start} bytes has no room for the header length")
    word = int.from_bytes(data[start : start + 4])
    kind, header_size = word >> 24, word & HEADER_LENGTH_MAX
    body_at = start + 4 + header_size
    if body_at > end:
        raise FrameError(f"header of {header_size} bytes in a frame of {end - start} bytes")
    if header_size > HEADER_SIZE_MAX:
        raise FrameError(f"header of {header_size} bytes; the limit is {HEADER_SIZE_MAX}")
    header, body = data[start + 4 : body_at], data[body_at:end]
    if kind == JSON_TYPE:
        return decode_json(header, body)
    if kind == BINARY_TYPE:
        return decode_binary(header, body)
    raise FrameError(f"header form {kind} is unknown: 0 is JSON, 1 is binary")


def size_error(size: int, limit: int) -> FrameError:
    """What to say of a frame's length field that is out of bounds."""
    if size > limit:
        return FrameError(f"frame of {size} bytes; the limit is {limit}")
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
    return FrameError(f"header of more than {FIELDS_MAX} fields, the limit")


def _text(raw: bytes) -> str:
    """A header field as text: the text itself, or the number, boolean, list or object as it was written."""
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
        raise FrameError(f"binary header: {what} of {size} bytes at {at}, but the header ends at {len(data)}")
    return data[at : at + size], at + size


def _decode_fields(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    at, end, count = 0, len(data), 0
    while at < end:
        count += 1
        if count > FIELDS_MAX:
            raise _too_many_fields()
        if at + 2 > end:
            raise FrameError(f"binary header: a field is cut off at {at} of {end}")
        key, at = _slice(data, at + 2, int.from_bytes(data[at : at + 2], signed=True), "field name")
        if at + 4 > end:
            raise FrameError(f"binary header: field {key[:40]!r} has no value")
        value, at = _slice(data, at + 4, int.from_bytes(data[at : at + 4], signed=True), "field value")
        fields[key.decode()] = value.decode()
    return fields


# ── Encoding ────────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(command: Command) -> bytes:
    """The whole frame. Raises LocalProtocolError for what the chosen header form can't carry."""
    return encode_head(command, len(command.body)) + command.body


def encode_head(command: Command, body_size: int) -> bytes:
    """The frame up to its body, for a body of `body_size` bytes that is sent separately."""
    if command.ext is not None and len(command.ext) > FIELDS_MAX:
        raise LocalProtocolError(f"header of {len(command.ext)} fields; the limit is {FIELDS_MAX}")
    try:
        header = encode_binary(command) if command.binary else encode_json(command)
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"text that is not valid Unicode can't be sent: {error}") from None
    size = len(header)
    if size > HEADER_SIZE_MAX:
        raise LocalProtocolError(f"header of {size} bytes; the limit is {HEADER_SIZE_MAX}")
    if 4 + size + body_size > LENGTH_MAX:
        raise LocalProtocolError(f"body of {body_size} bytes; a frame has room for {LENGTH_MAX} with its header")
    return b"%b%b" % (_pack_sizes(4 + size + body_size, size | command.binary << 24), header)


_pack_sizes = struct.Struct(">iI").pack


def encode_json(command: Command) -> bytes:
    """The JSON header, its keys in Java's order."""
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
    """The binary header. Raises LocalProtocolError for a code or version beyond 16 bits."""
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
        raise LocalProtocolError(f"code {command.code} can't travel in a binary header: {error}; use JSON") from None
    return b"%b%b%b%b" % (head, remark, len(fields).to_bytes(4), fields)


def _encode_field(item: tuple[str, str]) -> bytes:
    key, value = item[0].encode(), item[1].encode()
    if len(key) > 0x7FFF:
        raise LocalProtocolError(f"header field name of {len(key)} bytes; the binary header allows 32767")
    return b"%b%b%b%b" % (len(key).to_bytes(2), key, len(value).to_bytes(4), value)


def response_fields(**fields: Any) -> dict[str, str]:
    """Header fields from keyword arguments: None left out, booleans and numbers as Java writes them."""
    return {key: _java_text(value) for key, value in fields.items() if value is not None}


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
