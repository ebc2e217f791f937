"""Java's `.properties` format, used by broker.conf, namesrv.conf and config requests.

The rules of java.util.Properties: `key=value`, `key:value` or `key value`; `#` and `!` start comment lines; a backslash
at the end of a line joins it with the next; `\\t \\n \\r \\f \\uXXXX` and escaped separators.
"""

from collections.abc import Mapping

from kourou.protocol.errors import BodyError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def loads(text: str) -> dict[str, str]:
    """Parse properties; the last value of a repeated key counts. Raises BodyError for an invalid escape."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def dumps(properties: Mapping[str, str]) -> str:
    """`key=value` lines, sorted by key, without escapes: the format of Apache's answers to config requests."""
    return "".join(f"{key}={value}\n" for key, value in sorted(properties.items()))


def dumps_escaped(properties: Mapping[str, str]) -> str:
    """`key=value` lines with escapes, so that `loads` returns the same values."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in sorted(properties.items()))


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        line = pending + line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            lines.append(line)
            pending = ""
    if pending:
        lines.append(pending)
    return lines


def _split(line: str) -> tuple[str, str]:
    at = 0
    while at < len(line) and line[at] not in "=:" + _BLANKS:
        at += 2 if line[at] == "\\" else 1
    key, rest = line[:at], line[at:].lstrip(_BLANKS)
    return key, rest[1:].lstrip(_BLANKS) if rest[:1] in ("=", ":") else rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char != "\\":
            out.append(char)
            at += 1
            continue
        char = text[at + 1 : at + 2]
        at += 2
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise BodyError(f"invalid escape \\u{digits} in properties")
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, is_key: bool = False) -> str:
    for char, escaped in (("\\", "\\\\"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\f", "\\f")):
        text = text.replace(char, escaped)
    if is_key:
        for char in "=: #!":
            text = text.replace(char, "\\" + char)
    elif text.startswith(" "):
        text = "\\" + text
    return text
