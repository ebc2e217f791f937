"""Predicts how many senders are about to send, so that their messages can share a batch for the replicas.

A sender that waits for each answer sends its next message soon after it. One acknowledgement answers all senders of a
batch. If the next batch left with the first message that arrives, it would be small, and a batch of a few messages
costs every broker of the group hardly less than one of many. So the next batch is sent when the number of waiting
senders is `SHARE` of those that were answered or waited at the last acknowledgement, or after `WAIT_MS`.

If the senders do not return in that time, the prediction was wrong: the next batches are sent at once, and with each
failure twice as many of them.

PostgreSQL: commit_delay, commit_siblings.
"""

from typing import Final

SHARE: Final = 3, 4
"""The part of the senders that a batch waits for. The slowest senders do not delay the others."""

WAIT_MS: Final = 2
"""How long a batch waits for senders. If nothing else happens, a timer notices this a few milliseconds later."""

LONGEST_PAUSE: Final = 1024
"""After failures, so many acknowledgements at most make no prediction."""


class ReturningSenders:
    """See the module's text."""

    __slots__ = ("_expected", "_failures", "_pause", "until_ms")

    def __init__(self) -> None:
        self._expected = 0  # the next batch should have so many senders
        self._failures = 0  # since a prediction was right
        self._pause = 0  # so many acknowledgements make no prediction
        self.until_ms = 0  # how long the expected senders are waited for

    def answered(self, count: int, waiting: int, now_ms: int) -> None:
        """An acknowledgement has answered `count` senders, while `waiting` others wait for the next one."""
        if self._pause:
            self._pause -= 1
            return
        share, of = SHARE
        self._expected = (count + waiting) * share // of
        self.until_ms = now_ms + WAIT_MS

    def are_expected(self, waiting: int, now_ms: int) -> bool:
        """Should the next batch wait for more senders than these?"""
        if not self._expected:
            return False
        if waiting >= self._expected:
            self._expected = self._failures = 0
            return False
        if now_ms < self.until_ms:
            return True
        self._expected = 0
        if waiting:
            self._failures += 1
            self._pause = min(1 << self._failures, LONGEST_PAUSE)
        return False
