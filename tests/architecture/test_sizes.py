"""A module can be read at one sitting: none has more than 600 lines."""

from tests.architecture.sources import sources

LINES_MAX = 600

TOO_LONG: set[str] = set()
"""Those that are. This list only gets shorter."""


def test_no_module_is_too_long() -> None:
    lines = {source.name: source.text.count("\n") for source in sources()}
    long = {name for name, count in lines.items() if count > LINES_MAX}
    assert not long - TOO_LONG, {name: lines[name] for name in long - TOO_LONG}
    assert long >= TOO_LONG, f"no longer too long, so remove them from the list above: {TOO_LONG - long}"
