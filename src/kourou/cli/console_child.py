"""The console as a child of `kourou run`. It does not delay the start, and the brokers run without it as well.

The parent opens the port and makes the first link, so that both are known at once; a browser that comes early waits in
the queue of the socket. The child gets the socket; through its standard input, where no other user can read them, it
gets the token of the link and the TLS settings for connections to brokers. The child ends when its standard input is
closed.
"""

import asyncio
import logging
import secrets
import socket
import sys
from contextlib import suppress
from importlib.util import find_spec

import msgspec

from kourou.cli.output import show
from kourou.net.tls import TlsSettings

log = logging.getLogger(__name__)

PORT = 8082
BACKLOG = 64
STOP_SECONDS = 5.0
NEEDED = ("starlette", "uvicorn")


class Given(msgspec.Struct, frozen=True):
    """What the child gets through its standard input: a line of JSON."""

    token: str
    tls: TlsSettings | None = None


class ConsoleChild:
    """Made before the brokers are ready, started after."""

    def __init__(self, port: int = PORT) -> None:
        self._port = port
        self._listener: socket.socket | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._token = secrets.token_urlsafe(24)

    @property
    def url(self) -> str | None:
        """The address of the page, without the token; None without a console."""
        return None if self._listener is None else f"http://127.0.0.1:{self._listener.getsockname()[1]}/"

    def listen(self) -> None:
        """Opens the port, or any free one. A failure is reported: there is no console then."""
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            log.warning("no console: %s not installed (pip install %s)", " and ".join(missing), " ".join(missing))
            return
        for port in (self._port, 0):
            listener = socket.socket()
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind(("127.0.0.1", port))
                listener.listen(BACKLOG)
            except OSError as error:
                listener.close()
                failure = error
            else:
                self._listener = listener
                return
        log.warning("no console: it can't listen on 127.0.0.1: %s", failure.strerror or failure)

    async def start(self, name_servers: str, *, accounts: bool = False, tls: TlsSettings | None = None) -> None:
        """Starts the process, and prints the link. Returns at once.

        `accounts`: the brokers have access control, so users sign in with their RocketMQ keys instead of the link.
        `tls`: the settings of connections to name servers and brokers; None for plain text.
        """
        listener = self._listener
        if listener is None:
            return
        number = listener.fileno()
        command = [sys.executable, "-m", "kourou", "console", "-n", name_servers, "--listening", str(number)]
        command += ["--port", str(listener.getsockname()[1])]
        command += ["--accounts"] if accounts else []
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, pass_fds=(number,), start_new_session=True
            )
            assert process.stdin is not None
            process.stdin.write(msgspec.json.encode(Given(self._token, tls)) + b"\n")
        except OSError as error:
            log.warning("no console: it can't be started: %s", error.strerror or error)
            return
        finally:
            show_url = self.url
            listener.close()
            self._listener = None
        link = f"{show_url} (sign in with a RocketMQ access key)" if accounts else f"{show_url}#token={self._token}"
        show(f"console: {link}")
        self._watching = asyncio.create_task(self._watch(process))

    async def _watch(self, process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        if not self._is_stopping:
            log.warning("the console has ended with exit code %s; the brokers continue to run", code)

    async def stop(self) -> None:
        """Closes the child's standard input, which ends it; kills it if that takes too long."""
        self._is_stopping = True
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if self._watching is not None:
            await self._watching
