"""Live events: one stream of server-sent events for each tab of a browser.

`watch` names what it shows, each percent-encoded: `overview`, `group:billing`, `topic:orders`, `broker:…`, `job:…`,
`tail:orders`. A view is sent when it has changed. A tail sends new messages at most four times a second; messages that
are too many for the reader are counted as dropped, and a queue that is too far behind is skipped to its end.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from kourou.client import Delivery
from kourou.client.tailing import Tail
from kourou.console.calls import framed
from kourou.console.errors import ConsoleError, of_failure
from kourou.console.facts import Look
from kourou.console.filters import Filter, parse
from kourou.console.limits import (
    LIST_BODY_SIZE,
    PING_SECONDS,
    QUERY_TEXT_MAX,
    STREAMS_MAX,
    TAIL_MESSAGES_MAX,
    TAIL_SECONDS,
    WATCH_SECONDS,
    WATCHES_MAX,
)
from kourou.console.sessions import Role, Viewer
from kourou.console.state import Console
from kourou.console.views.messages import MessageView, message_view
from kourou.protocol.system_names import TOOLS_GROUP

log = logging.getLogger(__name__)

BEHIND_MAX: Final = 20_000
"""Messages that a queue may be behind before a tail skips to its end."""
EVENTS_MAX: Final = 64
"""Events that wait for the reader."""
NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,512}")

Show = Callable[[Console, Look, str], Coroutine[Any, Any, Any]]


class Watch(msgspec.Struct, frozen=True):
    """One subject of a stream."""

    text: str
    kind: str
    name: str


def watches_of(text: str, kinds: frozenset[str]) -> list[Watch]:
    """Raises ConsoleError."""
    found: list[Watch] = []
    for word in filter(None, text.split(",")):
        kind, _, name = unquote(word).partition(":")
        if kind not in kinds or not NAME.fullmatch(name or "-") or (kind != "overview" and not name):
            raise ConsoleError("bad_request", f"{word[:60]!r} can't be watched", f"one of {', '.join(sorted(kinds))}")
        found.append(Watch(word, kind, name))
    if not 0 < len(found) <= WATCHES_MAX:
        raise ConsoleError("bad_request", f"one stream can watch 1 to {WATCHES_MAX} subjects")
    return found


class TailEvent(msgspec.Struct, frozen=True):
    """The messages that arrived since the last event."""

    messages: list[MessageView]
    dropped: int
    seen: int
    matched: int


def event(name: str, data: bytes) -> bytes:
    """One event. JSON has no line ends, so that the data are one line."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


class Stream:
    """The events of one tab."""

    def __init__(
        self,
        console: Console,
        viewer: Viewer,
        cookie: str | None,
        watches: list[Watch],
        query: str,
        shows: dict[str, Show],
    ) -> None:
        if console.streams >= STREAMS_MAX:
            raise ConsoleError("busy", f"{STREAMS_MAX} streams are open", "close other tabs of the console")
        if any(watch.kind == "tail" for watch in watches) and not viewer.may(Role.BODIES):
            raise ConsoleError("forbidden", "a live tail needs the role bodies")
        if len(query) > QUERY_TEXT_MAX:
            raise ConsoleError("bad_filter", f"a filter has at most {QUERY_TEXT_MAX} characters")
        self._console = console
        self._cookie = cookie
        self._watches = watches
        self._filter: Filter = parse(query)
        self._shows = shows
        self._events: asyncio.Queue[bytes] = asyncio.Queue(maxsize=EVENTS_MAX)

    async def run(self) -> AsyncGenerator[bytes, None]:
        """Yields events until the reader disconnects, the session ends, or the console stops."""
        console = self._console
        console.streams += 1
        tasks = [asyncio.create_task(self._follow(watch)) for watch in self._watches]
        closing = asyncio.create_task(console.closing.wait())
        try:
            yield event("hello", msgspec.json.encode({"stream": secrets.token_hex(8)}))
            while not console.closing.is_set():
                if console.sessions.viewer(self._cookie) is None:
                    yield event("end", ConsoleError("not_signed_in", "the session is over", "sign in again").to_json())
                    return
                getting = asyncio.ensure_future(self._events.get())
                try:
                    await asyncio.wait((getting, closing), timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not getting.done():
                        getting.cancel()
                yield getting.result() if getting.done() and not getting.cancelled() else b": ping\n\n"
        finally:
            console.streams -= 1
            for task in (*tasks, closing):
                task.cancel()
            await asyncio.gather(*tasks, closing, return_exceptions=True)

    async def _follow(self, watch: Watch) -> None:
        try:
            await (self._tail(watch) if watch.kind == "tail" else self._watch(watch))
        except Exception:
            log.exception("watching failed watch=%s", watch.text)
            await self._fail(watch, ConsoleError("internal", "internal error of the console: see its log"))

    async def _watch(self, watch: Watch) -> None:
        last: bytes | None = None
        while True:
            look = self._console.facts.look()
            try:
                self._console.note_look()
                answer = await self._shows[watch.kind](self._console, look, watch.name)
                raw = msgspec.json.encode((answer, sorted(look.without)))
                if raw != last:
                    last = raw
                    await self._events.put(event(watch.text, framed(look, answer)))
            except Exception as error:
                failure = of_failure(error)
                if failure is None:
                    raise
                raw = failure.to_json()
                if raw != last:
                    last = raw
                    await self._fail(watch, failure)
            await asyncio.sleep(WATCH_SECONDS)

    async def _fail(self, watch: Watch, failure: ConsoleError) -> None:
        body = msgspec.json.decode(failure.to_json())
        await self._events.put(event("error", msgspec.json.encode({**body, "watch": watch.text})))

    # ── Tail ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _tail(self, watch: Watch) -> None:
        mq = self._console.mq
        tail = Tail(mq.pull(group=TOOLS_GROUP), watch.name, behind_max=BEHIND_MAX)
        batch = _Batch(self._filter)
        sending = asyncio.create_task(self._send_batches(batch, tail))
        messages = tail.messages()
        try:
            if watch.name not in await self._console.facts.look().topics():
                raise ConsoleError("not_found", f"no broker has a topic {watch.name!r}")
            async for message in messages:
                batch.take(message)
        except Exception as error:
            failure = of_failure(error)
            if failure is None:
                raise
            await self._fail(watch, failure)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            await messages.aclose()

    async def _send_batches(self, batch: "_Batch", tail: Tail) -> None:
        skipped = 0
        while True:
            await asyncio.sleep(TAIL_SECONDS)
            more, skipped = tail.skipped - skipped, tail.skipped
            found = batch.empty(more)
            if found is not None:
                await self._events.put(event("tail", msgspec.json.encode(found)))


class _Batch:
    """The messages that a tail has found since the last event."""

    def __init__(self, wanted: Filter) -> None:
        self._wanted = wanted
        self._found: list[Delivery] = []
        self._seen = 0
        self._matched = 0

    def take(self, message: Delivery) -> None:
        self._seen += 1
        if self._wanted.matches(message):
            self._matched += 1
            if len(self._found) < TAIL_MESSAGES_MAX:
                self._found.append(message)

    def empty(self, skipped: int) -> TailEvent | None:
        if not self._seen and not skipped:
            return None
        views = [message_view(one, with_bodies=True, most=LIST_BODY_SIZE) for one in self._found]
        found = TailEvent(views, self._matched - len(views) + skipped, self._seen, self._matched)
        self._found, self._seen, self._matched = [], 0, 0
        return found
