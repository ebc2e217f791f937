"""The process: sockets, the HTTP server, signals, one-time links."""

import asyncio
import contextlib
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvicorn

from kourou.console.accounts import Accounts
from kourou.console.app import make_app
from kourou.console.connections import Connection
from kourou.console.exporting import Collector
from kourou.console.guard import Rules, is_loopback, own_hosts
from kourou.console.limits import CONNECTIONS_MAX, HEAD_SIZE_MAX
from kourou.console.routes.session import cookie_name
from kourou.console.state import Access, Console, open_client
from kourou.console.users import Users, UsersError

log = logging.getLogger(__name__)

PORT: Final = 8082
STANDARD_INPUT: Final = 0
STOP_SECONDS: Final = 1
TRACE_URL: Final = re.compile(r"https?://[^\s\"'<>]*\{trace_id\}[^\s\"'<>]*")


class ServeError(Exception):
    """The console can't start; the text says why."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses, security and users of a console."""

    access: Access
    host: str = "127.0.0.1"
    port: int = PORT
    users: Path | None = None
    accounts: bool = False
    """Users sign in with their RocketMQ keys."""
    read_only: bool = False
    certificate: Path | None = None
    key: Path | None = None
    is_behind_proxy: bool = False
    allowed_hosts: Sequence[str] = ()
    collector: Collector | None = None
    """Where metrics of the brokers are sent; None: nowhere."""
    trace_url: str | None = None
    """The page of a trace in another tool, with `{trace_id}` for its id."""
    descriptor: int | None = None
    """A socket on which the parent process already listens."""
    token: str | None = None
    """The first one-time token, which the parent process has created and printed."""
    is_child: bool = False
    """End when the standard input ends."""


def check(options: Options) -> Users | None:
    """The users of the file. Raises ServeError if other users than its owner could use the console."""
    try:
        users = None if options.users is None else Users.load(options.users)
    except UsersError as error:
        raise ServeError(str(error)) from None
    if users is not None and not len(users):
        raise ServeError(
            f"{options.users} has no users: add one with `kourou console --users FILE --add-user NAME:ROLE`"
        )
    if users is not None and options.accounts:
        raise ServeError("--users and --accounts can't be given together: they are different users")
    if options.trace_url is not None and not TRACE_URL.fullmatch(options.trace_url):
        raise ServeError(f"--trace-url {options.trace_url}: an http address with {{trace_id}} is expected")
    if not is_loopback(options.host):
        if users is None and not options.accounts:
            raise ServeError(f"--host {options.host} is not loopback: that needs users (--users FILE or --accounts)")
        if options.certificate is None and not options.is_behind_proxy:
            raise ServeError(
                f"--host {options.host} is not loopback: that needs TLS (--tls-cert and --tls-key), or --behind-proxy "
                "if a proxy in front of it has TLS"
            )
    if (options.certificate is None) != (options.key is None):
        raise ServeError("--tls-cert and --tls-key must be given together")
    return users


def listen(host: str, port: int, *, or_any: bool = False) -> socket.socket:
    """A listening socket; on any free port if the given one is taken and `or_any`. Raises ServeError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in (port, *((0,) if or_any and port else ())):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host.strip("[]"), candidate))
            listener.listen(CONNECTIONS_MAX)
        except OSError as error:
            listener.close()
            reason = error.strerror or str(error)
        else:
            listener.setblocking(False)
            return listener
    raise ServeError(f"can't listen on {host}:{port}: {reason}; choose another port (--port 0: any free one)")


def url(host: str, port: int, token: str | None = None, *, is_secure: bool = False) -> str:
    """The address of the page; with a token, a link that signs in once."""
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http{'s' if is_secure else ''}://{shown}:{port}/{'' if token is None else f'#token={token}'}"


def _account_console(rules: Rules, options: Options, access: Access) -> Console:
    return Console(open_client(access), rules, read_only=options.read_only, trace_url=options.trace_url)


class _Server(uvicorn.Server):
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(options: Options, ready: Callable[[str], None], next_link: Callable[[str], None]) -> None:
    """Runs until SIGTERM, SIGINT, or the end of the standard input. Raises ServeError.

    `ready` is called with the first link when the console answers requests, and `next_link` with the next link after
    the previous one was used.
    """
    users = check(options)
    if options.descriptor is not None:
        listener = socket.socket(fileno=options.descriptor)
        listener.setblocking(False)
    else:
        listener = listen(options.host, options.port)
    port = listener.getsockname()[1]
    is_secure = options.certificate is not None or options.is_behind_proxy
    hosts = own_hosts(options.host, port, options.allowed_hosts)
    rules = Rules(hosts, is_secure, is_behind_proxy=options.is_behind_proxy)
    console = Console(
        open_client(options.access),
        rules,
        users=users,
        read_only=options.read_only,
        cookie=cookie_name(port),
        collector=options.collector,
        trace_url=options.trace_url,
    )
    if options.accounts:
        console.accounts = Accounts(options.access, partial(_account_console, rules, options))

    def link() -> str:
        token = console.sessions.new_token() if console.login == "token" else None
        return url(options.host, port, token, is_secure=options.certificate is not None)

    def token_used() -> None:
        next_link(link())

    console.on_token_used = token_used
    if options.token is not None:
        console.sessions.set_token(options.token)
    config = uvicorn.Config(
        make_app(console),
        http=Connection,
        ws="none",
        loop="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEAD_SIZE_MAX,
        timeout_graceful_shutdown=STOP_SECONDS,
        ssl_certfile=None if options.certificate is None else str(options.certificate),
        ssl_keyfile=None if options.key is None else str(options.key),
    )
    server = _Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        console.closing.set()
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    if options.is_child:
        loop.add_reader(STANDARD_INPUT, _read_input, stop)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn tells by this attribute alone
            await asyncio.sleep(0.01)
        if server.started:
            ready(url(options.host, port, options.token) if options.token is not None else link())
        await serving
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        listener.close()
    if not server.started:
        raise ServeError("the console did not start: see its log")


def _read_input(stop: Callable[[], None]) -> None:
    """Waits for the end of standard input; any input is ignored."""
    try:
        data = os.read(STANDARD_INPUT, 4096)
    except BlockingIOError:
        return
    except OSError:
        data = b""
    if not data:
        asyncio.get_running_loop().remove_reader(STANDARD_INPUT)
        stop()
