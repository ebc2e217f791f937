"""Random SQL92 expressions and messages, and the comparison of the broker's evaluator with the obvious one.

python -m tests.property.sql92_random 100000 [seed]
"""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from tests.property import sql92_model as model

from kourou.broker import sql92
from kourou.broker.sql92 import compiling

NAMES = ("a", "b", "c", "d", "z", "TAGS", "_x$1")
NUMBERS = (
    "0", "1", "5", "7", "10", "5L", "2147483647", "2147483648", "9223372036854775807", "5.0", "3.5", ".5", "5.", "1e3",
    "1E-2", "1e308", "4.9e-324", "9007199254740993", "9007199254740992.0",
)  # fmt: skip
WRONG_NUMBERS = ("9223372036854775808", "0.0", "1e309", "1e-400", "007")
TEXTS = ("", "5", "hello", "ell", "he", "lo", "it's", "true", "TRUE", "中文", "x", "--", "/*", "3.5", " 5 ")
VALUES = (
    "5", "-7", "+5", "007", "3.5", " 5 ", "1e3", "NaN", "-NaN", "Infinity", "-Infinity", "-0.0", "0.0", "0", "٥", "５",
    "𝟝", "0x1p4", "0x.8p1", "0x1p99999", "-0x1.8p-2d", "5d", "3.0f", "1_000", "", "hello", "it's", "true", "TRUE",
    "False", "2147483647", "2147483648", "-2147483648", "9223372036854775807", "9223372036854775808", "1" * 40,
    "0" * 40 + "5", "1e99999999", "1e-99999999", ".", "+", "-", "1e", "\t5\n", "\u00a05", "中文", "0." + "3" * 60,
)  # fmt: skip
WORDS = (
    "NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH", "=", "<>",
    ">", ">=", "<", "<=", "(", ")", ",", "+", "-",
)  # fmt: skip
MISFITS = ("!=", "==", ";", "*", "é", "||", "'", "/*", "--", '"', "5x", "%", "\u00a0")
CALLS_PER_STEP = 5
"""Functions of compiling.py that one step may call: the condition, its two operands or their signs, a comparison."""


class Maker:
    """Makes expressions, most of which compile."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def expression(self) -> str:
        words = self.any_of(self.chance.randrange(5))
        while self.chance.random() < 0.1:
            self.spoil(words)
        if self.chance.random() < 0.1:
            words += self.chance.choices([*WORDS, *MISFITS, *NAMES], k=self.chance.randrange(1, 4))
        return "".join(word + self.blank() for word in words)

    def blank(self) -> str:
        one_in_many = self.chance.random()
        if one_in_many < 0.02:
            return self.chance.choice(("--x\n", "/* y */", "/***/", "-- AND\r", "\f", "\t\r\n", ""))
        return " "

    def spoil(self, words: list[str]) -> None:
        at = self.chance.randrange(len(words) + 1)
        how = self.chance.randrange(3)
        if how == 0:
            del words[at : at + 1]
        elif how == 1:
            words.insert(at, self.chance.choice([*WORDS, *NAMES, *NUMBERS, *WRONG_NUMBERS, *MISFITS]))
        else:
            words[at:at] = words[at : at + 3]

    def any_of(self, depth: int) -> list[str]:
        return self.joined(self.all_of, "OR", depth, 0.3)

    def all_of(self, depth: int) -> list[str]:
        return self.joined(self.equality, "AND", depth, 0.3)

    def joined(self, make: Callable[[int], list[str]], word: str, depth: int, likely: float) -> list[str]:
        words = make(depth)
        while self.chance.random() < likely:
            words += [self.cased(word), *make(depth)]
        return words

    def equality(self, depth: int) -> list[str]:
        words = self.comparison(depth)
        while self.chance.random() < 0.3:
            if self.chance.random() < 0.3:
                words += ["is", "NULL"] if self.chance.random() < 0.5 else ["IS", "not", "null"]
            else:
                words += [self.chance.choice(("=", "<>")), *self.comparison(depth)]
        return words

    def comparison(self, depth: int) -> list[str]:
        how = self.chance.randrange(7)
        maybe_not = ["NOT"] if self.chance.random() < 0.3 else []
        if how == 0:
            return self.unary(depth, self.condition)
        if how == 1:
            return [*self.number(depth), self.chance.choice((">", ">=", "<", "<=")), *self.number(depth)]
        if how == 2:
            return [*self.number(depth), *maybe_not, "Between", *self.number(depth), "AND", *self.number(depth)]
        if how == 3:
            texts = ",".join(self.text() for _ in range(self.chance.randrange(1, 7)))
            return [self.chance.choice(NAMES), *maybe_not, self.cased("IN"), "(", texts, ")"]
        if how == 4:
            search = self.cased(self.chance.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")))
            return [*self.unary(depth, self.anything), *maybe_not, search, self.text()]
        sign = self.chance.choice(("=", "<>"))
        if how == 5:
            return [self.chance.choice(NAMES), sign, *self.unary(depth, self.anything)]
        return [*self.unary(depth, self.anything), sign, *self.unary(depth, self.anything)]

    def unary(self, depth: int, primary: Callable[[], str]) -> list[str]:
        words = []
        while self.chance.random() < 0.1:
            words.append(self.chance.choice(("+", "-", "NOT")))
        if depth > 0 and self.chance.random() < 0.4:
            return [*words, "(", *self.any_of(depth - 1), ")"]
        return [*words, primary()]

    def number(self, depth: int) -> list[str]:
        """Something that < and > take."""
        signs = self.chance.choices(("+", "-"), k=self.chance.choice((0, 0, 0, 1, 2)))
        if depth > 0 and self.chance.random() < 0.1:
            return ["-", "(", *self.any_of(depth - 1), ")"]
        if self.chance.random() < 0.02:
            return [*signs, self.anything()]
        return [*signs, self.chance.choice(NAMES if self.chance.random() < 0.6 else NUMBERS)]

    def condition(self) -> str:
        if self.chance.random() < 0.5:
            return self.chance.choice(NAMES)
        return self.cased(self.chance.choice(("TRUE", "FALSE", "NULL")))

    def anything(self) -> str:
        how = self.chance.random()
        if how < 0.5:
            return self.chance.choice(NAMES)
        if how < 0.7:
            return self.chance.choice(NUMBERS)
        if how < 0.71:
            return self.chance.choice(WRONG_NUMBERS)
        return self.text() if how < 0.9 else self.condition()

    def text(self) -> str:
        return "'" + self.chance.choice(TEXTS).replace("'", "''") + "'"

    def cased(self, word: str) -> str:
        return self.chance.choice((word, word.lower(), word.title()))

    def message(self) -> dict[str, str]:
        return {name: self.chance.choice(VALUES) for name in NAMES if self.chance.random() < 0.7}


def check(text: str, messages: list[dict[str, str]]) -> bool:
    """The broker's evaluator gives the result of the simple one, within its steps. Returns whether it compiled."""
    try:
        expected = model.compiled(text)
    except model.CompileError:
        expected = None
    try:
        expression = sql92.compile_expression(text)
    except sql92.ExpressionError:
        assert expected is None, f"{text!r} does not compile"
        return False
    assert expected is not None, f"{text!r} compiles"
    for message in messages:
        wanted = outcome(partial(model.evaluated, expected, message), model.EvaluateError)
        with counted() as calls:
            got = outcome(partial(expression.evaluate, message), ValueError)
        assert got is wanted, f"{text!r} of {message} is {got}, expected {wanted}"
        assert expression.matches(message) is (wanted is True)
        assert calls[0] <= CALLS_PER_STEP * expression.steps + 1, f"{text!r} of {expression.steps} steps: {calls[0]}"
    return True


def outcome(evaluate: Callable[[], bool | None], error: type[Exception]) -> bool | str | None:
    try:
        return evaluate()
    except error:
        return "error"


@contextmanager
def counted() -> Iterator[list[int]]:
    """Counts the calls of functions of compiling.py."""
    calls = [0]

    def on_event(frame: FrameType, event: str, _: Any) -> None:
        calls[0] += event == "call" and frame.f_code.co_filename == compiling.__file__

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def run(count: int, seed: int) -> int:
    """How many of so many expressions compiled."""
    maker = Maker(random.Random(seed))
    return sum(check(maker.expression(), [maker.message() for _ in range(4)]) for _ in range(count))


if __name__ == "__main__":
    total = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(f"{run(total, first)} of {total} expressions compiled; all outcomes are equal, within their steps")
