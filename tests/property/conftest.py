"""The number of examples of tests that do not name one."""

from hypothesis import settings
from tests.examples import examples

settings.register_profile("kourou", max_examples=examples(100))
settings.load_profile("kourou")
