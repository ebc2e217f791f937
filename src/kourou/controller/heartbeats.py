"""The brokers that are alive, as one controller knows them.

Brokers send heartbeats to every controller, so a new leader knows the same as the previous one. A broker is dead when
its connection has closed, or when no heartbeat arrived within the timeout that the broker announced. Only brokers in
the group's table are kept, so this table is never larger than that one.

Java: DefaultBrokerHeartbeatManager.
"""

from collections.abc import Callable, Hashable
from typing import Final

import msgspec

SILENCE_MS: Final = 10_000
"""The timeout of a broker that does not announce one. Java: DEFAULT_BROKER_CHANNEL_EXPIRED_TIME."""

SILENCE_MAX_MS: Final = 3_600_000


class Beat(msgspec.Struct, frozen=True, gc=False):
    """The last heartbeat of a broker."""

    connection: Hashable
    address: str
    at_ms: int
    silence_ms: int
    epoch: int
    end: int  # of its log
    priority: int


class Heartbeats:
    """The last heartbeats, by broker name and broker id."""

    def __init__(self) -> None:
        self._beats: dict[tuple[str, int], Beat] = {}

    def beat(self, name: str, number: int, beat: Beat) -> None:
        self._beats[name, number] = beat

    def of(self, name: str, number: int, now_ms: int) -> Beat | None:
        """The last heartbeat of a broker; None if it is not alive."""
        beat = self._beats.get((name, number))
        return beat if beat is not None and now_ms < beat.at_ms + beat.silence_ms else None

    def gone(self, connection: Hashable) -> list[str]:
        """A connection has closed; returns the groups that have lost a broker."""
        lost = [key for key, beat in self._beats.items() if beat.connection == connection]
        for key in lost:
            del self._beats[key]
        return [name for name, _ in lost]

    def forget(self, is_known: Callable[[str, int], bool]) -> None:
        """Remove brokers that no longer exist."""
        for key in [key for key in self._beats if not is_known(*key)]:
            del self._beats[key]
