"""The list of name servers, and which of them is asked.

One name server is asked as long as it answers, then the next one. If a query takes longer than HEDGE_S, the next one is
asked as well, and the first answer counts. The first is chosen at random, so that clients spread over all of them. The
addresses are given, or come from the environment (NAMESRV_ADDR), or from an HTTP address that is queried again every
two minutes. Java: NettyRemotingClient.updateNameServerAddressList, TopAddressing.
"""

import asyncio
import logging
import os
import random
import re
import urllib.request
from collections import deque
from collections.abc import Sequence
from copy import copy

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

HEDGE_S = 1.0
"""How long a name server may take until the next one is asked as well."""

_UNKNOWN_REQUEST = int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
_QUERIES = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_KV_CONFIG,
    )
)
"""Queries that every name server answers and no broker does."""

_INSTANCE = re.compile(r"(MQ_INST_\w+_\w+)\.").match


def parse_addresses(text: str | Sequence[str]) -> list[str]:
    """The addresses in `host:port;host:port`, or in a sequence. Cloud providers write an `http://` before them."""
    parts = text.replace(",", ";").split(";") if isinstance(text, str) else list(text)
    return [part.strip().removeprefix("http://").rstrip("/") for part in parts if part.strip()]


def namespace_of(addresses: Sequence[str]) -> str | None:
    """The namespace in the address of a cloud provider: `MQ_INST_…` before the first dot."""
    for address in addresses:
        if found := _INSTANCE(address):
            return found[1]
    return None


class NameServers:
    """The list of addresses, and the one in use."""

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
        """The successful answer of the first name server that answers.

        Raises RefusedError if it refuses the request, NoNameServerError if none answers.
        """
        answer = await self.request(command)
        if answer.code != 0:
            raise refused(answer.code, answer.remark)
        return answer

    async def request(self, command: Command) -> Command:
        """The answer of the first name server that answers, with any code. Raises NoNameServerError."""
        if not self.addresses and self.discovery_url is not None:
            await self.discover()
        if not self.addresses:
            raise NoNameServerError(
                f"no name server is configured: pass its address, as in connect('127.0.0.1:9876'), or set {ENVIRONMENT}"
            )
        failures: list[str] = []
        others: list[str] = []  # servers that answer, but are not name servers
        addresses = self.addresses
        first = self._current % len(addresses)
        left = deque([*range(first, len(addresses)), *range(first)])
        patience = HEDGE_S if command.code in _QUERIES else None
        asking: dict[asyncio.Task[Command], int] = {}
        try:
            while left or asking:
                if left:  # at first, after a failure, or when those that were asked take their time
                    number = left.popleft()
                    asking[self._ask(addresses[number], command)] = number
                done, _ = await asyncio.wait(
                    asking, timeout=patience if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    number = asking.pop(task)
                    try:
                        answer = task.result()
                    except TransportError as error:
                        failures.append(f"{addresses[number]}: {error}")
                    else:
                        if answer.code != _UNKNOWN_REQUEST or command.code not in _QUERIES:
                            if addresses is self.addresses:
                                self._current = number
                            return answer
                        others.append(addresses[number])
        finally:
            for task in asking:
                task.cancel()
        if others:
            raise NotANameServerError("; ".join(others))
        raise NoNameServerError("no name server answers; " + "; ".join(failures))

    def _ask(self, address: str, command: Command) -> "asyncio.Task[Command]":
        task = asyncio.create_task(self._pool.request(address, copy(command), self._timeout))
        task.add_done_callback(_retrieve)
        return task

    async def discover(self) -> None:
        """Queries the HTTP address for the list. A failure leaves the list unchanged."""
        assert self.discovery_url is not None
        try:
            text = await asyncio.to_thread(_fetch, self.discovery_url)
        except (OSError, ValueError) as error:
            log.warning("name servers not discovered url=%s: %s", self.discovery_url, error)
            return
        if addresses := parse_addresses(text):
            self._set(addresses)


def _retrieve(task: "asyncio.Task[Command]") -> None:
    """Marks a failure as seen: the caller may have had the answer of another name server."""
    if not task.cancelled():
        task.exception()


def _fetch(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ValueError("an http:// or https:// address is expected")
    with urllib.request.urlopen(url, timeout=DISCOVERY_TIMEOUT_S) as answer:
        lines = answer.read(DISCOVERY_SIZE_MAX).decode().strip().splitlines()
    return lines[0] if lines else ""
