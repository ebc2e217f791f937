"""The stream of events."""

from typing import Any, Final

from starlette.responses import StreamingResponse

from kourou.console.calls import Call, Way
from kourou.console.facts import Look
from kourou.console.routes.brokers import broker
from kourou.console.routes.groups import group
from kourou.console.routes.overview import overview
from kourou.console.routes.topics import topic
from kourou.console.state import Console
from kourou.console.streams import Show, Stream, watches_of


async def _overview(console: Console, look: Look, _: str) -> Any:
    console.overview_looked()
    return await overview(console, look)


async def _job(console: Console, _: Look, name: str) -> Any:
    return console.jobs.get(name).view()


SHOWS: Final[dict[str, Show]] = {
    "overview": _overview,
    "group": group,
    "topic": topic,
    "broker": broker,
    "job": _job,
}
KINDS: Final = frozenset((*SHOWS, "tail"))


async def events(call: Call) -> StreamingResponse:
    watches = watches_of(call.raw("watch"), KINDS)
    stream = Stream(call.console, call.viewer, call.cookie, watches, call.text("q"), SHOWS)
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(stream.run(), media_type="text/event-stream", headers=headers)


WAYS: Final = (Way("GET", "/events", events),)
