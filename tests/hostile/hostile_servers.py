"""A name server and a broker that answer with terminal escapes in every string that they may answer with.

A real broker in this process does the work. Two proxies before it change its answers: JSON bodies, header fields,
remarks and settings have escapes added to their strings, numbers and addresses stay, so that a client goes on. Requests
lose the escapes again. `refusing` makes the broker refuse everything, with escapes in the remark.
"""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from kourou.protocol import bodies
from kourou.protocol.bodies.base import Body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, encode
from kourou.protocol.frame import Decoder

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\x85\u202e\u2028\r\b"
"""A title, a cleared screen, a colour in C1, DEL, a reversal of the text, line ends that are none, a return."""

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_KEEP = re.compile(r"|true|false|null|[-+.\d eE]+|[\w.\-]+:\d+|\[?[0-9a-fA-F:.]+\]?(:\d+)?")
_IN_JSON = json.dumps(ESCAPES)[1:-1]
_FIELDS = {
    field
    for name in dir(bodies)
    if isinstance(kind := getattr(bodies, name), type) and issubclass(kind, Body)
    for field in kind.__struct_encode_fields__
}
_WORDS = {"brokerAddrs", "SINGLE_TAG", "MULTI_TAG", "HALF", "bname", "NORMAL"}


def _with_escapes(match: re.Match[str]) -> str:
    literal, is_key = match[0], match[1]
    text = literal[1 : literal.rindex('"')]
    if _KEEP.fullmatch(text) or text in _WORDS or (is_key and text in _FIELDS):
        return literal
    return f'"{text}{_IN_JSON}"{is_key or ""}'


def hostile_body(body: bytes) -> bytes:
    """The same with escapes; records of messages, which are neither JSON nor settings, stay."""
    if body[:1] in (b"{", b"["):
        return _STRING.sub(_with_escapes, body.decode()).encode()
    if b"=" in body and b"\0" not in body:
        return b"".join(line + ESCAPES.encode() + b"\n" for line in body.splitlines())
    return body


class HostileServers:
    """Started by `hostile_servers`. `namesrv` and `broker` are the addresses of the proxies."""

    def __init__(self, namesrv: str, broker: str) -> None:
        self._upstream = {"namesrv": namesrv, "broker": broker}
        self._addresses: dict[str, str] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.refusing = False

    @property
    def namesrv(self) -> str:
        return self._addresses["namesrv"]

    @property
    def broker(self) -> str:
        return self._addresses["broker"]

    async def live(self, ready: "Future[None]", stop: asyncio.Event) -> None:
        servers = []
        for name, upstream in self._upstream.items():
            server = await asyncio.start_server(partial(self._serve, upstream), "127.0.0.1", 0)
            self._addresses[name] = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            servers.append(server)
        ready.set_result(None)
        await stop.wait()
        for server in servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in servers:
            await server.wait_closed()

    async def _serve(self, upstream: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, _, port = upstream.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        codes: dict[int, int] = {}
        try:
            await asyncio.gather(
                self._pass_requests(reader, far_writer, writer, codes),
                self._pass_answers(far_reader, writer, codes),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (far_writer, writer):
                one.close()
                with suppress(OSError):
                    await one.wait_closed()
            self._tasks.discard(task)

    async def _pass_requests(
        self,
        reader: asyncio.StreamReader,
        upstream: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        codes: dict[int, int],
    ) -> None:
        decoder = Decoder()
        while data := await reader.read(65536):
            for command in decoder.feed(data):
                if not command.is_response:
                    codes[command.opaque] = command.code
                if self.refusing and not command.is_response and command.code not in _FINDING:
                    back.write(encode(command.answer(1, f"no, never{ESCAPES}")))
                    continue
                upstream.write(encode(self._clean(command)))
        upstream.close()

    def _clean(self, command: Command) -> Command:
        command.ext = {key: value.replace(ESCAPES, "") for key, value in (command.ext or {}).items()}
        command.body = command.body.replace(_IN_JSON.encode(), b"").replace(ESCAPES.encode(), b"")
        return command

    async def _pass_answers(
        self, upstream: asyncio.StreamReader, writer: asyncio.StreamWriter, codes: dict[int, int]
    ) -> None:
        decoder = Decoder()
        while data := await upstream.read(65536):
            for command in decoder.feed(data):
                code = codes.pop(command.opaque, 0)
                writer.write(encode(self._hostile(command, code) if command.is_response else command))
        writer.close()

    def _hostile(self, command: Command, code: int) -> Command:
        command.remark = f"{command.remark or ''}{ESCAPES}"
        command.ext = {
            key: value if _KEEP.fullmatch(value) else value + ESCAPES for key, value in (command.ext or {}).items()
        }
        if code not in _UNCHANGED:
            body = command.body.replace(self._upstream["broker"].encode(), self.broker.encode())
            command.body = hostile_body(body)
        return command


_FINDING = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO, RequestCode.HEART_BEAT}
"""The requests that are answered while all others are refused: those for routes."""
_UNCHANGED = {
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,  # a member that does not find itself gets no queues
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
}


@contextmanager
def hostile_servers(namesrv: str, broker: str) -> Iterator[HostileServers]:
    servers = HostileServers(namesrv, broker)
    ready: Future[None] = Future()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(servers.live(ready, stop)))
    thread.start()
    try:
        ready.result(30)
        yield servers
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)
        loop.close()
