"""The SQL92 evaluator beside an obvious one. A hundred thousand expressions: python -m tests.property.sql92_random."""

import pytest
from hypothesis import given, settings, strategies as st
from tests.property import sql92_random


@pytest.mark.parametrize("seed", range(4))
def test_random_expressions(seed: int) -> None:
    assert sql92_random.run(750, seed) > 400


words = st.sampled_from(
    [*sql92_random.WORDS, *sql92_random.NAMES, *sql92_random.NUMBERS, *sql92_random.MISFITS, "'x'", "\n"]
)
messages = st.dictionaries(st.sampled_from(sql92_random.NAMES), st.sampled_from(sql92_random.VALUES), max_size=4)


@settings(deadline=None, max_examples=300)
@given(st.lists(words, max_size=12), st.sampled_from(("", " ")), messages)
def test_any_sequence_of_words(found: list[str], between: str, message: dict[str, str]) -> None:
    sql92_random.check(between.join(found), [message])


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30), messages)
def test_any_text(text: str, message: dict[str, str]) -> None:
    sql92_random.check(text, [message])


numbers = st.from_regex(r"\A[ \t]?[+-]?(0[xX])?[0-9a-f٥５]{0,12}\.?[0-9]{0,4}([eEpP][+-]?[0-9]{1,3})?[fFdD]?[ \n]?\Z")


@settings(deadline=None, max_examples=500)
@given(st.one_of(numbers, st.integers().map(str), st.floats().map(str), st.floats().map(float.hex)))
def test_numbers_are_read_as_java_reads_them(text: str) -> None:
    """The model reads them with fractions, digit by digit."""
    message = {"a": text, "b": "7"}
    for expression in ("a > 5", "a = 2147483648", "a <= 2.5", "a <> 1e300", "a > b", "5 < a"):
        assert sql92_random.check(expression, [message])
