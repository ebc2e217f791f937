"""A slow, obvious evaluator of SQL92 expressions, written from the grammar and from how Java compares values.

Nothing of it is shared with the broker's. A value is a pair of its Java class and itself, or None; each production of
the grammar is a function, each kind of expression a class with `value`. It has no limits: keep what it gets small.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Pair = tuple[str, Any]

RANK = {"int": 0, "long": 1, "double": 2}


class CompileError(Exception):
    pass


class EvaluateError(Exception):
    pass


# ── Java's numbers ────────────────────────────────────────────────────────────────────────────────────────────────────


def parse_integer(text: str, bits: int) -> int:
    sign, rest = 1, text
    if rest[:1] in ("+", "-"):
        sign, rest = (-1 if rest[0] == "-" else 1), rest[1:]
    if not rest:
        raise EvaluateError
    total = 0
    for letter in rest:
        if not (letter.isdecimal() and ord(letter) < 0x10000):
            raise EvaluateError
        total = total * 10 + int(letter)
    total *= sign
    if not -(2 ** (bits - 1)) <= total < 2 ** (bits - 1):
        raise EvaluateError
    return total


def parse_double(text: str) -> float:
    while text and text[0] <= " ":
        text = text[1:]
    while text and text[-1] <= " ":
        text = text[:-1]
    sign = 1
    rest = text
    if rest[:1] in ("+", "-"):
        sign, rest = (-1 if rest[0] == "-" else 1), rest[1:]
    if rest == "NaN":
        return float("nan")
    if rest == "Infinity":
        return sign * float("inf")
    if rest[:2].lower() == "0x":
        return sign * parse_hex(rest[2:])
    if rest[-1:] in ("f", "F", "d", "D"):
        rest = rest[:-1]
    found = re.fullmatch(r"([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?", rest)
    if found is None or not (found[1] or found[2]):
        raise EvaluateError
    digits = (found[1] or "") + (found[2] or "")
    power = int(found[3] or "0") - len(found[2] or "")
    return sign * scaled(int(digits), 10, power)


def parse_hex(rest: str) -> float:
    found = re.fullmatch(r"([0-9a-fA-F]*)(\.?)([0-9a-fA-F]*)[pP]([+-]?[0-9]+)[fFdD]?", rest)
    if found is None or not (found[1] or found[3]):
        raise EvaluateError
    return scaled(int(found[1] + found[3], 16), 2, int(found[4]) - 4 * len(found[3]))


def scaled(number: int, base: int, power: int) -> float:
    if number == 0 or power < -20_000:
        return 0.0
    if power > 20_000:
        return float("inf")
    try:
        return float(Fraction(number) * Fraction(base) ** power)
    except OverflowError:
        return float("inf")


def compare_doubles(left: float, right: float) -> int:
    def rank(number: float) -> tuple[int, float, int]:
        is_nan = number != number
        return int(is_nan), 0.0 if is_nan else number, 0 if str(number).startswith("-0.0") else 1

    return (rank(left) > rank(right)) - (rank(left) < rank(right))


def compare(left: Pair, right: Pair) -> int:
    """Java: ComparisonExpression.__compare."""
    (left_class, first), (right_class, second) = left, right
    if left_class == right_class:
        if left_class == "double":
            return compare_doubles(first, second)
        return int(first > second) - int(first < second)
    if left_class == "bool":
        if right_class == "text":
            raise EvaluateError
        return -1
    if left_class == "text":
        if right_class == "bool":
            return compare(("bool", first.lower() == "true"), right)
        return compare((right_class, parse(first, right_class)), right)
    if right_class == "text":
        return compare(left, (left_class, parse(second, left_class)))
    if right_class == "bool":
        return -1
    wider = max(left_class, right_class, key=RANK.__getitem__)
    widen = float if wider == "double" else int
    return compare((wider, widen(first)), (wider, widen(second)))


def parse(text: str, wanted: str) -> Any:
    return parse_double(text) if wanted == "double" else parse_integer(text, 32 if wanted == "int" else 64)


# ── Expressions ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Node:
    is_boolean = False

    def value(self, message: Mapping[str, str]) -> Pair | None:
        raise NotImplementedError


@dataclass
class Literal(Node):
    pair: Pair | None

    def __post_init__(self) -> None:
        self.is_boolean = self.pair is None or self.pair[0] == "bool"

    def value(self, message: Mapping[str, str]) -> Pair | None:
        return self.pair


@dataclass
class Name(Node):
    name: str

    def value(self, message: Mapping[str, str]) -> Pair | None:
        text = message.get(self.name)
        return None if text is None else ("text", text)


@dataclass
class Minus(Node):
    node: Node

    def value(self, message: Mapping[str, str]) -> Pair | None:
        got = self.node.value(message)
        return (got[0], -got[1]) if got is not None and got[0] in RANK else None


@dataclass
class Cast(Node):
    node: Node
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        return None if self.node.value(message) is None else ("bool", False)


@dataclass
class Not(Node):
    node: Node
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        got = self.node.value(message)
        return None if got is None else ("bool", not got[1])


@dataclass
class Logic(Node):
    word: str
    left: Node
    right: Node
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        decisive = ("bool", self.word == "OR")
        left = self.left.value(message)
        if left == decisive:
            return decisive
        right = self.right.value(message)
        if right == decisive:
            return decisive
        return None if left is None or right is None else ("bool", self.word == "AND")


@dataclass
class Same(Node):
    left: Node
    right: Node
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        left, right = self.left.value(message), self.right.value(message)
        if left is None or right is None:
            if left is None and right is not None:
                return None
            return ("bool", left is right)
        return ("bool", left == right or compare(left, right) == 0)


@dataclass
class Order(Node):
    sign: str
    left: Node
    right: Node
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        left = self.left.value(message)
        right = None if left is None else self.right.value(message)
        if left is None or right is None:
            return None
        if left[0] == right[0] == "text":
            left, right = ("double", parse_double(left[1])), ("double", parse_double(right[1]))
        order = compare(left, right)
        return ("bool", {">": order > 0, ">=": order >= 0, "<": order < 0, "<=": order <= 0}[self.sign])


@dataclass
class Finds(Node):
    how: str
    node: Node
    text: str
    is_not: bool
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        if self.text == "":
            return ("bool", False)
        got = self.node.value(message)
        if got is None or got[0] != "text":
            return ("bool", False)
        text = got[1]
        places = [at for at in range(len(text)) if text[at : at + len(self.text)] == self.text]
        hits = {
            "CONTAINS": bool(places),
            "STARTSWITH": 0 in places,
            "ENDSWITH": len(text) - len(self.text) in places,
        }
        return ("bool", hits[self.how] != self.is_not)


@dataclass
class Among(Node):
    node: Node
    texts: list[str]
    is_not: bool
    is_boolean = True

    def value(self, message: Mapping[str, str]) -> Pair | None:
        got = self.node.value(message)
        return None if got is None else ("bool", (got[1] in self.texts) != self.is_not)


# ── Building ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def boolean(node: Node) -> Node:
    if node.is_boolean:
        return node
    if isinstance(node, Name):
        return Cast(node)
    raise CompileError


def equals(left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Literal) and node.pair is None:
            raise CompileError
    both = isinstance(left, Literal) and isinstance(right, Literal)
    if both and left.is_boolean and not right.is_boolean:
        raise CompileError
    return Same(left, right)


def orders(sign: str, left: Node, right: Node) -> Node:
    for node in (left, right):
        if isinstance(node, Literal) and (node.pair is None or node.pair[0] not in RANK):
            raise CompileError
        if node.is_boolean:
            raise CompileError
    return Order(sign, left, right)


def ranges(node: Node, low: Node, high: Node) -> Node:
    if isinstance(low, Literal) and isinstance(high, Literal):
        if low.pair is None or high.pair is None:
            raise CompileError
        try:
            if compare(high.pair, low.pair) < 0:
                raise CompileError
        except (EvaluateError, TypeError):
            raise CompileError from None
    return Logic("AND", orders(">=", node, low), orders("<=", node, high))


# ── The grammar ───────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
SKIPPED = [re.compile(r"[ \t\n\r\f]"), re.compile(r"--[^\n\r]*(\r\n|\n|\r)"), re.compile(r"/\*.*?\*/", re.DOTALL)]
KINDS = [
    ("float", re.compile(r"[0-9]+\.[0-9]*([eE][+-]?[0-9]+)?")),
    ("float", re.compile(r"\.[0-9]+([eE][+-]?[0-9]+)?")),
    ("float", re.compile(r"[0-9]+[eE][+-]?[0-9]+")),
    ("integer", re.compile(r"0|[1-9][0-9]*[lL]?")),
    ("text", re.compile(r"'(''|[^'])*'")),
    ("id", re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")),
    ("sign", re.compile(r"<>|>=|<=|[=<>(),+-]")),
]


class Reader:
    """The grammar, a function per production."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def token(self) -> tuple[str, str, int]:
        """The next token and where it ends; it is not consumed."""
        at = self.at
        while any(skipped := [found.end() for kind in SKIPPED if (found := kind.match(self.text, at))]):
            at = max(skipped)
        if at == len(self.text):
            return "end", "", at
        matches = [(found.end(), kind) for kind, form in KINDS if (found := form.match(self.text, at))]
        if not matches:
            raise CompileError
        end = max(matches)[0]
        kind = next(kind for length, kind in matches if length == end)
        text = self.text[at:end]
        if kind == "id" and text.upper() in WORDS:
            return text.upper(), text, end
        return (text if kind == "sign" else kind), text, end

    def peek(self) -> str:
        return self.token()[0]

    def next(self, wanted: str | None = None) -> str:
        kind, text, end = self.token()
        if wanted is not None and kind != wanted:
            raise CompileError
        self.at = end
        return text

    def string(self) -> str:
        image = self.next("text")
        return image[1:-1].replace("''", "'")

    def or_(self) -> Node:
        left = self.and_()
        while self.peek() == "OR":
            self.next()
            right = self.and_()
            left = Logic("OR", boolean(left), boolean(right))
        return left

    def and_(self) -> Node:
        left = self.equality()
        while self.peek() == "AND":
            self.next()
            right = self.equality()
            left = Logic("AND", boolean(left), boolean(right))
        return left

    def equality(self) -> Node:
        left = self.comparison()
        while True:
            kind = self.peek()
            if kind == "=":
                self.next()
                left = equals(left, self.comparison())
            elif kind == "<>":
                self.next()
                left = Not(equals(left, self.comparison()))
            elif kind == "IS":
                self.next()
                is_not = self.peek() == "NOT"
                if is_not:
                    self.next()
                self.next("NULL")
                left = Same(left, Literal(None))
                if is_not:
                    left = Not(left)
            else:
                return left

    def comparison(self) -> Node:
        left = self.unary()
        while True:
            kind = self.peek()
            if kind in (">", ">=", "<", "<="):
                self.next()
                left = orders(kind, left, self.unary())
                continue
            is_not = kind == "NOT"
            if is_not:
                self.next()
                kind = self.peek()
            if kind in ("CONTAINS", "STARTSWITH", "ENDSWITH"):
                self.next()
                left = Finds(kind, left, self.string(), is_not)
            elif kind == "BETWEEN":
                self.next()
                low = self.unary()
                self.next("AND")
                high = self.unary()
                if is_not:
                    left = Logic("OR", orders("<", left, low), orders(">", left, high))
                else:
                    left = ranges(left, low, high)
            elif kind == "IN":
                left = self.among(left, is_not)
            elif is_not:
                raise CompileError
            else:
                return left

    def among(self, left: Node, is_not: bool) -> Node:
        self.next("IN")
        self.next("(")
        texts = [self.string()]
        while self.peek() == ",":
            self.next()
            texts.append(self.string())
        self.next(")")
        if not isinstance(left, Name):
            raise CompileError
        return Among(left, texts, is_not)

    def unary(self) -> Node:
        kind = self.peek()
        if kind == "+":
            self.next()
            return self.unary()
        if kind == "-":
            self.next()
            return Minus(self.unary())
        if kind == "NOT":
            self.next()
            return Not(boolean(self.unary()))
        return self.primary(kind)

    def primary(self, kind: str) -> Node:
        if kind == "(":
            self.next()
            node = self.or_()
            self.next(")")
            return node
        if kind == "id":
            return Name(self.next())
        if kind == "text":
            return Literal(("text", self.string()))
        if kind == "integer":
            number = int(self.next().rstrip("lL"))
            if number >= 2**63:
                raise CompileError
            return Literal(("int" if number < 2**31 else "long", number))
        if kind == "float":
            value = parse_double(self.next())
            if not 4.9e-324 <= value <= 1.7976931348623157e308:
                raise CompileError
            return Literal(("double", value))
        if kind in ("TRUE", "FALSE"):
            self.next()
            return Literal(("bool", kind == "TRUE"))
        if kind == "NULL":
            self.next()
            return Literal(None)
        raise CompileError


def compiled(text: str) -> Node:
    """Raises CompileError."""
    return boolean(Reader(text).or_())


def evaluated(node: Node, message: Mapping[str, str]) -> bool | None:
    """Raises EvaluateError."""
    got = node.value(message)
    if got is None:
        return None
    assert got[0] == "bool"
    return bool(got[1])
