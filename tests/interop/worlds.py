"""The worlds in which the tests happen: a name server under test and a real broker that registers with it.

The reference has Apache's name server, the candidate ours. KOUROU_INTEROP_CANDIDATE=apache puts a second one of
Apache's in our place: what then fails is the test's fault.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from .clients import Client, Kind
from .mqadmin import MqAdmin
from .servers import ApacheBroker, ApacheNameServer, KourouNameServer, NameServer
from .toolchain import MissingToolError

APACHE_STANDS_IN = os.environ.get("KOUROU_INTEROP_CANDIDATE") == "apache"
CANDIDATE = ApacheNameServer if APACHE_STANDS_IN else KourouNameServer
REQUIRED = os.environ.get("KOUROU_REQUIRE_INTEROP") == "1"

StartBroker = Callable[..., ApacheBroker]
StartClient = Callable[[Kind, str], Client]
StartNameServer = Callable[[str], NameServer]


@dataclass
class World:
    """A name server, its broker, and what one does with them."""

    name_server: NameServer
    broker: ApacheBroker
    admin: MqAdmin
    homes: Path

    def run(self, command: str, *arguments: str) -> str:
        """What mqadmin prints for this command."""
        return self.admin.run(self.name_server.address, command, *arguments)

    def wait_for_broker(self, broker: ApacheBroker) -> None:
        broker.wait_registered(self.name_server.address)


@contextmanager
def needed() -> Iterator[None]:
    """A missing tool met in here skips the test, loudly; with KOUROU_REQUIRE_INTEROP=1 it fails it."""
    try:
        yield
    except MissingToolError as missing:
        if REQUIRED:
            pytest.fail(f"KOUROU_REQUIRE_INTEROP=1, but {missing}", pytrace=False)
        pytest.skip(f"INTEROP TESTS DO NOT RUN HERE: {missing}")
