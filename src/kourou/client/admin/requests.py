"""Sends admin requests: to one broker by its address, to all masters of a cluster or a topic, to all name
servers. Java: MQClientAPIImpl, DefaultMQAdminExtImpl.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from kourou.client.errors import NoBrokerError, NoRouteError
from kourou.client.routes import Route
from kourou.client.session import Session
from kourou.net.errors import TransportError
from kourou.protocol.bodies import BrokerData, ClusterInfo
from kourou.protocol.bodies.base import Body
from kourou.protocol.codes import MASTER_ID, RequestCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.headers import Header
from kourou.protocol.ids import decode_offset_id

BodyT = TypeVar("BodyT", bound=Body)
Answer = TypeVar("Answer")

Without = dict[str, TransportError]
"""Brokers that did not answer, by their addresses, and why."""

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

    async def each(
        self, addresses: Sequence[str], ask: Callable[[str], Awaitable[Answer]], without: Without | None
    ) -> list[Answer]:
        """The answers of several brokers. Raises the first failure.

        With `without`, they are asked at the same time, and those that do not answer are entered there; the failure is
        raised only if none answers.
        """
        if without is None:
            return [await ask(address) for address in addresses]
        answers = await asyncio.gather(*map(ask, addresses), return_exceptions=True)
        found: list[Answer] = []
        for address, answer in zip(addresses, answers, strict=True):
            if isinstance(answer, TransportError):
                without[address] = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                found.append(answer)
        if without and not found:
            raise next(iter(without.values()))
        return found

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

    async def members(self, cluster: str | None = None, broker: str | None = None) -> list[str]:
        """The same with all slaves, after the masters: each broker has its own users. Raises NoBrokerError."""
        masters = await self.masters(cluster, broker)
        if broker is not None:
            return masters
        found = {address for group in await self.brokers(cluster) for address in group.broker_addrs.values()}
        return [*masters, *sorted(found - {*masters})]

    async def route(self, topic: str) -> Route:
        """Raises NoRouteError."""
        return await self.session.routes.refresh(self.session.wrap(topic))

    async def masters_of(self, topic: str) -> list[str]:
        """The masters that serve a topic. Raises NoRouteError, NoBrokerError."""
        return _masters((await self.route(topic)).data.broker_datas, f"topic {topic!r}")

    async def broker_in_id(self, offset_id: str) -> str:
        """The address of the broker that an offset id names. Raises ProtocolError, NoBrokerError.

        Ids come with messages, and a sender can forge one: the client connects only to brokers that the name servers
        know.
        """
        place = decode_offset_id(offset_id).host
        groups = [*self.session.routes.brokers().values()]
        if (found := await _with_address(groups, place)) is None:
            groups = await self.brokers()
            found = await _with_address(groups, place)
        if found is None:
            raise NoBrokerError(
                f"message id {offset_id} names the server {place}, which is not a broker of this cluster"
            )
        return found

    async def masters_of_group(self, group: str) -> list[str]:
        """The masters that serve a group's retry topic, or all masters while that topic does not exist."""
        try:
            return await self.masters_of("%RETRY%" + group)
        except NoRouteError:
            return await self.masters()


def properties(body: bytes) -> dict[str, str]:
    """Parses the `key=value` lines that servers write; everything after the first `=` is the value, without escapes."""
    try:
        lines = body.decode().splitlines()
    except UnicodeDecodeError:
        raise BodyError("the server's settings are not valid UTF-8") from None
    pairs = (line.partition("=") for line in lines if "=" in line and not line.startswith("#"))
    return {key.strip(): value for key, _, value in pairs}


async def _with_address(groups: Iterable[BrokerData], place: str) -> str | None:
    """The registered address of the broker at `place`, an IP address and port. A broker may have registered a name."""
    registered = [address for group in groups for address in group.broker_addrs.values()]
    if place in registered:
        return place
    _, _, port = place.rpartition(":")
    for address in registered:
        host, _, other = address.rpartition(":")
        if other == port and not _is_ip(host) and place in await _resolved(host, other):
            return address
    return None


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


async def _resolved(host: str, port: str) -> set[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {
        f"[{where[0]}]:{port}" if family == socket.AF_INET6 else f"{where[0]}:{port}"
        for family, _, _, _, where in found
    }


def _masters(brokers: Iterable[BrokerData], what: str) -> list[str]:
    addresses = [broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs]
    if not addresses:
        raise NoBrokerError(f"{what} has no master at present")
    return addresses
