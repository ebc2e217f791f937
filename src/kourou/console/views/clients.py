"""Connected clients: a row for each producer and for each consumer."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kourou.console.views.values import ms
from kourou.printable import printable
from kourou.protocol.bodies import ConsumerConnection, ProducerTableInfo
from kourou.protocol.codes import version_name

PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"


class ClientRow(msgspec.Struct):
    """A client in one role."""

    id: str
    address: str
    language: str
    version: str
    role: str
    groups: list[str]
    brokers: list[str]
    last_ms: int | None


class ClientPage(msgspec.Struct, frozen=True):
    total: int
    clients: list[ClientRow]


def client_rows(
    producers: Iterable[tuple[str, ProducerTableInfo]], consumers: Mapping[str, ConsumerConnection]
) -> list[ClientRow]:
    """Producers by the brokers that know them, consumers by their groups; a client that is both has two rows."""
    rows: dict[tuple[str, str, str], ClientRow] = {}

    def row(role: str, client: str, address: str, language: str | None, version: int) -> ClientRow:
        key = (role, client, address.removeprefix("/"))
        if key not in rows:
            rows[key] = ClientRow(
                id=printable(client),
                address=printable(address.removeprefix("/")),  # brokers write addresses as Java does
                language=printable(language or ""),
                version=version_name(version),
                role=role,
                groups=[],
                brokers=[],
                last_ms=None,
            )
        return rows[key]

    for broker, table in producers:
        for group, clients in table.data.items():
            for one in clients:
                found = row(PRODUCER, one.client_id or "", one.remote_ip or "", one.language, one.version)
                _enter(found.groups, printable(group))
                _enter(found.brokers, printable(broker))
                found.last_ms = max(found.last_ms or 0, ms(one.last_update_timestamp) or 0) or None
    for group, members in consumers.items():
        for member in members.connection_set:
            address = member.client_addr or ""
            found = row(CONSUMER, member.client_id or "", address, member.language, member.version)
            _enter(found.groups, printable(group))
    return sorted(rows.values(), key=lambda one: (one.id, one.role, one.address))


def _enter(names: list[str], name: str) -> None:
    if name not in names:
        names.append(name)
