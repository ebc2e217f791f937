"""The filter language of lists, tail and redriving: one line, terms that must all match. Pure, and linear in its input.

    paid "two words" body~"Lyon" -test          texts in the body, in any case; -: must not match
    tag:paid key:42 id:C0A8… queue:3 broker:a   parts of the message
    amount>100 city=Lyon user.name~smith        properties, or fields of a JSON body
    retries>0 size>=1000                        numbers of the message

There are no patterns and no scripts: a term is compared once, and a body is decoded at most once.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kourou.client import Delivery
from kourou.console.errors import ConsoleError
from kourou.console.limits import FIELD_BODY_SIZE_MAX, FILTER_TERMS_MAX, QUERY_TEXT_MAX
from kourou.protocol.errors import BodyError

OPERATORS: Final = (">=", "<=", "!=", "~", ">", "<", "=", ":")
NAME: Final = re.compile(r"[A-Za-z_][\w.\-]*")

_ABSENT: Final = object()


class Term(msgspec.Struct, frozen=True):
    """One term. Without a name it is a text in the body."""

    name: str
    operator: str
    value: str
    is_negated: bool = False


class Subject:
    """A message for filters: its body is decoded at most once, when a term needs it."""

    __slots__ = ("_fields", "_text", "message")

    def __init__(self, message: Delivery) -> None:
        self.message = message
        self._text: str | None = None
        self._fields: Any = _ABSENT

    @property
    def text(self) -> str:
        """The body in lower case."""
        if self._text is None:
            try:
                self._text = self.message.body.decode("utf-8", "replace").lower()
            except BodyError:
                self._text = ""
        return self._text

    def field(self, path: str) -> Any:
        """A field of a JSON body."""
        if self._fields is _ABSENT:
            self._fields = None
            try:
                body = self.message.body
                if len(body) <= FIELD_BODY_SIZE_MAX and body[:1] in (b"{", b" ", b"\n"):
                    self._fields = msgspec.json.decode(body)
            except (BodyError, msgspec.DecodeError, RecursionError):
                pass
        found = self._fields
        for part in path.split("."):
            found = found.get(part, _ABSENT) if isinstance(found, dict) else _ABSENT
        return found


class Filter:
    """A filter; `parse` creates it."""

    def __init__(self, terms: tuple[Term, ...]) -> None:
        self.terms = terms
        self._tests = [_test(term) for term in terms]

    def matches(self, message: Delivery) -> bool:
        subject = Subject(message)
        return all(test(subject) for test in self._tests)


ALL: Final = Filter(())


def parse(text: str) -> Filter:
    """Parses a filter. Raises ConsoleError with the position of the mistake."""
    if len(text) > QUERY_TEXT_MAX:
        raise _wrong(f"a filter has at most {QUERY_TEXT_MAX} characters", QUERY_TEXT_MAX)
    terms: list[Term] = []
    at = 0
    while (at := _skip(text, at)) < len(text):
        if len(terms) == FILTER_TERMS_MAX:
            raise _wrong(f"a filter has at most {FILTER_TERMS_MAX} terms", at)
        term, at = _term(text, at)
        terms.append(term)
    return Filter(tuple(terms)) if terms else ALL


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _term(text: str, at: int) -> tuple[Term, int]:
    start = at
    is_negated = text[at] == "-" and at + 1 < len(text) and not text[at + 1].isspace()
    at += is_negated
    name = NAME.match(text, at)
    if name is not None:
        operator = next((one for one in OPERATORS if text.startswith(one, name.end())), None)
        if operator is not None:
            value, end = _value(text, name.end() + len(operator))
            if not value and operator not in ("=", "!="):
                raise _wrong(f"a value is missing after {name[0]}{operator}", end)
            return _checked(Term(name[0], operator, value, is_negated), start), end
    value, end = _value(text, at)
    if not value:
        raise _wrong("a text is expected", at)
    return Term("", "~", value, is_negated), end


def _value(text: str, at: int) -> tuple[str, int]:
    """A word, or a text in double quotes, where a backslash lets the next character be itself."""
    if text[at : at + 1] != '"':
        end = at
        while end < len(text) and not text[end].isspace():
            end += 1
        return text[at:end], end
    parts: list[str] = []
    position = at + 1
    while position < len(text):
        character = text[position]
        if character == '"':
            return "".join(parts), position + 1
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = text[position]
        parts.append(character)
        position += 1
    raise _wrong("the closing quotation mark is missing", at)


def _checked(term: Term, at: int) -> Term:
    if term.name in _NUMBERS and (term.operator == "~" or _number(term.value) is None):
        raise _wrong(f"{term.name} is compared with a number, as in {term.name}>0", at)
    if term.operator == ":" and term.name not in (*_PARTS, *_NUMBERS, "body"):
        known = ", ".join((*_PARTS, *_NUMBERS))
        raise _wrong(f"{term.name}: is not a part of a message ({known}); fields are compared as {term.name}=value", at)
    return term


def _wrong(text: str, at: int) -> ConsoleError:
    return ConsoleError("bad_filter", text, "see the examples beside the field", {"at": at})


# ── Tests ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _tag(message: Delivery) -> list[str]:
    return [message.tag or ""]


def _ids(message: Delivery) -> list[str]:
    return [message.message_id, message.offset_id]


_PARTS: Final[dict[str, Callable[[Delivery], list[str]]]] = {
    "tag": _tag,
    "key": lambda message: message.keys,
    "id": _ids,
    "broker": lambda message: [message.queue.broker_name],
    "topic": lambda message: [message.topic],
}
_NUMBERS: Final[dict[str, Callable[[Delivery], int]]] = {
    "queue": lambda message: message.queue_id,
    "offset": lambda message: message.queue_offset,
    "retries": lambda message: message.reconsume_times,
    "size": lambda message: len(message.record.body),
    "stored": lambda message: message.stored_ms,
}


def _test(term: Term) -> Callable[[Subject], bool]:
    test = _positive(term)
    return (lambda subject: not test(subject)) if term.is_negated else test


def _positive(term: Term) -> Callable[[Subject], bool]:
    value, operator = term.value, term.operator
    if term.name in ("", "body") and operator in ("~", ":", "="):
        wanted = value.lower()
        return lambda subject: wanted in subject.text
    if term.name in _NUMBERS:
        read = _NUMBERS[term.name]
        return lambda subject: compare(read(subject.message), operator, value)
    if term.name in _PARTS and operator in (":", "=", "~", "!="):
        part = _PARTS[term.name]
        if operator == "!=":
            return lambda subject: not any(compare(one, "=", value) for one in part(subject.message))
        sign = "=" if operator == ":" else operator
        return lambda subject: any(compare(one, sign, value) for one in part(subject.message))
    return lambda subject: _compare_field(subject, term)


def _compare_field(subject: Subject, term: Term) -> bool:
    found: Any = subject.message.properties.get(term.name, _ABSENT)
    if found is _ABSENT:
        found = subject.field(term.name)
    if found is _ABSENT:
        return term.operator == "!="
    return compare(found, term.operator, term.value)


def compare(found: Any, operator: str, value: str) -> bool:
    """Compares as numbers if both are numbers, otherwise as texts; `~`: contains, in any case."""
    if operator == "~":
        return value.lower() in _text(found).lower()
    left, right = _number(found), _number(value)
    if left is not None and right is not None:
        return _ordered(left, right, operator)
    return _ordered(_text(found), value, operator)


def _ordered(left: Any, right: Any, operator: str) -> bool:
    match operator:
        case "=" | ":":
            return bool(left == right)
        case "!=":
            return bool(left != right)
        case ">":
            return bool(left > right)
        case ">=":
            return bool(left >= right)
        case "<":
            return bool(left < right)
        case _:
            return bool(left <= right)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is True or value is False:
        return "true" if value else "false"
    return "null" if value is None else msgspec.json.encode(value).decode()


def _number(value: Any) -> int | float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str) or len(value) > 40 or not _IS_NUMBER(value):
        return None
    return float(value) if "." in value or "e" in value.lower() else int(value)


_IS_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(\.[0-9]{1,17})?([eE][+-]?[0-9]{1,3})?", re.ASCII).fullmatch
