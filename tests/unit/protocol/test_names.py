"""What peers call things can't forge or flood a log."""

import pytest

from kourou.protocol.names import SHOWN_MAX, shown


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("OrderEvents-1", "OrderEvents-1"),
        ("訂單 %RETRY%", "訂單 %RETRY%"),
        ("a\nbroker registered name=b", "a\\nbroker registered name=b"),
        ("\x1b[2J\r\t", "\\x1b[2J\\r\\t"),
        ("\u2028\u202e\ud800", "\\u2028\\u202e\\ud800"),
        ("", ""),
        (b"\n", "b'\\n'"),
    ],
)
def test_a_name_stays_on_its_line(name: object, expected: str) -> None:
    assert shown(name) == expected
    assert shown(name).isprintable()


def test_a_long_name_is_cut() -> None:
    assert shown("x" * SHOWN_MAX) == "x" * SHOWN_MAX
    assert shown("x" * 1_000_000) == "x" * SHOWN_MAX + "… (1000000 characters)"
    assert len(shown("\n" * 1_000_000)) < 2 * SHOWN_MAX + 40
