"""The id of a client, and the ids of the messages that it sends.

    client id   ip@instance[@unit]      one per client; a group shares its queues among client ids

Java: ClientConfig.buildMQClientId, MessageClientIDSetter.
"""

import os
import socket
import time
from datetime import datetime
from functools import cache
from ipaddress import ip_address

from kourou.protocol.ids import UniqueIds

DEFAULT_INSTANCE = "DEFAULT"


@cache
def local_ip() -> str:
    """The local address of this machine's default route; loopback if it has none. Sends nothing."""
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((elsewhere, 9))
                return str(probe.getsockname()[0])
        except OSError:
            continue
    return "127.0.0.1"


def fresh_instance() -> str:
    """An instance name that no other client on this machine has."""
    return f"{os.getpid()}#{time.time_ns() ^ int.from_bytes(os.urandom(4)) << 20}"


def client_id(ip: str, instance: str, unit: str | None) -> str:
    return f"{ip}@{instance}@{unit}" if unit else f"{ip}@{instance}"


class MessageIds:
    """The unique ids of this process's messages. Cheap: the start of the month is computed once a month."""

    def __init__(self) -> None:
        self._month_ms = 0
        self._month_end_ms = 0
        self.start_over()

    def start_over(self) -> None:
        """A forked process needs ids of its own: otherwise it would give its messages those of its parent."""
        self._ids = UniqueIds(ip_address(local_ip()).packed, os.getpid(), int.from_bytes(os.urandom(4)))

    def next(self, now_ms: int) -> str:
        if not self._month_ms <= now_ms < self._month_end_ms:
            self._month_ms, self._month_end_ms = _month_around(now_ms)
        return self._ids.next(now_ms, self._month_ms)


def _month_around(now_ms: int) -> tuple[int, int]:
    """The start and end, in ms, of the month of this moment in local time."""
    begin = datetime.fromtimestamp(now_ms / 1000).replace(day=1, hour=0, minute=0, second=0, microsecond=0)  # noqa: DTZ006
    year, month = (begin.year, begin.month + 1) if begin.month < 12 else (begin.year + 1, 1)
    end = begin.replace(year=year, month=month)
    return int(begin.timestamp() * 1000), int(end.timestamp() * 1000)


MESSAGE_IDS = MessageIds()
"""One for the process: the counter in an id tells the messages of one millisecond apart."""

os.register_at_fork(after_in_child=MESSAGE_IDS.start_over)
