"""Which name servers there are, and which one we ask.

One of them is asked as long as it answers; when it does not, the next one is. The first is chosen by chance, so that
many clients spread over all. Addresses are given, or come from the environment (NAMESRV_ADDR), or from an HTTP address
that is asked again every two minutes. Java: NettyRemotingClient.updateNameServerAddressList, TopAddressing.
"""

import asyncio
import logging
import os
import random
import re
import urllib.request
from collections.abc import Sequence

from kourou.client.errors import NoNameServerError, NotANameServerError
from kourou.client.pool import Pool
from kourou.net.errors import TransportError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import refused

log = logging.getLogger(__name__)

ENVIRONMENT = "NAMESRV_ADDR"
DISCOVERY_TIMEOUT_S = 3.0
DISCOVERY_SIZE_MAX = 64 * 1024

_UNKNOWN_REQUEST = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
_EVERY_NAME_SERVER_KNOWS = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_KV_CONFIG,
    )
)
"""Requests that no broker answers. One that refuses them is no name server."""

_INSTANCE = re.compile(r"(MQ_INST_\w+_\w+)\.").match


def parse_addresses(text: str | Sequence[str]) -> list[str]:
    """The addresses of `host:port;host:port`, or of a sequence of such. An `http://` before one is a cloud's habit."""
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    return [part.strip().removeprefix("http://").rstrip("/") for part in parts if part.strip()]


def namespace_of(addresses: Sequence[str]) -> str | None:
    """The namespace that a cloud's address names: `MQ_INST_…` before the first dot."""
    for address in addresses:
        if found := _INSTANCE(address):
            return found[1]
    return None


class NameServers:
    """The list, and the one in use."""

    def __init__(
        self, pool: Pool, addresses: Sequence[str] = (), *, discovery_url: str | None = None, timeout: float = 3.0
    ) -> None:
        self._pool = pool
        self._timeout = timeout
        self._current = 0
        self.discovery_url = discovery_url
        self.addresses: list[str] = []
        self._set(list(addresses) or parse_addresses(os.environ.get(ENVIRONMENT, "")))

    def __str__(self) -> str:
        return ";".join(self.addresses) or self.discovery_url or "(none)"

    def _set(self, addresses: list[str]) -> None:
        if sorted(addresses) != sorted(self.addresses):
            self.addresses = addresses
            self._current = random.randrange(len(addresses)) if addresses else 0

    async def ask(self, command: Command) -> Command:
        """The answer of one that answers, which is success.

        Raises RefusedError when it says no, NoNameServerError when none answers.
        """
        answer = await self.request(command)
        if answer.code != 0:
            raise refused(answer.code, answer.remark)
        return answer

    async def request(self, command: Command) -> Command:
        """The answer of one that answers, whatever its code. Raises NoNameServerError."""
        if not self.addresses and self.discovery_url is not None:
            await self.discover()
        if not self.addresses:
            raise NoNameServerError(
                f"no name server is known: pass its address, as in connect('127.0.0.1:9876'), or set {ENVIRONMENT}"
            )
        failures: list[str] = []
        others: list[str] = []  # that answer, and are no name servers
        for _ in range(len(self.addresses)):
            address = self.addresses[self._current % len(self.addresses)]
            try:
                answer = await self._pool.request(address, command, self._timeout)
            except TransportError as error:
                failures.append(f"{address}: {error}")
            else:
                if answer.code != _UNKNOWN_REQUEST or command.code not in _EVERY_NAME_SERVER_KNOWS:
                    return answer
                others.append(address)
            self._current += 1
        if others:
            raise NotANameServerError("; ".join(others))
        raise NoNameServerError("no name server answers; " + "; ".join(failures))

    async def discover(self) -> None:
        """Asks the HTTP address for the list. A failure leaves the list as it is."""
        assert self.discovery_url is not None
        try:
            text = await asyncio.to_thread(_fetch, self.discovery_url)
        except (OSError, ValueError) as error:
            log.warning("name servers not discovered url=%s: %s", self.discovery_url, error)
            return
        if addresses := parse_addresses(text):
            self._set(addresses)


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("an http:// or https:// address is expected")
    with urllib.request.urlopen(url, timeout=DISCOVERY_TIMEOUT_S) as answer:
        lines = answer.read(DISCOVERY_SIZE_MAX).decode().strip().splitlines()
    return lines[0] if lines else ""
