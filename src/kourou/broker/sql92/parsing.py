"""From the text of an SQL92 expression to its tree.

    whole := or                       what follows is ignored, except that the next token must be a valid one
    or    := and (OR and)*
    and   := eq (AND eq)*
    eq    := cmp (('=' | '<>') cmp | IS [NOT] NULL)*
    cmp   := un (('>' | '>=' | '<' | '<=') un | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) TEXT
                | [NOT] BETWEEN un AND un | [NOT] IN '(' TEXT (',' TEXT)* ')')*
    un    := ('+' | '-' | NOT) un | literal | ID | '(' or ')'

The parser does not recurse: what is unfinished at each level of parentheses is in a list, so a thousand opening
parentheses do not exhaust the stack.
"""

from typing import Final

from kourou.broker.sql92 import numbers, syntax
from kourou.broker.sql92.syntax import DEPTH_MAX, LENGTH_MAX, STEPS_MAX, Constant, ExpressionError, Node, Type
from kourou.broker.sql92.tokens import FLOAT, ID, INTEGER, TEXT, Tokens

_ORDERS: Final = frozenset((">", ">=", "<", "<="))
_SEARCHES: Final = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_WORDS: Final[dict[str, Constant]] = {"TRUE": syntax.TRUE, "FALSE": syntax.FALSE, "NULL": syntax.NULL}


class _Pending:
    """A comparison that waits for its right side."""

    __slots__ = ("left", "low", "sign")

    def __init__(self, sign: str, left: Node) -> None:
        self.sign = sign  # an order, BETWEEN or NOT BETWEEN; = or <>
        self.left = left
        self.low: Node | None = None  # of BETWEEN, once it was read


class _Level:
    """The unfinished nodes between two parentheses."""

    __slots__ = ("choices", "compared", "equated", "joined", "prefixes")

    def __init__(self) -> None:
        self.prefixes: list[str] = []  # before the next operand: - and NOT
        self.compared: _Pending | None = None
        self.equated: _Pending | None = None
        self.joined: list[Node] = []  # by AND
        self.choices: list[Node] = []  # by OR


def parse(text: str) -> syntax.Condition:
    """Raises ExpressionError."""
    if len(text) > LENGTH_MAX:
        raise ExpressionError(f"the expression has {len(text)} characters, the limit is {LENGTH_MAX} (LENGTH_MAX)")
    return syntax.condition(_Parser(Tokens(text)).parse())


class _Parser:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._levels = [_Level()]

    def parse(self) -> Node:
        node: Node | None = None
        while True:
            if node is None:
                node = self._operand()
            node = self._after_operand(self._levels[-1], node)
            if node is None:
                continue
            self._levels.pop()
            if not self._levels:
                return node
            self._tokens.take(")")

    def _operand(self) -> Node:
        """The next literal or property. Signs and parentheses before it are noted."""
        tokens = self._tokens
        while True:
            kind = tokens.kind
            if kind == "(":
                self._levels.append(_Level())
            elif kind in ("-", "NOT"):
                self._levels[-1].prefixes.append(kind)
            elif kind != "+":
                node = _primary(tokens)
                tokens.advance()
                return node
            tokens.advance()

    def _after_operand(self, level: _Level, node: Node) -> Node | None:
        """Continue after an operand, to the end of this level, which is then a node, or to the next operand (None)."""
        while level.prefixes:
            node = syntax.negative(node) if level.prefixes.pop() == "-" else syntax.negation(node)
        if level.compared is not None:
            pending = level.compared
            if pending.sign.endswith("BETWEEN") and pending.low is None:
                self._tokens.take("AND")
                pending.low = node
                return None
            level.compared = None
            node = _within_limits(_comparison(pending, node))
        compared = self._comparisons(level, node)
        return None if compared is None else self._after_comparisons(level, compared)

    def _comparisons(self, level: _Level, node: Node) -> Node | None:
        """What may follow a `un`. None: another `un` is expected."""
        tokens = self._tokens
        while True:
            is_not = tokens.kind == "NOT"
            if is_not:
                tokens.advance()
            kind = tokens.kind
            if kind in _SEARCHES:
                tokens.advance()
                node = _within_limits(syntax.search(kind, node, _unquoted(tokens.take(TEXT)), is_not=is_not))
            elif kind == "IN":
                tokens.advance()
                node = syntax.membership(node, self._texts(), is_not=is_not)
            elif kind == "BETWEEN" or (kind in _ORDERS and not is_not):
                tokens.advance()
                level.compared = _Pending("NOT BETWEEN" if is_not else kind, node)
                return None
            elif is_not:
                raise ExpressionError(f"{tokens} after NOT: an operator such as IN or BETWEEN is expected")
            else:
                return node

    def _after_comparisons(self, level: _Level, node: Node) -> Node | None:
        """What may follow a `cmp`. None: another operand is expected."""
        tokens = self._tokens
        if level.equated is not None:
            equal = syntax.equal(level.equated.left, node)
            node = _within_limits(equal if level.equated.sign == "=" else syntax.negation(equal))
            level.equated = None
        while tokens.kind == "IS":
            node = _within_limits(self._is_null(node))
        if tokens.kind in ("=", "<>"):
            level.equated = _Pending(tokens.kind, node)
            tokens.advance()
            return None
        level.joined.append(node)
        if tokens.kind == "AND":
            tokens.advance()
            return None
        level.choices.append(_within_limits(syntax.all_of(level.joined)))
        level.joined = []
        if tokens.kind == "OR":
            tokens.advance()
            return None
        return _within_limits(syntax.any_of(level.choices))

    def _is_null(self, node: Node) -> Node:
        tokens = self._tokens
        tokens.take("IS")
        is_not = tokens.kind == "NOT"
        if is_not:
            tokens.advance()
        tokens.take("NULL")
        null = syntax.is_null(node)
        return syntax.negation(null) if is_not else null

    def _texts(self) -> frozenset[str]:
        tokens = self._tokens
        tokens.take("(")
        texts = [_unquoted(tokens.take(TEXT))]
        while tokens.kind == ",":
            tokens.advance()
            texts.append(_unquoted(tokens.take(TEXT)))
        tokens.take(")")
        return frozenset(texts)


def _within_limits(node: Node) -> Node:
    if node.depth > DEPTH_MAX:
        raise ExpressionError(f"the expression is nested deeper than {DEPTH_MAX} levels (DEPTH_MAX)")
    if node.steps > STEPS_MAX:
        raise ExpressionError(f"the expression needs {node.steps} steps, the limit is {STEPS_MAX} (STEPS_MAX)")
    return node


def _comparison(pending: _Pending, right: Node) -> Node:
    if pending.low is None:
        return syntax.order(pending.sign, pending.left, right)
    make = syntax.between if pending.sign == "BETWEEN" else syntax.not_between
    return make(pending.left, pending.low, right)


def _primary(tokens: Tokens) -> Node:
    kind = tokens.kind
    if kind == ID:
        return syntax.Property(tokens.text)
    if kind == TEXT:
        return Constant(_unquoted(tokens.text), Type.TEXT)
    if kind == INTEGER:
        return _integer(tokens)
    if kind == FLOAT:
        return _float(tokens)
    if kind in _WORDS:
        return _WORDS[kind]
    raise ExpressionError(f"{tokens}: a property, a number, a text, TRUE, FALSE or NULL is expected")


def _integer(tokens: Tokens) -> Constant:
    try:
        value = numbers.long_of(tokens.text.rstrip("lL"))
    except ValueError:
        raise ExpressionError(f"{tokens} exceeds {numbers.LARGEST_LONG}") from None
    return Constant(value, Type.INT if value <= numbers.LARGEST_INT else Type.LONG)


def _float(tokens: Tokens) -> Constant:
    """Apache refuses zero, because it is less than the smallest positive number."""
    value = numbers.double_of(tokens.text)
    if value == float("inf") or not value:
        raise ExpressionError(f"{tokens}: a number with a fraction is between 4.9e-324 and 1.7976931348623157e308")
    return Constant(value, Type.DOUBLE)


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
