"""Connections: producers as brokers list them, consumers by their groups."""

import asyncio
from typing import Final

from kourou.client.naming import is_system_group
from kourou.console.calls import Call, Way
from kourou.console.errors import ConsoleError
from kourou.console.facts import LONG, Look
from kourou.console.limits import ROWS_MAX
from kourou.console.views.clients import ClientPage, client_rows
from kourou.protocol.bodies import ConsumerConnection, ProducerTableInfo
from kourou.protocol.errors import KourouError

GROUPS_MAX: Final = 200
"""How many groups are asked for their members; in a larger cluster, groups that contain the search text come first."""
GROUPS_AT_ONCE: Final = 8


async def _producers(look: Look) -> list[tuple[str, ProducerTableInfo]]:
    found = []
    for member in await look.members():
        try:
            found.append((member.name, await look.producers(member.address)))
        except (KourouError, ConsoleError):
            continue  # a broker that is down has no clients
    return found


async def _consumers(look: Look, text: str) -> dict[str, ConsumerConnection]:
    names = [name for name in await look.groups() if not is_system_group(name)]
    names.sort(key=lambda name: text.lower() not in name.lower())
    gate = asyncio.Semaphore(GROUPS_AT_ONCE)

    async def ask(name: str) -> ConsumerConnection | None:
        async with gate:
            try:
                return await look.connections(name, LONG)
            except (KourouError, ConsoleError):
                return None

    asked = names[:GROUPS_MAX]
    answers = await asyncio.gather(*map(ask, asked))
    return {name: answer for name, answer in zip(asked, answers, strict=True) if answer is not None}


async def listing(call: Call) -> ClientPage:
    text = call.text("q").lower()
    offset = call.number("offset", 0, 0, 1_000_000)
    limit = call.number("limit", 100, 1, ROWS_MAX)
    rows = client_rows(await _producers(call.look), await _consumers(call.look, text))
    found = [
        row for row in rows if any(text in word.lower() for word in (row.id, row.address, row.language, *row.groups))
    ]
    return ClientPage(len(found), found[offset : offset + limit])


WAYS: Final = (Way("GET", "/api/clients", listing),)
