"""The audit log: the newest entries in memory, and a line for each in the log of the process."""

import logging
from collections import deque

import msgspec

from kourou.console.facts import now_ms
from kourou.console.limits import AUDIT_MAX
from kourou.printable import printable

log = logging.getLogger(__name__)

TEXT_MAX = 1000


class Entry(msgspec.Struct, frozen=True):
    """One change, or an attempt."""

    at_ms: int
    user: str
    role: str
    address: str
    action: str
    what: str
    ok: bool
    text: str
    cli: str


class Audit:
    """The newest entries."""

    def __init__(self) -> None:
        self._entries: deque[Entry] = deque(maxlen=AUDIT_MAX)

    def note(
        self,
        user: str,
        role: str,
        address: str,
        action: str,
        what: str,
        *,
        ok: bool = True,
        text: str = "",
        cli: str = "",
    ) -> None:
        entry = Entry(
            now_ms(),
            _short(user),
            _short(role),
            _short(address),
            _short(action),
            _short(what),
            ok,
            _short(text),
            _short(cli),
        )
        self._entries.append(entry)
        log.info(
            "audit user=%s role=%s from=%s action=%s what=%s ok=%s %s",
            entry.user,
            entry.role,
            entry.address,
            entry.action,
            entry.what,
            ok,
            entry.text,
        )

    def newest(self, count: int) -> list[Entry]:
        return list(self._entries)[: -count - 1 : -1]


def _short(text: str) -> str:
    return printable(text[:TEXT_MAX])
