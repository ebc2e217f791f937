"""Log lines about refused connections: at most one per minute for each cause."""

import logging
from typing import Final

log = logging.getLogger(__name__)

REPEAT_MS: Final = 60_000
"""The pause between two lines about the same cause. The second one has the number of refusals in between."""


class Refusals:
    """Counts and logs refused connections. The causes are a few constants of this program."""

    def __init__(self, port: str = "the HA port") -> None:
        self._port = port
        self.count = 0
        self._said: dict[str, tuple[int, int]] = {}  # by cause: the time of the last line, and the refusals since then

    def add(self, cause: str, address: str, reason: str, now_ms: int) -> None:
        """Count a refused connection. `cause` is the same for all `reason`s of one kind."""
        self.count += 1
        said_ms, more = self._said.get(cause, (now_ms - REPEAT_MS, 0))
        if now_ms - said_ms < REPEAT_MS:
            self._said[cause] = (said_ms, more + 1)
            return
        self._said[cause] = (now_ms, 0)
        rest = f" ({more} more connections since the last line)" if more else ""
        log.error("refused a connection to %s address=%s: %s%s", self._port, address, reason, rest)
