"""Offsets and messages survive the end of clients and of the broker, orderly and abrupt."""

from collections import Counter
from functools import partial

import pytest
from tests.waiting import wait_for

from .clients import Kind
from .conftest import ON_KOUROU, StartDriver, StartRun
from .scenarios import ClientError, Scene, bodies, numbered

pytestmark = pytest.mark.interop


@pytest.fixture(params=[kind for _, kind in ON_KOUROU], ids=lambda kind: kind.name)
def own_scene(
    request: pytest.FixtureRequest, start_run: StartRun, driver_of: StartDriver, start_driver: StartDriver
) -> Scene:
    """A broker that the test may stop and kill."""
    kind: Kind = request.param
    return Scene(start_run(), driver_of(kind), lambda: start_driver(kind), lambda: start_driver(Kind.GO))


def test_a_group_goes_on_where_its_last_client_was(scene: Scene) -> None:
    topic, group = scene.new_topic("going-on"), scene.name("group")
    first = scene.consume(topic, group)
    assert len(scene.received(first, 5)) == 5
    scene.close(first)
    scene.send(topic, "second", 8)
    second = scene.consume(topic, group)
    assert sorted(received_of(scene, second, "second", 8)) == numbered("second", 8)
    scene.close(second)


def test_a_group_goes_on_after_a_stop_of_the_broker(own_scene: Scene) -> None:
    topic, group = own_scene.new_topic("stopped"), own_scene.name("group")
    first = own_scene.consume(topic, group)
    assert len(own_scene.received(first, 5)) == 5
    own_scene.close(first)
    own_scene.send(topic, "before", 8)
    own_scene.broker.stop()
    own_scene.broker.restart()
    second = own_scene.consume(topic, group)
    assert sorted(received_of(own_scene, second, "before", 8)) == numbered("before", 8)


def received_of(scene: Scene, name: str, prefix: str, count: int) -> list[str]:
    """The next `count` messages with this prefix.

    Of those before them a few may come again: who is closed while its listener returns has not told of that message.
    """
    found: list[str] = []
    again = 0
    while len(found) < count and again < 5:
        came = bodies(scene.received(name, 1))
        assert came, f"nothing comes after {found}"
        if came[0].startswith(prefix):
            found += came
        else:
            again += 1
    return found


def test_clients_go_on_after_a_crash_of_the_broker(own_scene: Scene) -> None:
    """Nothing that was acknowledged is missing, whatever comes twice; order within a queue is kept."""
    topic, group = own_scene.new_topic("killed"), own_scene.name("group")
    name = own_scene.consume(topic, group)
    acknowledged = {"made-0", "first-0"}
    acknowledged.update(f"before.{n}-0" for n in range(40) if own_scene.send(topic, f"before.{n}"))
    own_scene.broker.kill()
    own_scene.broker.restart()
    for n in range(40):
        wait_for("a send that succeeds", partial(can_send, own_scene, topic, f"after.{n}"), 60)
        acknowledged.add(f"after.{n}-0")
    got: Counter[str] = Counter()
    while acknowledged - got.keys():
        came = bodies(own_scene.received(name, 1, 60))
        assert came, f"never came: {acknowledged - got.keys()}"
        got.update(came)


def test_a_consumer_with_short_heartbeats_goes_on_after_a_crash(
    start_run: StartRun, driver_of: StartDriver, start_driver: StartDriver
) -> None:
    """Heartbeats leave out subscriptions that have not changed, and the broker has forgotten them."""
    scene = Scene(start_run(), driver_of(Kind.JAVA), lambda: start_driver(Kind.JAVA), lambda: start_driver(Kind.GO))
    topic = scene.new_topic("short")
    name = scene.consume(topic, scene.name("group"), short=1)
    assert len(scene.received(name, 5)) == 5
    scene.broker.kill()
    scene.broker.restart()
    wait_for("a send that succeeds", partial(can_send, scene, topic, "after"), 60)
    assert received_of(scene, name, "after", 1) == ["after-0"]


def can_send(scene: Scene, topic: str, body: str) -> bool:
    try:
        return bool(scene.send(topic, body))
    except ClientError:  # the client has not found the broker again
        return False
