"""Sends admin requests: to one broker by its address, to all masters of a cluster or a topic, to all name
servers. Java: MQClientAPIImpl, DefaultMQAdminExtImpl.
"""

from collections.abc import Iterable
from typing import TypeVar

from kourou.client.errors import NoBrokerError, NoRouteError
from kourou.client.routes import Route
from kourou.client.session import Session
from kourou.protocol.bodies import BrokerData, ClusterInfo
from kourou.protocol.bodies.base import Body
from kourou.protocol.codes import MASTER_ID, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import Header

BodyT = TypeVar("BodyT", bound=Body)

TIMEOUT_S = 5.0


class AdminRequests:
    """Sends admin requests. Topics and groups in headers have the names that brokers know, with their namespace.

    Without a `timeout`, a request waits five seconds, or the client's `request_timeout` if that is longer.
    """

    def __init__(self, session: Session, timeout: float | None = None) -> None:
        self.session = session
        self.timeout = max(TIMEOUT_S, session.settings.request_timeout) if timeout is None else timeout

    async def broker(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        extra: dict[str, str] | None = None,
    ) -> Command:
        """A broker's answer. Raises RefusedError, TransportError."""
        ext = {**(header.encode() if header is not None else {}), **(extra or {})}
        return await self.session.pool.ask(address, Command(code, ext=ext, body=body), self.timeout)

    async def body(self, kind: type[BodyT], address: str, code: RequestCode, header: Header | None = None) -> BodyT:
        """The body of a broker's answer. Raises RefusedError, TransportError, BodyError."""
        return kind.decode((await self.broker(address, code, header)).body)

    async def name_server(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> Command:
        """The answer of one name server. Raises RefusedError, NoNameServerError."""
        return await self.session.name_servers.ask(
            Command(code, ext=header.encode() if header is not None else None, body=body)
        )

    async def name_servers(self, code: RequestCode, header: Header | None = None, body: bytes = b"") -> list[Command]:
        """The answers of all name servers: a change must reach all of them. Raises the first failure."""
        return [
            await self.session.pool.ask(
                address, Command(code, ext=header.encode() if header is not None else None, body=body), self.timeout
            )
            for address in self.session.name_servers.addresses
        ]

    async def cluster(self) -> ClusterInfo:
        """All brokers and clusters."""
        return ClusterInfo.decode((await self.name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def brokers(self, cluster: str | None = None) -> list[BrokerData]:
        """The broker groups of a cluster, or all. Raises NoBrokerError if the cluster does not exist."""
        info = await self.cluster()
        if cluster is None:
            return [info.broker_addr_table[name] for name in sorted(info.broker_addr_table)]
        names = info.cluster_addr_table.get(cluster)
        if names is None:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise NoBrokerError(f"cluster {cluster!r} does not exist; there are: {known}")
        return [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """The masters of a cluster, or of all, or the one broker whose address is given. Raises NoBrokerError."""
        if broker is not None:
            return [broker]
        return _masters(await self.brokers(cluster), "the cluster")

    async def route(self, topic: str) -> Route:
        """Raises NoRouteError."""
        return await self.session.routes.refresh(self.session.wrap(topic))

    async def masters_of(self, topic: str) -> list[str]:
        """The masters that serve a topic. Raises NoRouteError, NoBrokerError."""
        return _masters((await self.route(topic)).data.broker_datas, f"topic {topic!r}")

    async def masters_of_group(self, group: str) -> list[str]:
        """The masters that serve a group's retry topic, or all masters while that topic does not exist."""
        try:
            return await self.masters_of("%RETRY%" + group)
        except NoRouteError:
            return await self.masters()


def _masters(brokers: Iterable[BrokerData], what: str) -> list[str]:
    addresses = [broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs]
    if not addresses:
        raise NoBrokerError(f"{what} has no master at present")
    return addresses
