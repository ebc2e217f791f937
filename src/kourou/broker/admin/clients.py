"""Who is connected.

Java: AdminBrokerProcessor: getConsumerConnectionList, getProducerConnectionList, getAllProducerInfo.
"""

from collections.abc import Iterable

from kourou.broker.clients import Client, Clients
from kourou.broker.events import Asked, Refused
from kourou.protocol import bodies, headers
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command


class ClientRequests:
    """Serves requests about connected clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def consumers(self, asked: Asked) -> Command:
        """GET_CONSUMER_CONNECTION_LIST: the members of a group, and what they subscribe to."""
        name = headers.GetConsumerConnectionList.decode(asked.command.ext).consumer_group
        group = self._clients.group(name)
        if group is None:
            raise Refused(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = bodies.ConsumerConnection(
            connection_set=_connections(group.clients.values()),
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return asked.command.answer(body=body.encode())

    def producers(self, asked: Asked) -> Command:
        """GET_PRODUCER_CONNECTION_LIST: the members of a group."""
        name = headers.GetProducerConnectionList.decode(asked.command.ext).producer_group
        members = self._clients.producers.get(name)
        if members is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = bodies.ProducerConnection(connection_set=_connections(members.values()))
        return asked.command.answer(body=body.encode())

    def all_producers(self, asked: Asked) -> Command:
        """GET_ALL_PRODUCER_INFO."""
        table = {
            group: [
                bodies.ProducerInfo(
                    client_id=client.client_id,
                    remote_ip=f"/{client.peer.address}",  # with the port, as Java shows addresses
                    language=client.language,
                    version=client.version,
                    last_update_timestamp=client.seen_ms + asked.wall_ms - asked.now_ms,
                )
                for client in members.values()
            ]
            for group, members in self._clients.producers.items()
        }
        return asked.command.answer(body=bodies.ProducerTableInfo(data=table).encode())


def _connections(clients: Iterable[Client]) -> list[bodies.Connection]:
    return [
        bodies.Connection(
            client_id=client.client_id,
            client_addr=client.peer.address,
            language=client.language,
            version=client.version,
        )
        for client in clients
    ]
