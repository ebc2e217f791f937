"""The ASGI application: the guard, sessions and roles before every route; pages, API and events behind them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from kourou.console import guard
from kourou.console.calls import Call, Way, to_response
from kourou.console.errors import ConsoleError, of_failure
from kourou.console.limits import BODY_SECONDS_MAX
from kourou.console.routes import all_ways
from kourou.console.state import Console
from kourou.console.static_files import StaticFiles

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Door:
    """Passes requests that the guard accepts, and adds the security headers to every answer."""

    def __init__(self, app: Starlette, console: Console) -> None:
        self._app = app
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        path = scope["path"]
        headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in scope["headers"]]
        is_api = path.startswith(("/api/", "/events"))

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in guard.ANSWER_HEADERS]
                if is_api:
                    added.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        refusal = guard.check(scope["method"], path, headers, self._console.rules)
        if refusal is not None:
            await to_error(refusal)(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)


def make_app(console: Console, *, background: bool = True) -> Door:
    """The application of a console. `background`: collect figures while it runs."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(console.watch()) if background else None
        try:
            yield
        finally:
            console.closing.set()
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await console.close()

    files = StaticFiles(STATIC)
    routes: list[BaseRoute] = [*_routes(console, all_ways())]
    routes.append(Route("/{path:path}", files.serve, methods=["GET"]))
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: _not_found, 405: _not_allowed})
    return Door(app, console)


def _routes(console: Console, ways: Sequence[Way]) -> list[Route]:
    """One Starlette route per path, which distinguishes the methods, so that a wrong method gets 405."""
    by_path: dict[str, dict[str, Way]] = {}
    for way in ways:
        by_path.setdefault(way.path, {})[way.method] = way
    return [Route(path, _endpoint(console, ways), methods=[*ways]) for path, ways in by_path.items()]


def _endpoint(console: Console, ways: dict[str, Way]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        way = ways.get("GET" if request.method == "HEAD" else request.method)
        if way is None:
            return to_error(ConsoleError("method_not_allowed", f"{request.method} is not supported for this address"))
        return await answer(console, way, request)

    return endpoint


async def answer(console: Console, way: Way, request: Request) -> Response:
    """Checks session, role and mode, then runs the handler. Every failure becomes an error of the API."""
    call: Call | None = None
    try:
        cookie = request.cookies.get(console.cookie)
        viewer = console.sessions.viewer(cookie)
        if way.role is not None:
            if viewer is None:
                raise ConsoleError("not_signed_in", "sign in first", "open the link that the console printed")
            if not viewer.may(way.role):
                remedy = "sign in as a user with this role"
                raise ConsoleError("forbidden", f"this needs the role {way.role.label}", remedy)
        if way.is_change and not way.is_session and console.read_only:
            raise ConsoleError("read_only", "this console is read-only", "start it without --read-only")
        peer = request.client.host if request.client is not None else ""
        address = guard.address_of(peer, request.headers.items(), console.rules)
        body = await _body(request, way.size_max) if way.is_change else b""
        raw = [(name, value) for name, _, value in (word.partition("=") for word in request.url.query.split("&"))]
        own = console if way.is_session else console.of(viewer)
        call = Call(own, viewer, request.path_params, request.query_params, body, address, cookie, raw)
        own.note_look()
        return to_response(call.look, await way.handler(call))
    except (ClientDisconnect, asyncio.CancelledError):
        raise
    except Exception as error:
        refusal = of_failure(error)
        if refusal is None:
            log.exception("request failed path=%s", request.url.path)
            refusal = ConsoleError("internal", "internal error of the console: see its log")
        is_change = way.is_change and not way.is_session
        if call is not None and is_change and call.visitor is not None and not call.is_preview:
            call.note(f"{way.method} {way.path}", request.url.path, ok=False, text=refusal.text)
        return to_error(refusal)


async def _body(request: Request, most: int) -> bytes:
    """The body, within a size and a time. Raises ConsoleError."""
    refusal = ConsoleError("too_large", f"the request has more than {most} bytes", args={"max": most})
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise refusal
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise refusal
                parts.append(part)
    except TimeoutError:
        raise ConsoleError("bad_request", f"the request was not complete within {BODY_SECONDS_MAX:g} s") from None
    return b"".join(parts)


def to_error(error: ConsoleError) -> Response:
    """The response for a refusal."""
    headers = {"retry-after": "5"} if error.code in ("busy", "too_many_attempts") else None
    return Response(error.to_json(), status_code=error.status, media_type="application/json", headers=headers)


async def _not_found(request: Request, _: Exception) -> Response:
    return to_error(ConsoleError("not_found", f"there is nothing at {request.url.path[:200]}"))


async def _not_allowed(request: Request, _: Exception) -> Response:
    return to_error(ConsoleError("method_not_allowed", f"{request.method[:20]} is not supported for this address"))
