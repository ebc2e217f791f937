"""Groups that may not read any more because they read too slowly."""

from typing import Any

import pytest
from tests.unit.broker.asking import GROUP, heartbeat, ok, pull, send

from kourou.broker.settings import BrokerSettings
from kourou.broker.slow_readers import INTERVAL_MS
from kourou.protocol.codes import ResponseCode
from kourou.testing.broker import SimulatedBroker, SimulatedClient


def prepared(**settings: object) -> tuple[SimulatedBroker, SimulatedClient]:
    """A group has got one of three messages."""
    given: dict[str, Any] = {"disable_slow_readers": True, "slow_reader_bytes": 100, **settings}
    world = SimulatedBroker(settings=BrokerSettings(**given))
    client = world.connect()
    for _ in range(3):
        ok(client, send())
    ok(client, heartbeat("c1", group=GROUP))
    ok(client, pull(max_msg_nums=1))
    return world, client


def beat_for(world: SimulatedBroker, client: SimulatedClient, ms: int) -> None:
    for _ in range(ms // 60_000):
        world.tick(60_000)
        ok(client, heartbeat("c1", group=GROUP))


def test_a_group_far_behind_may_not_read_any_more() -> None:
    world, client = prepared()
    beat_for(world, client, INTERVAL_MS - 60_000)
    ok(client, pull(max_msg_nums=1))
    beat_for(world, client, 60_000)
    answer = client.ask(pull(offset=1))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "subscription group no permission" in (answer.remark or "")
    again = world.kill()
    group = again.machine.groups.get(GROUP)
    assert group is not None
    assert not group.consume_enable, "a restart does not forget it"


@pytest.mark.parametrize("settings", [{"disable_slow_readers": False}, {"slow_reader_bytes": 10_000}])
def test_others_go_on(settings: dict[str, object]) -> None:
    world, client = prepared(**settings)
    beat_for(world, client, INTERVAL_MS)
    ok(client, pull(offset=1))


def test_a_group_that_has_pulled_everything_is_not_behind() -> None:
    world, client = prepared(slow_reader_bytes=0)
    ok(client, pull())
    beat_for(world, client, INTERVAL_MS)
    ok(client, pull())


def test_groups_without_connections_are_not_examined() -> None:
    world, client = prepared()
    client.close()
    world.tick(INTERVAL_MS)
    group = world.machine.groups.get(GROUP)
    assert group is not None
    assert group.consume_enable
