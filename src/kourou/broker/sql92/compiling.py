"""From the tree of an SQL92 expression to a function.

A condition becomes a function of `get`, which gives the text of a property or None. It returns True, False or None
(null) and raises EvaluationError or another ValueError where Apache's evaluation throws. Each is called at most once
per evaluation, so an evaluation takes no more steps than the tree has (`Expression.steps`).
"""

import operator
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar

from kourou.broker.sql92 import numbers
from kourou.broker.sql92.parsing import parse
from kourou.broker.sql92.syntax import (
    NUMBERS,
    AllOf,
    AnyOf,
    Cast,
    Condition,
    Constant,
    Equal,
    ExpressionError,
    In,
    IsNull,
    Node,
    Not,
    Nothing,
    Operand,
    Order,
    Property,
    Search,
    Type,
    Value,
)

CACHED_MAX: Final = 100
"""Texts whose expressions, or errors, are kept. Apache keeps as many."""

Get: TypeAlias = Callable[[str], str | None]
Evaluate: TypeAlias = Callable[[Get], bool | None]
V = TypeVar("V")


class EvaluationError(ValueError):
    """Values that can't be compared."""


class Expression:
    """A compiled expression."""

    __slots__ = ("_evaluate", "steps", "text")

    def __init__(self, text: str, evaluate: Evaluate, steps: int) -> None:
        self.text = text
        self.steps = steps  # that an evaluation takes at most
        self._evaluate = evaluate

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, false or null. Raises ValueError: values can't be compared, or are not numbers."""
        return self._evaluate(properties.get)

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Does a message with these properties pass? Null and errors do not."""
        try:
            return self._evaluate(properties.get) is True
        except ValueError:
            return False


def compile_expression(text: str) -> Expression:
    """Raises ExpressionError."""
    tree = parse(text)
    return Expression(text, _condition(tree), max(tree.steps, 1))


class Compiler:
    """Compiles expressions; the last CACHED_MAX texts are kept, with those that do not compile."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Expression | ExpressionError] = OrderedDict()

    def compile(self, text: str) -> Expression:
        """Raises ExpressionError."""
        found = self._known.get(text)
        if found is None:
            found = self._compile(text)
        else:
            self._known.move_to_end(text)
        if isinstance(found, ExpressionError):
            raise ExpressionError(str(found))
        return found

    def _compile(self, text: str) -> Expression | ExpressionError:
        try:
            found: Expression | ExpressionError = compile_expression(text)
        except ExpressionError as error:
            found = error.with_traceback(None)
        self._known[text] = found
        if len(self._known) > CACHED_MAX:
            self._known.popitem(last=False)
        return found


# ── Conditions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _condition(node: Condition) -> Evaluate:
    match node:
        case Constant(value):
            assert value is None or isinstance(value, bool)
            return _always(value)
        case Cast(name):
            return lambda get: None if get(name) is None else False
        case Not(inner):
            return _not(_condition(inner))
        case AllOf(inners):
            return _all_of([_condition(inner) for inner in inners])
        case AnyOf(inners):
            return _any_of([_condition(inner) for inner in inners])
        case Equal(left, right):
            return _equal(left, right)
        case IsNull(inner_node):
            value_of = _value(inner_node)
            return lambda get: value_of(get) is None
        case Order():
            return _order(node)
        case Search():
            return _search(node)
        case In(name, texts, is_not):
            return lambda get: None if (text := get(name)) is None else (text in texts) is not is_not


def _always(value: V) -> Callable[[Get], V]:
    def evaluate(_: Get) -> V:
        return value

    return evaluate


def _not(condition: Evaluate) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        value = condition(get)
        return None if value is None else not value

    return evaluate


def _all_of(conditions: list[Evaluate]) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        result: bool | None = True
        for condition in conditions:
            value = condition(get)
            if value is False:
                return False
            if value is None:
                result = None
        return result

    return evaluate


def _any_of(conditions: list[Evaluate]) -> Evaluate:
    def evaluate(get: Get) -> bool | None:
        result: bool | None = False
        for condition in conditions:
            value = condition(get)
            if value is True:
                return True
            if value is None:
                result = None
        return result

    return evaluate


_FINDERS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": lambda text, wanted: wanted in text,
    "STARTSWITH": lambda text, wanted: text.startswith(wanted),
    "ENDSWITH": lambda text, wanted: text.endswith(wanted),
}


def _search(node: Search) -> Evaluate:
    wanted, is_not, value_of = node.text, node.is_not, _value(node.node)
    if not wanted:
        return _always(False)
    finds = _FINDERS[node.how]

    def evaluate(get: Get) -> bool:
        value = value_of(get)
        return isinstance(value, str) and finds(value, wanted) is not is_not

    return evaluate


def _value(node: Node) -> Callable[[Get], Value]:
    """The value of any node."""
    match node:
        case Property(name):
            return lambda get: get(name)
        case Constant(value):
            return _always(value)
        case Nothing(condition):
            return _nothing(condition)
        case _:
            return _condition(node)


def _nothing(condition: Condition | None) -> Callable[[Get], None]:
    if condition is None:
        return _always(None)
    evaluate_first = _condition(condition)

    def evaluate(get: Get) -> None:
        evaluate_first(get)

    return evaluate


# ── Equality ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _equal(left: Node, right: Node) -> Evaluate:
    """Null on both sides is equal, null on the left alone gives null, null on the right alone is not equal."""
    match left, right:
        case Property(name), Constant(str() as wanted):
            return lambda get: None if (text := get(name)) is None else text == wanted
        case Property(name), Constant(number, kind) if kind in NUMBERS:
            parse_text = _PARSERS[kind]
            return lambda get: None if (text := get(name)) is None else parse_text(text) == number
    left_of, right_of, is_same = _value(left), _value(right), _sameness(_type(left), _type(right))

    def evaluate(get: Get) -> bool | None:
        first, second = left_of(get), right_of(get)
        if first is None:
            return True if second is None else None
        return second is not None and is_same(first, second)

    return evaluate


def _type(node: Node) -> Type:
    match node:
        case Constant(_, kind):
            return kind
        case Property():
            return Type.TEXT
        case Nothing():
            return Type.NULL
        case _:
            return Type.BOOLEAN


_PARSERS: Final[dict[Type, Callable[[str], int | float]]] = {
    Type.INT: numbers.int_of,
    Type.LONG: numbers.long_of,
    Type.DOUBLE: numbers.double_of,
}


def _sameness(left: Type, right: Type) -> Callable[[Value, Value], bool]:
    """Are two values of these types, neither of which is null, equal?"""
    if left is Type.TEXT and right in NUMBERS:
        parse_text = _PARSERS[right]
        return lambda text, number: parse_text(str(text)) == number
    if left in NUMBERS and right is Type.TEXT:
        parse_text = _PARSERS[left]
        return lambda number, text: number == parse_text(str(text))
    if left is Type.TEXT and right is Type.BOOLEAN:
        return lambda text, value: (str(text).lower() == "true") is value
    if left is Type.BOOLEAN and right is Type.TEXT:
        return _incomparable
    if (left is Type.BOOLEAN) is not (right is Type.BOOLEAN):
        return _differ
    if Type.DOUBLE in (left, right) and left is not right:
        return lambda first, second: first is not None and second is not None and float(first) == float(second)
    return operator.eq


def _differ(_: Value, __: Value) -> bool:
    return False


def _incomparable(value: Value, text: Value) -> bool:
    raise EvaluationError(f"{value} on the left can't be compared with the text {str(text)[:40]!r} on the right")


# ── Order ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

_MIRRORED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}

Compare: TypeAlias = Callable[[float, float], bool]

_INTEGERS: Final[dict[str, Compare]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}

_DOUBLES: Final[dict[str, Compare]] = {
    ">": lambda text, constant: not text <= constant,
    ">=": lambda text, constant: not text < constant,
    "<": operator.lt,
    "<=": operator.le,
}
"""Of a text and a constant, which is neither zero nor NaN. NaN exceeds all numbers."""

_SIGNS_OF_ORDER: Final[dict[str, Callable[[int], bool]]] = {
    ">": lambda order: order > 0,
    ">=": lambda order: order >= 0,
    "<": lambda order: order < 0,
    "<=": lambda order: order <= 0,
}


def _order(node: Order) -> Evaluate:
    """A null gives null; the right side is not evaluated if the left one is null."""
    left, right, sign = node.left, node.right, node.sign
    match left, right:
        case Property(name), Constant(number, kind):
            return _text_against(name, number, kind, sign)
        case Constant(number, kind), Property(name):
            return _text_against(name, number, kind, _MIRRORED[sign])
        case Property(first), Property(second):
            return _texts_in_order(first, second, sign)
        case Constant(first_number, first_kind), Constant(second_number, second_kind):
            assert isinstance(first_number, (int, float)) and isinstance(second_number, (int, float))
            if Type.DOUBLE in (first_kind, second_kind):
                first_number, second_number = float(first_number), float(second_number)
            return _always(_INTEGERS[sign](first_number, second_number))
        case _:
            return _null_in_order(left, right)


def _text_against(name: str, number: Value, kind: Type, sign: str) -> Evaluate:
    assert isinstance(number, (int, float))
    constant: float = number
    parse_text = _PARSERS[kind]
    compare = (_DOUBLES if kind is Type.DOUBLE else _INTEGERS)[sign]
    return lambda get: None if (text := get(name)) is None else compare(parse_text(text), constant)


def _texts_in_order(first: str, second: str, sign: str) -> Evaluate:
    has_sign = _SIGNS_OF_ORDER[sign]

    def evaluate(get: Get) -> bool | None:
        left, right = get(first), get(second)
        if left is None or right is None:
            return None
        return has_sign(_compare(numbers.double_of(left), numbers.double_of(right)))

    return evaluate


def _compare(left: float, right: float) -> int:
    """Java's order of doubles: -0.0 comes before 0.0, and NaN, which equals itself, after all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right:
        return 0 if left else _sign_of_zero(left) - _sign_of_zero(right)
    return (left != left) - (right != right)


def _sign_of_zero(zero: float) -> int:
    return -1 if str(zero)[0] == "-" else 0


def _null_in_order(left: Operand, right: Operand) -> Evaluate:
    left_of, right_of = _value(left), _value(right)

    def evaluate(get: Get) -> None:
        if left_of(get) is not None:
            right_of(get)

    return evaluate
