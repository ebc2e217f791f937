"""Fixtures for tests of programs that use RocketMQ; pytest finds them once Kourou is installed.

    def test_orders(kourou_broker):
        client = connect(kourou_broker.namesrv)      # any RocketMQ client

`kourou_broker` is a broker for one test, and stops after it. `kourou_session_broker` is one for the whole run, for
suites whose tests have topics of their own. Both run in a thread, so tests may be asyncio or not.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kourou.embedded import EmbeddedThread


@pytest.fixture
def kourou_broker() -> Iterator["EmbeddedThread"]:
    """A RocketMQ name server and broker in this process: `.namesrv` is its address."""
    from kourou.embedded import EmbeddedThread

    with EmbeddedThread() as broker:
        yield broker


@pytest.fixture(scope="session")
def kourou_session_broker() -> Iterator["EmbeddedThread"]:
    """The same, one for all tests of the run."""
    from kourou.embedded import EmbeddedThread

    with EmbeddedThread() as broker:
        yield broker
