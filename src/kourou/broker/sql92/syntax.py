"""The tree of an SQL92 expression, and the rules by which it is built.

An operand is a property, a constant, or null; everything else is a condition, whose value is true, false or null.
The functions build conditions and raise ExpressionError for combinations that Apache does not compile.

Conditions are kept flat where that changes no value: chains of AND and OR become one node each, NOT of NOT goes, and a
sign becomes part of its number. So an expression of a thousand terms is not a thousand levels deep.

Java: ComparisonExpression, LogicExpression, UnaryExpression, ConstantExpression.
"""

import enum
from dataclasses import dataclass
from typing import Final, TypeAlias

LENGTH_MAX: Final = 32_768
"""Characters of an expression."""

TOKENS_MAX: Final = 4_096
"""Words, numbers, texts, signs and comments of an expression."""

DEPTH_MAX: Final = 128
"""Conditions inside of conditions: each level is a call when the expression is evaluated."""

STEPS_MAX: Final = 1_000
"""Steps of an evaluation: one for each condition, CONTAINS_STEPS for a CONTAINS, which may search 32 KiB of text."""

CONTAINS_STEPS: Final = 20


class ExpressionError(ValueError):
    """The expression does not compile."""


class Type(enum.Enum):
    """The type of a constant. Texts are compared with a number as numbers of its type."""

    INT = enum.auto()
    LONG = enum.auto()
    DOUBLE = enum.auto()
    TEXT = enum.auto()
    BOOLEAN = enum.auto()
    NULL = enum.auto()


NUMBERS: Final = frozenset({Type.INT, Type.LONG, Type.DOUBLE})

Value: TypeAlias = str | int | float | bool | None


@dataclass(slots=True, eq=False)
class Constant:
    """A literal, or a number with a minus sign, which is not a literal in the rules below."""

    value: Value
    type: Type
    is_literal: bool = True
    depth: int = 0
    steps: int = 0


@dataclass(slots=True, eq=False)
class Property:
    """The text of a property, or null if the message does not have it."""

    name: str
    depth: int = 0
    steps: int = 0


@dataclass(slots=True, eq=False)
class Nothing:
    """Null: a minus sign before something other than a number. A condition is evaluated first: it may fail."""

    condition: "Condition | None"
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class Cast:
    """A property as a condition: null if it is missing, otherwise false, because its value is a text."""

    name: str
    depth: int = 1
    steps: int = 1


@dataclass(slots=True, eq=False)
class Not:
    condition: "Condition"
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class AllOf:
    """Conditions joined by AND."""

    conditions: list["Condition"]
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class AnyOf:
    """Conditions joined by OR."""

    conditions: list["Condition"]
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class Equal:
    left: "Node"
    right: "Node"
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class IsNull:
    node: "Node"
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class Order:
    """`>`, `>=`, `<` or `<=`."""

    sign: str
    left: "Operand"
    right: "Operand"
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class Search:
    """CONTAINS, STARTSWITH or ENDSWITH, or NOT and one of them."""

    how: str
    node: "Node"
    text: str
    is_not: bool
    depth: int
    steps: int


@dataclass(slots=True, eq=False)
class In:
    """IN, or NOT IN."""

    name: str
    texts: frozenset[str]
    is_not: bool
    depth: int = 1
    steps: int = 1


Operand: TypeAlias = Constant | Property | Nothing
Condition: TypeAlias = Constant | Cast | Not | AllOf | AnyOf | Equal | IsNull | Order | Search | In
Node: TypeAlias = Operand | Condition

TRUE: Final = Constant(True, Type.BOOLEAN)
FALSE: Final = Constant(False, Type.BOOLEAN)
NULL: Final = Constant(None, Type.NULL)


def condition(node: Node) -> Condition:
    """The node as an operand of AND, OR or NOT, or as a whole expression."""
    if isinstance(node, Property):
        return Cast(node.name)
    if isinstance(node, Nothing) or (isinstance(node, Constant) and node.type not in (Type.BOOLEAN, Type.NULL)):
        raise ExpressionError(f"{shown(node)} is neither true nor false")
    return node


def negative(node: Node) -> Operand:
    """A minus sign."""
    if isinstance(node, Constant) and node.type in NUMBERS:
        assert isinstance(node.value, (int, float))
        return Constant(-node.value, node.type, is_literal=False)
    if isinstance(node, (Constant, Property)):
        return Nothing(None, 0, 0)
    if isinstance(node, Nothing):
        return node
    return Nothing(node, node.depth + 1, node.steps)


def negation(node: Node) -> Condition:
    """NOT. Two of them go, except before a literal: `NOT NOT NULL` can be compared, NULL can't."""
    inner = condition(node)
    if isinstance(inner, Not) and not isinstance(inner.condition, Constant):
        return inner.condition
    return Not(inner, inner.depth + 1, inner.steps + 1)


def all_of(nodes: list[Node]) -> Node:
    """AND. A single node is returned unchanged."""
    if len(nodes) == 1:
        return nodes[0]
    conditions = [condition(node) for node in nodes]
    first = conditions[0]
    flat: list[Condition] = first.conditions if isinstance(first, AllOf) else [first]  # `first` is in no other node
    for one in conditions[1:]:
        flat += one.conditions if isinstance(one, AllOf) else [one]
    return AllOf(flat, *_joint(conditions, AllOf))


def any_of(nodes: list[Node]) -> Node:
    """OR. A single node is returned unchanged."""
    if len(nodes) == 1:
        return nodes[0]
    conditions = [condition(node) for node in nodes]
    first = conditions[0]
    flat: list[Condition] = first.conditions if isinstance(first, AnyOf) else [first]
    for one in conditions[1:]:
        flat += one.conditions if isinstance(one, AnyOf) else [one]
    return AnyOf(flat, *_joint(conditions, AnyOf))


def _joint(conditions: list[Condition], kind: type[AllOf] | type[AnyOf]) -> tuple[int, int]:
    """The depth and the steps of conditions that become one node."""
    depth = max(one.depth - isinstance(one, kind) for one in conditions) + 1
    return depth, sum(one.steps - isinstance(one, kind) for one in conditions) + 1


def equal(left: Node, right: Node) -> Condition:
    """`=`."""
    for node in (left, right):
        if isinstance(node, Constant) and node.type is Type.NULL:
            raise ExpressionError("NULL can't be compared: use IS NULL or IS NOT NULL")
    is_literal = isinstance(right, Constant) and right.is_literal and right.type is not Type.BOOLEAN
    if is_literal and isinstance(left, Constant) and left.type is Type.BOOLEAN:
        raise ExpressionError(f"{shown(left)} can't be compared with {shown(right)}")
    return Equal(left, right, max(left.depth, right.depth) + 1, left.steps + right.steps + 1)


def is_null(node: Node) -> Condition:
    return IsNull(node, node.depth + 1, node.steps + 1)


def order(sign: str, left: Node, right: Node) -> Condition:
    """`>`, `>=`, `<` or `<=`."""
    first, second = _comparable(left, sign), _comparable(right, sign)
    return Order(sign, first, second, max(left.depth, right.depth) + 1, left.steps + right.steps + 1)


def _comparable(node: Node, sign: str) -> Operand:
    if isinstance(node, (Property, Nothing)) or (isinstance(node, Constant) and node.type in NUMBERS):
        return node
    raise ExpressionError(f"{shown(node)} can't be compared by {sign}: only properties and numbers can")


def between(node: Node, low: Node, high: Node) -> Condition:
    """BETWEEN is two comparisons. Of a null only the first is evaluated: the second would be null as well."""
    at_least, at_most = order(">=", node, low), order("<=", node, high)
    if isinstance(low, Constant) and isinstance(high, Constant) and low.is_literal and high.is_literal:
        assert isinstance(low.value, (int, float)) and isinstance(high.value, (int, float))
        if _widest(low.value, high) > _widest(high.value, low):
            raise ExpressionError(f"BETWEEN {shown(low)} AND {shown(high)}: the first must not exceed the second")
    return at_least if isinstance(node, Nothing) else condition(all_of([at_least, at_most]))


def _widest(value: float, beside: Constant) -> float:
    """A number as it is compared with another constant."""
    return float(value) if beside.type is Type.DOUBLE else value


def not_between(node: Node, low: Node, high: Node) -> Condition:
    below, above = order("<", node, low), order(">", node, high)
    return below if isinstance(node, Nothing) else condition(any_of([below, above]))


def search(how: str, node: Node, text: str, *, is_not: bool) -> Condition:
    steps = CONTAINS_STEPS if how == "CONTAINS" else 1
    return Search(how, node, text, is_not, node.depth + 1, node.steps + steps)


def membership(node: Node, texts: frozenset[str], *, is_not: bool) -> Condition:
    if not isinstance(node, Property):
        raise ExpressionError(f"{shown(node)} before IN is not a property")
    return In(node.name, texts, is_not)


def shown(node: Node) -> str:
    """The node in an error."""
    if isinstance(node, Property):
        return node.name[:40]
    if isinstance(node, Constant):
        return repr(node.value)[:40] if isinstance(node.value, str) else str(node.value).upper()
    return "a negative" if isinstance(node, Nothing) else "a condition"
