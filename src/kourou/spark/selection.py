"""Which records become rows."""

import re
from collections.abc import Callable
from typing import Final

import msgspec

EVER: Final = 2**63 - 1
"""Beyond every offset and time."""


class Selection(msgspec.Struct, frozen=True):
    """Bounds for the values of records: from the first inclusive to the second exclusive."""

    topics: frozenset[str] | None = None
    topic_pattern: str | None = None
    """A regular expression for the whole name."""
    stored_from_ms: int = 0
    stored_to_ms: int = EVER
    offset_from: int = 0
    offset_to: int = EVER
    tags: frozenset[str] | None = None
    """Brokers compare hashes of tags, and may return other tags with the same hash; here, the tags are compared."""

    def topic_test(self) -> Callable[[bytes], bool] | None:
        """A test whether a topic is selected; None if all are."""
        if self.topics is None and self.topic_pattern is None:
            return None
        wanted = None if self.topics is None else {topic.encode() for topic in self.topics}
        match = None if self.topic_pattern is None else re.compile(self.topic_pattern).fullmatch

        def test(topic: bytes) -> bool:
            if wanted is not None and topic not in wanted:
                return False
            return match is None or match(topic.decode("utf-8", "replace")) is not None

        return test

    @property
    def raw_tags(self) -> frozenset[bytes] | None:
        return None if self.tags is None else frozenset(tag.encode() for tag in self.tags)


EVERYTHING: Final = Selection()
