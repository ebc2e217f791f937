"""SQL92 filters: what Apache's classes answered, limits, the cache."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kourou.broker import sql92
from kourou.broker.sql92 import Compiler, ExpressionError, compile_expression

VECTORS = json.loads((Path(__file__).parents[2] / "data" / "sql92-vectors.json").read_text())


def result(expression: str, properties: dict[str, str]) -> tuple[Any, str | None]:
    try:
        compiled = compile_expression(expression)
    except ExpressionError:
        return "error", "compile"
    try:
        return compiled.evaluate(properties), None
    except ValueError:
        return "error", "evaluate"


@pytest.mark.parametrize("group", sorted({vector["group"] for vector in VECTORS["vectors"]}))
def test_all_answers_of_apaches_classes(group: str) -> None:
    for vector in VECTORS["vectors"]:
        if vector["group"] == group:
            got = result(vector["expression"], vector["properties"])
            assert got == (vector["result"], vector.get("stage")), vector
            assert type(got[0]) is type(vector["result"]), vector


def test_only_true_delivers() -> None:
    properties = {"a": "5", "b": "hello"}
    for expression, expected in (("a = 5", True), ("a = 6", False), ("z = 1", False), ("b > 1", False)):
        assert compile_expression(expression).matches(properties) is expected, expression


def test_two_nots_are_not_a_literal() -> None:
    """Found by random expressions: NOT NOT NULL was taken for NULL, which can't be compared."""
    assert result("NOT NOT NULL = a", {"a": "5"}) == (None, None)
    assert result("NOT NOT NOT TRUE = FALSE", {}) == (True, None)
    assert result("NOT NOT TRUE = 1", {}) == (False, None)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "the end of the expression: a property, a number, a text, TRUE, FALSE or NULL is expected"),
        ("a = 5;", "';' at character 6 does not belong in an expression"),
        ("a = 'x", "the string that begins at character 5 has no closing quote"),
        ("a = 1 /* x", "the comment that begins at character 7 has no end"),
        ("a in (5)", "'5' at character 7: a text in single quotes is expected"),
        ("a not 5", "'5' at character 7 after NOT: an operator such as IN or BETWEEN is expected"),
        ("(a = 5", "the end of the expression: ) is expected"),
        ("a between 1 or 2", "'or' at character 13: AND is expected"),
        ("a = NULL", "NULL can't be compared: use IS NULL or IS NOT NULL"),
        ("TRUE = 1", "TRUE can't be compared with 1"),
        ("b > 'x'", "'x' can't be compared by >: only properties and numbers can"),
        ("a between 2 and 1.5", "BETWEEN 2 AND 1.5: the first must not exceed the second"),
        ("1 in ('1')", "1 before IN is not a property"),
        ("a and 5", "5 is neither true nor false"),
        ("a > 9223372036854775808", "'9223372036854775808' at character 5 exceeds 9223372036854775807"),
        ("a > 0.0", "'0.0' at character 5: a number with a fraction is between 4.9e-324 and 1.7976931348623157e308"),
    ],
)
def test_an_error_says_what_is_wrong_and_where(expression: str, reason: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression(expression)
    assert str(caught.value) == reason


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "limit"),
    [
        ("a" * (sql92.LENGTH_MAX + 1), "LENGTH_MAX"),
        ("(" * sql92.LENGTH_MAX, "TOKENS_MAX"),
        ("- " * sql92.TOKENS_MAX + "1", "TOKENS_MAX"),
        ("/**/" * sql92.TOKENS_MAX + "a", "TOKENS_MAX"),
        ("(a=" * 200 + "1" + ")" * 200, "DEPTH_MAX"),
        ("a = 1" + " = TRUE" * 200, "DEPTH_MAX"),
        ("a" + " endswith 'x'" * 200, "DEPTH_MAX"),
        ("a = 1 " + "or a = 1 " * sql92.STEPS_MAX, "STEPS_MAX"),
        ("a contains 'x' " + "or a contains 'x' " * 50, "STEPS_MAX"),
    ],
    ids=lambda text: text[:12],
)
def test_a_limit_is_named(expression: str, limit: str) -> None:
    with pytest.raises(ExpressionError, match=rf"\({limit}\)$"):
        compile_expression(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 2_000 + "a" + ")" * 2_000,
        "(" * 650 + "a = 5" + " or b = 1)" * 640 + ")" * 10,
        "not " * 4_000 + "(a = 1)",
        "(a=" * 120 + "1" + ")" * 120,
        "-(" * 60 + "a=1" + ")=1" * 60,
        "a = 1 and (b = 2 or (" * 60 + "a = 3" + "))" * 60,
        "a = 5" + " or a = 6" * 990,
        "a in (" + ",".join(f"'{number:036}'" for number in range(800)) + ")",
    ],
    ids=lambda text: text[:12],
)
def test_large_expressions_within_the_limits(expression: str) -> None:
    """Compiling and evaluating them takes less than half of the stack."""
    limit = sys.getrecursionlimit()
    depth = 0
    frame = sys._getframe()
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 450)
    try:
        compiled = compile_expression(expression)
        compiled.evaluate({"a": "1", "b": "0"})
    finally:
        sys.setrecursionlimit(limit)


def test_the_longest_comment_and_text_take_linear_time() -> None:
    """Quadratic scanning of these would take seconds."""
    begin = time.process_time()
    for expression in ("a = 1 " + "-" * 32_000, "a = '" + "''" * 16_000, "a = 1 /" + "*" * 32_000, "0" * 32_000):
        result(expression, {})
    assert time.process_time() - begin < 1


# ── The cache ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_text_is_compiled_once() -> None:
    compiler = Compiler()
    assert compiler.compile("a > 1") is compiler.compile("a > 1")


def test_errors_are_kept_as_well() -> None:
    compiler = Compiler()
    for _ in range(2):
        with pytest.raises(ExpressionError, match="does not belong"):
            compiler.compile("a ! 1")
    assert list(compiler._known) == ["a ! 1"]


def test_the_text_used_least_recently_is_dropped() -> None:
    compiler = Compiler()
    first = compiler.compile("a > 0")
    for number in range(1, sql92.CACHED_MAX):
        compiler.compile(f"a > {number}")
    compiler.compile("a > 0")
    compiler.compile("b")
    assert len(compiler._known) == sql92.CACHED_MAX
    assert compiler.compile("a > 0") is first
    assert "a > 1" not in compiler._known
