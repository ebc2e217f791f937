"""Requests about connected clients.

Java: AdminBrokerProcessor: getConsumerConnectionList, getProducerConnectionList, getAllProducerInfo.
"""

from kourou.broker.admin import tables
from kourou.broker.clients import Client, Clients
from kourou.broker.events import Asked, Large, Refused, Request
from kourou.protocol import bodies, fastjson, headers
from kourou.protocol.codes import ResponseCode
from kourou.turns import Slices


class ClientRequests:
    """Serves requests about connected clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def consumers(self, asked: Request[headers.GetConsumerConnectionList]) -> Slices[Large]:
        """GET_CONSUMER_CONNECTION_LIST: the members of a group, and their subscriptions."""
        yield 0
        name = asked.header.consumer_group
        group = self._clients.group(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        subscriptions = yield from tables.whole_table(group.subscriptions)
        members = yield from _connections(list(group.clients.values()))
        shell = bodies.ConsumerConnection(
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        parts = {"connectionSet": members, "subscriptionTable": subscriptions}
        return tables.answer(asked.command, shell, parts)

    def producers(self, asked: Request[headers.GetProducerConnectionList]) -> Slices[Large]:
        """GET_PRODUCER_CONNECTION_LIST: the members of a group."""
        yield 0
        name = asked.header.producer_group
        members = self._clients.producers.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        entries = yield from _connections(list(members.values()))
        return entries.answer(asked.command, bodies.ProducerConnection(), "connectionSet")

    def all_producers(self, asked: Asked) -> Slices[Large]:
        """GET_ALL_PRODUCER_INFO."""
        yield 0
        entries = tables.Entries()
        for group in list(self._clients.producers):
            members = tables.Entries()
            for number, client in enumerate(list(self._clients.producers.get(group, {}).values()), 1):
                members.add(_producer(client, asked).encode())
                if number % tables.ENTRIES_IN_SLICE == 0:
                    yield len(entries.text) + len(members.text)
            entries.add(fastjson.encode(group), b":[", members.text, b"]")
            yield len(entries.text)
        return entries.answer(asked.command, bodies.ProducerTableInfo(), "data")


def _producer(client: Client, asked: Asked) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        client_id=client.client_id,
        remote_ip=f"/{client.peer.address}",  # with the port, as Java shows addresses
        language=client.language,
        version=client.version,
        last_update_timestamp=client.seen_ms + asked.wall_ms - asked.now_ms,
    )


def _connections(clients: list[Client]) -> Slices[tables.Entries]:
    entries = tables.Entries()
    for number, client in enumerate(clients):
        connection = bodies.Connection(
            client_id=client.client_id,
            client_addr=client.peer.address,
            language=client.language,
            version=client.version,
        )
        entries.add(connection.encode())
        if number % tables.ENTRIES_IN_SLICE == 0:
            yield len(entries.text)
    return entries
