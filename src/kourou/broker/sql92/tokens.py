"""Tokens of SQL92 expressions, read one at a time: text that the parser never reaches may be anything.

    blanks          space, tab, line feed, carriage return, form feed
    comments        -- up to the end of the line; /* up to */
    NOT AND …       keywords, in any case
    ID              ASCII letters, digits, _ and $, not beginning with a digit; case matters
    INTEGER         0, or digits that begin with another digit; then l or L, which means nothing
    FLOAT           5.5  5.  .5  5e3
    TEXT            'it''s'
    = <> > >= < <= ( ) , + -

The longest token wins. A `--` without an end of line after it is two minus signs, because that is how Apache's
grammar defines comments.
"""

import re
from typing import Final

from kourou.broker.sql92.syntax import TOKENS_MAX, ExpressionError

END: Final = "the end"
ID: Final = "ID"
INTEGER: Final = "INTEGER"
FLOAT: Final = "FLOAT"
TEXT: Final = "TEXT"

KEYWORDS: Final = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()  # noqa: SIM905
)

_BLANKS: Final = re.compile("[ \t\n\r\f]*")
_TOKEN: Final = re.compile(
    r"(?P<FLOAT>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<INTEGER>0|[1-9][0-9]*[lL]?)"
    r"|(?P<TEXT>'[^']*(?:''[^']*)*')"
    r"|(?P<ID>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<SIGN><>|<=|>=|[=<>(),+-])"
)


class Tokens:
    """The tokens of a text: one of them is current.

    `kind` is a keyword in capitals, a sign, or one of ID, INTEGER, FLOAT, TEXT, END. Reading raises ExpressionError
    for a character that begins no token.
    """

    __slots__ = ("_before", "_count", "_last_line_end", "_next", "_text", "kind", "text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._before = 0  # characters before the current token
        self._next = 0  # characters before the next one
        self._count = 0
        self._last_line_end = max(text.rfind("\n"), text.rfind("\r"))
        self.kind = END
        self.text = ""
        self.advance()

    def __str__(self) -> str:
        """The current token in an error."""
        return f"{self.text[:40]!r} at character {self._before + 1}" if self.text else "the end of the expression"

    def advance(self) -> None:
        """Move to the next token."""
        at = self._before = self._skip()
        found = _TOKEN.match(self._text, at)
        if found is None:
            if at < len(self._text):
                raise ExpressionError(_misfit(self._text, at))
            self.kind, self.text = END, ""
            return
        self._next = found.end()
        self.text = text = found.group()
        kind = found.lastgroup
        if kind == "SIGN":
            kind = text
        elif kind == "ID" and (word := text.upper()) in KEYWORDS:
            kind = word
        self.kind = kind or END

    def take(self, kind: str) -> str:
        """The text of the current token, which must be of this kind; then the next one is current."""
        if self.kind != kind:
            wanted = "a text in single quotes" if kind == TEXT else kind
            raise ExpressionError(f"{self}: {wanted} is expected")
        text = self.text
        self.advance()
        return text

    def _skip(self) -> int:
        """Where the next token begins."""
        text, at = self._text, self._next
        while True:
            self._count += 1
            if self._count > TOKENS_MAX:
                raise ExpressionError(f"the expression has more than {TOKENS_MAX} words and signs (TOKENS_MAX)")
            blanks = _BLANKS.match(text, at)
            assert blanks is not None
            at = blanks.end()
            if text.startswith("--", at) and at < self._last_line_end:
                ends = [end for line_end in "\n\r" if (end := text.find(line_end, at)) >= 0]
                at = min(ends) + 1
            elif text.startswith("/*", at) and (end := text.find("*/", at + 2)) >= 0:
                at = end + 2
            else:
                return at


def _misfit(text: str, at: int) -> str:
    if text[at] == "'":
        return f"the string that begins at character {at + 1} has no closing quote"
    if text.startswith("/*", at):
        return f"the comment that begins at character {at + 1} has no end"
    return f"{text[at]!r} at character {at + 1} does not belong in an expression"
