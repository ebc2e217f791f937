"""Real clients send in all their ways, and consumers get exactly these messages."""

import pytest

from .clients import Kind
from .conftest import StartDriver
from .scenarios import Scene, bodies, numbered, properties
from .servers import ApacheStage, KourouRun

pytestmark = pytest.mark.interop

MIB = 1024 * 1024


def test_every_way_of_sending(scene: Scene) -> None:
    topic = scene.new_topic(queues=())
    sent = {how: scene.send(topic, how, 5, how=how) for how in ("sync", "async", "oneway", "batch")}
    sent["queue"] = scene.send(topic, "queue", 5, how="queue", queue=3)
    sent["hash"] = scene.send(topic, "hash", 5, how="hash", key="order 17")
    received = scene.received(scene.consume(topic, scene.name("group")), 31)
    expected = ["made-0", *(body for how in sent for body in numbered(how, 5))]
    assert sorted(bodies(received)) == sorted(expected)
    by_body = {one["body"]: one for one in received}

    for how in ("sync", "queue", "hash"):
        for n, one in enumerate(sent[how]):
            got = by_body[f"{how}-{n}"]
            assert (got["id"], got["queue"], got["offset"]) == (one["id"], one["queue"], one["offset"])
            assert one["region"] == "DefaultRegion"
            assert len(one["offsetId"]) == 32
    assert {one["queue"] for one in sent["queue"]} == {"3"}
    assert len({one["queue"] for one in sent["hash"]}) == 1
    assert len({one["id"] for how in ("sync", "async") for one in sent[how]}) == 10

    (batch,) = sent["batch"]
    in_batch = [by_body[f"batch-{n}"] for n in range(5)]
    assert [int(one["offset"]) for one in in_batch] == [int(batch["offset"]) + n for n in range(5)]
    assert {one["queue"] for one in in_batch} == {batch["queue"]}
    assert len(batch["offsetId"].split(",")) == 5
    if scene.kind is not Kind.GO:  # which gives the messages of a batch no ids of their own
        assert [one["id"] for one in in_batch] == batch["id"].split(",")


@pytest.mark.parametrize(
    ("size", "fill"), [(64 * 1024, "letters"), (4095, "noise"), (39 * MIB // 10, "noise")], ids=lambda word: str(word)
)
def test_bodies_small_and_large(scene: Scene, size: int, fill: str) -> None:
    """Letters are compressed by the client that sends, and whole again at the one that receives."""
    topic = scene.name("bodies")
    sent = scene.send(topic, "large", 2, size=size, fill=fill)
    received = scene.received(scene.consume(topic, scene.name("group")), 2)
    assert sorted(one["crc"] for one in received) == sorted(one["crc"] for one in sent)
    assert {int(one["size"]) for one in received} == {size}


def test_unicode_everywhere(scene: Scene) -> None:
    """In all that is text: bodies, tags, keys, properties; and with characters that need two of Java's."""
    topic = scene.name("unicode")
    own = properties(größe="大きい 🐘 = \\u0041")
    scene.send(topic, "corps-体-🚀", tag="étiquette-鍵", keys="clé-🔑", flag=7, **own)
    # The Go client makes hashes of other bytes than Java, so that it finds no tag beyond ASCII, with any broker.
    tags = "*" if scene.kind is Kind.GO else "other || étiquette-鍵"
    (received,) = scene.received(scene.consume(topic, scene.name("group"), tags=tags), 1)
    assert received["body"] == "corps-体-🚀-0"
    assert received["property.größe"] == "大きい 🐘 = \\u0041"
    assert (received["tag"], received["keys"].strip(), received["flag"]) == ("étiquette-鍵", "clé-🔑", "7")


@pytest.mark.parametrize("kind", [Kind.JAVA_BINARY, Kind.JAVA_TLS], ids=lambda kind: kind.name)
def test_other_dialects(kind: Kind, kourou_run: KourouRun | ApacheStage, start_driver: StartDriver) -> None:
    """The compact header, and TLS on the same port."""
    driver = start_driver(kind)
    if kind is Kind.JAVA_TLS and isinstance(kourou_run, ApacheStage):
        pytest.skip("Apache stands in, and was started without TLS")
    scene = Scene(kourou_run, driver, lambda: driver, lambda: driver)
    topic = scene.new_topic()
    scene.send(topic, "batch", 20, how="batch", tag="b")
    received = scene.received(scene.consume(topic, scene.name("group")), 25)
    assert sorted(bodies(received)) == sorted(["made-0", *["first-0"] * 4, *numbered("batch", 20)])
