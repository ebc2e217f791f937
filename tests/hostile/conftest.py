"""One server per file of tests, looked at after each test."""

from collections.abc import Iterator

import pytest

from .broker_target import BrokerTarget
from .target import Target


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    target = Target(tmp_path_factory.mktemp("namesrv"))
    yield target
    assert target.stop() == 0, target.log[-4000:]


@pytest.fixture
def target(server: Target) -> Iterator[Target]:
    yield server
    server.check()


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerTarget]:
    target = BrokerTarget(tmp_path_factory.mktemp("broker"))
    yield target
    assert target.stop() == 0, target.log[-4000:]


@pytest.fixture
def broker(broker_process: BrokerTarget) -> Iterator[BrokerTarget]:
    yield broker_process
    broker_process.check()
