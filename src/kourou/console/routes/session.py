"""Signing in and out."""

import asyncio
from typing import Any, Final

import msgspec
from starlette.responses import Response

from kourou.console.calls import Call, Way
from kourou.console.errors import ConsoleError
from kourou.console.limits import SESSION_SECONDS
from kourou.console.sessions import Role, Viewer
from kourou.console.state import Console
from kourou.console.views.session import SessionInfo

REFRESH_MS: Final = 2000
KEY_SIZE_MAX: Final = 256
KEY_REMEDY: Final = "check both; a name server with access control needs the right Get on the cluster as well"
COOKIE: Final = "kourou_console"


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A one-time token, a user and a password, or an access key and its secret key."""

    token: str | None = None
    user: str | None = None
    password: str | None = None


def cookie_name(port: int | None) -> str:
    """Cookies do not distinguish ports, so that two consoles on one machine need different names."""
    return COOKIE if port is None else f"{COOKIE}_{port}"


async def show(call: Call) -> SessionInfo:
    viewer = call.visitor
    if viewer is not None:
        try:
            return _info(call, viewer, call.console.of(viewer))
        except ConsoleError:
            viewer = None  # its account is gone
    return _info(call, viewer, call.console)


def _info(call: Call, viewer: Viewer | None, own: Console) -> SessionInfo:
    console = call.console
    signed_in = viewer is not None
    return SessionInfo(
        signed_in,
        console.login,
        None if viewer is None else viewer.user,
        None if viewer is None else viewer.role.label,
        console.read_only,
        console.version if signed_in else "",
        console.name_servers if signed_in else [],
        REFRESH_MS,
        own.features() if signed_in else {},
    )


async def sign_in(call: Call) -> Response:
    console = call.console
    given = call.read(SignIn)
    viewer = await _checked(call, given)
    if viewer is None:
        console.audit.note(given.user or "?", "", call.address, "sign in", given.user or "token", ok=False)
        if console.login == "key":
            text, remedy = (
                "the brokers refuse this access key or secret key",
                "check both, and the time of this machine",
            )
        elif console.login == "token":
            text, remedy = (
                "the link was already used, or belongs to an earlier start of the console",
                "use the link that the console printed last",
            )
        else:
            text, remedy = "the user or the password is wrong", "try again"
        raise ConsoleError("login_failed", text, remedy)
    user, role, account = viewer
    cookie = console.sessions.begin(user, role, account)
    console.audit.note(user, role.label, call.address, "sign in", user)
    signed_in = console.sessions.viewer(cookie)
    info = _info(call, signed_in, console.of(signed_in))
    response = Response(msgspec.json.encode(info), media_type="application/json")
    response.set_cookie(
        console.cookie,
        cookie,
        max_age=int(SESSION_SECONDS),
        path="/",
        secure=console.rules.is_secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def _checked(call: Call, given: SignIn) -> tuple[str, Role, str] | None:
    """Raises ConsoleError after too many failures, of the user or of the address."""
    sessions = call.console.sessions
    names = [f"user {given.user[:100]}"] if given.user else []
    if call.address:
        names.append(f"address {call.address}")
    sessions.check_attempts(*names)
    # One attempt at a time, so that each attempt sees the failures of earlier ones.
    async with call.console.password_gate:
        sessions.check_attempts(*names)
        found = await _viewer(call, given)
        if found is None:
            sessions.failed(*names)
    return found


async def _viewer(call: Call, given: SignIn) -> tuple[str, Role, str] | None:
    """User, role and account."""
    console = call.console
    if console.accounts is not None:
        if not given.user or not given.password or max(len(given.user), len(given.password)) > KEY_SIZE_MAX:
            return None
        account = await console.accounts.sign_in(console, given.user, given.password)
        return None if account is None else (given.user, Role.ADMINISTER, account)  # brokers decide about rights
    if console.users is None:
        if given.token is None or not console.sessions.use_token(given.token):
            return None
        if console.on_token_used is not None:
            console.on_token_used()
        return "admin", Role.ADMINISTER, ""
    if given.user is None or given.password is None:
        return None
    # scrypt takes 0.1 s: it runs beside the event loop.
    user = await asyncio.to_thread(console.users.check, given.user, given.password)
    return None if user is None else (user.name, user.role, "")


async def sign_out(call: Call) -> Any:
    call.console.sessions.end(call.cookie)
    response = Response(b"{}", media_type="application/json")
    response.delete_cookie(call.console.cookie, path="/", httponly=True, samesite="strict")
    return response


WAYS: Final = (
    Way("GET", "/api/session", show, role=None, is_session=True),
    Way("POST", "/api/session", sign_in, role=None, is_session=True),
    Way("DELETE", "/api/session", sign_out, role=None, is_session=True),
)
