"""The journey of a message, and its delivery on demand."""

from typing import Any, Final

import msgspec

from kourou.console.calls import Call, Done, Preview, Way
from kourou.console.errors import ConsoleError
from kourou.console.finding import by_id
from kourou.console.journey import journey
from kourou.console.routes.topics import command
from kourou.console.sessions import Role
from kourou.console.views.journey import JourneyView
from kourou.printable import printable


async def show(call: Call) -> JourneyView:
    await call.look.cluster()
    topic, trace_url = call.text("topic") or None, call.console.trace_url
    return await journey(call.look, call.path["id"], topic, with_bodies=call.sees_bodies, trace_url=trace_url)


class TryNow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: str
    group: str
    client: str | None = None
    preview: bool = False
    confirm: str | None = None


async def try_now(call: Call) -> Any:
    given = call.read(TryNow)
    found = await by_id(call.look, call.path["id"], given.topic)
    if not found:
        raise ConsoleError("not_found", "there is no such message", "it may have expired")
    connections = await call.look.connections(given.group)
    ids = [one.client_id or "" for one in (connections.connection_set if connections is not None else [])]
    wanted = given.client
    client_id = next((one for one in sorted(ids) if wanted is None or printable(one) == wanted), None)
    if client_id is None:
        raise ConsoleError("not_found", f"group {given.group!r} has no such member now", "start a member of the group")
    cli = command("queryMsgById", "-i", found[0].offset_id, "-t", given.topic, "-g", given.group, "-d", client_id)
    if given.preview:
        return Preview({"client": printable(client_id)}, cli)
    result = await call.look.mq.admin.groups.consume_directly(
        given.group, client_id, found[0].offset_id, topic=given.topic
    )
    call.note("try message", f"{call.path['id']} in {given.group}", text=result.consume_result or "", cli=cli)
    done = {
        "result": printable(result.consume_result or ""),
        "ms": result.spent_time_mills,
        "remark": printable(result.remark or ""),
    }
    return Done(done, cli)


WAYS: Final = (
    Way("GET", "/api/journey/{id}", show),
    Way("POST", "/api/journey/{id}/retry", try_now, Role.OPERATE),
)
