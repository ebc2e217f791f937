"""Signed-in users: one-time tokens, sessions, roles, and a limit on attempts. Nothing here survives the process."""

import hmac
import secrets
from collections.abc import Callable
from enum import IntEnum
from typing import Final

import msgspec

from kourou.console.errors import ConsoleError
from kourou.console.limits import ATTEMPT_NAMES_MAX, ATTEMPTS_PER_MINUTE, SESSION_SECONDS, SESSIONS_MAX

MINUTE: Final = 60.0


class Role(IntEnum):
    """The rights of a user; each role includes those before it."""

    SEE = 1
    BODIES = 2
    OPERATE = 3
    ADMINISTER = 4

    @property
    def label(self) -> str:
        return self.name.lower()


def role_named(text: str) -> Role:
    """Raises ValueError."""
    try:
        return Role[text.upper()]
    except KeyError:
        names = ", ".join(role.label for role in Role)
        raise ValueError(f"{text!r} is not a role: {names}") from None


class Viewer(msgspec.Struct, frozen=True):
    """A signed-in user."""

    user: str
    role: Role
    ends: float
    account: str = ""
    """The account whose key signs the requests; empty if it is that of the console."""

    def may(self, role: Role) -> bool:
        return self.role >= role


class Sessions:
    """All sessions of the process, by the value of their cookie."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._viewers: dict[str, Viewer] = {}
        self._token: str | None = None
        self._failures: dict[str, list[float]] = {}

    # ── One-time tokens ───────────────────────────────────────────────────────────────────────────────────────────

    def new_token(self) -> str:
        """A token for one sign-in, in place of the one before."""
        self._token = secrets.token_urlsafe(24)
        return self._token

    def set_token(self, token: str) -> None:
        """A token that the parent process has made."""
        self._token = token

    def use_token(self, token: str) -> bool:
        """Whether it is the token; it is valid once."""
        expected = self._token
        if expected is None or not hmac.compare_digest(expected.encode(), token.encode("utf-8", "replace")):
            return False
        self._token = None
        return True

    # ── Sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, user: str, role: Role, account: str = "") -> str:
        """The value of the cookie of a new session. The oldest session ends if there are too many."""
        now = self._clock()
        self._viewers = {key: viewer for key, viewer in self._viewers.items() if viewer.ends > now}
        while len(self._viewers) >= SESSIONS_MAX:
            self._viewers.pop(next(iter(self._viewers)))
        cookie = secrets.token_urlsafe(32)
        self._viewers[cookie] = Viewer(user, role, now + SESSION_SECONDS, account)
        return cookie

    def viewer(self, cookie: str | None) -> Viewer | None:
        found = None if cookie is None else self._viewers.get(cookie)
        return found if found is not None and found.ends > self._clock() else None

    def accounts(self) -> set[str]:
        """The accounts that have a session."""
        now = self._clock()
        return {viewer.account for viewer in self._viewers.values() if viewer.ends > now}

    def end(self, cookie: str | None) -> None:
        if cookie is not None:
            self._viewers.pop(cookie, None)

    # ── Attempts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def check_attempts(self, *names: str) -> None:
        """Raises ConsoleError if one of these (a user, an address) failed too often in the last minute."""
        since = self._clock() - MINUTE
        for name in names:
            recent = [at for at in self._failures.get(name, ()) if at > since]
            if len(recent) >= ATTEMPTS_PER_MINUTE:
                text = f"more than {ATTEMPTS_PER_MINUTE} failed attempts to sign in within a minute"
                raise ConsoleError("too_many_attempts", text, "wait a minute")

    def failed(self, *names: str) -> None:
        """Counts a failed attempt."""
        now = self._clock()
        if len(self._failures) >= ATTEMPT_NAMES_MAX:
            self._failures = {key: times for key, times in self._failures.items() if times[-1] > now - MINUTE}
            while len(self._failures) >= ATTEMPT_NAMES_MAX:
                self._failures.pop(next(iter(self._failures)))
        for name in names:
            recent = [at for at in self._failures.get(name, ()) if at > now - MINUTE]
            self._failures[name] = [*recent[-ATTEMPTS_PER_MINUTE:], now]
