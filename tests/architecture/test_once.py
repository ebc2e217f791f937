"""The lists of tests that run with one form, or with both forms, of the compiled modules name tests that exist."""

import pytest
from tests.architecture.sources import ROOT
from tests.conftest import IN_BOTH_FORMS, ONCE


@pytest.mark.parametrize("path", [*ONCE, *IN_BOTH_FORMS])
def test_listed_tests_exist(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("path", IN_BOTH_FORMS)
def test_exceptions_are_exceptions(path: str) -> None:
    """A test in both forms is listed only if its folder is among those that run once."""
    assert path.startswith(ONCE)
