"""Real clients and their transactions: committed messages are consumed, and the broker's questions are answered."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import wait_equal, wait_for

from .clients import Kind
from .paying import Payer
from .scenarios import PATIENCE_S, Found, Scene, bodies, numbered, properties
from .servers import ApacheStage, KourouRun

pytestmark = pytest.mark.interop

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.fixture(scope="module", autouse=True)
def spinning_thread_ends(apache_stage: KourouRun | ApacheStage) -> Iterator[None]:
    """After a transaction a thread of Apache's broker never sleeps again (apache/rocketmq#10966): restart the broker.

    All tests that come later would share a processor with that thread.
    """
    yield
    apache_stage.kill()
    apache_stage.restart()


def transact(scene: Scene, topic: str, group: str, outcome: str, plan: str = "unknown", **words: Any) -> list[Found]:
    """Half messages; `plan` has the group's answers to questions: the first time, the second time …"""
    words = {"prefix": outcome, "group": group, "topic": topic, "outcome": outcome, **properties(plan=plan), **words}
    sent = scene.ask("transact", **words)
    assert {one["status"] for one in sent} == {"SEND_OK"}, sent
    return sent


def test_transactions(scene: Scene) -> None:
    topic, group = scene.name("tx"), scene.name("payers")
    committed = transact(scene, topic, group, "commit", count=3, tag="t", keys="k", flag=7)
    transact(scene, topic, group, "rollback", count=3)
    transact(scene, topic, group, "unknown", "unknown/commit", count=2, prefix="late", tag="t")
    transact(scene, topic, group, "unknown", "rollback", count=2, prefix="never")
    consumer = scene.consume(topic, scene.name("group"))
    received = scene.received(consumer, 5)
    assert sorted(bodies(received)) == [*numbered("commit", 3), *numbered("late", 2)]
    by_body = {one["body"]: one for one in received}
    for number, one in enumerate(committed):
        got = by_body[f"commit-{number}"]
        assert (got["id"], got["tag"], got["keys"].strip(), got["flag"]) == (one["id"], "t", "k", "7")
        assert one["transaction"] == one["id"]
    waits = {one.get("property.WAIT") for one in received}
    assert len(waits) == 1, "a message that was asked about keeps the property of its sender"
    questions = asked(scene, group, 6)
    answered = [one for one in questions if one["body"].startswith("late")]
    assert sorted((one["body"], one["times"]) for one in answered if int(one["times"]) < 3) == [
        ("late-0", "1"),
        ("late-0", "2"),
        ("late-1", "1"),
        ("late-1", "2"),
    ]
    assert {(one["topic"], one["tag"]) for one in answered} == {(topic, "t")}
    assert scene.received(consumer, 1, 3) == []


def asked(scene: Scene, group: str, count: int) -> list[Found]:
    """At least this number of questions about undecided messages."""
    found: list[Found] = []

    def look() -> bool:
        nonlocal found
        found += scene.ask("questions", group=group)
        return len([one for one in found if not one["body"].startswith(("commit", "rollback"))]) >= count

    wait_for(f"{count} questions", look, PATIENCE_S)
    return found


def test_undecided_transactions_are_discarded(scene: Scene) -> None:
    if scene.kind is Kind.JAVA_49:
        pytest.skip("the client has no part in it that another version has not")
    topic, group = scene.name("tx"), scene.name("payers")
    before = scene.end_of(DISCARD_TOPIC, 0)
    transact(scene, topic, group, "unknown", prefix="undecided")
    assert [int(one["times"]) for one in asked(scene, group, 3)][:3] == [1, 2, 3]
    wait_equal(lambda: scene.end_of(DISCARD_TOPIC, 0), before + 1, PATIENCE_S)


def test_another_process_of_the_group_is_asked(scene: Scene) -> None:
    topic, group = scene.name("tx"), scene.name("payers")
    other = scene.start_driver()
    scene.ask(
        "transact", by=other, topic=topic, group=group, outcome="commit", prefix="known", **properties(plan="commit")
    )
    transact(scene, topic, group, "unknown", "unknown/commit", prefix="left")
    consumer = scene.consume(topic, scene.name("group"))
    assert sorted(bodies(scene.received(consumer, 2))) == ["known-0", "left-0"]


# ── By hand ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("where", ["kourou_run", "apache_stage"])
def test_answers_to_ends(where: str, request: pytest.FixtureRequest) -> None:
    stage: KourouRun | ApacheStage = request.getfixturevalue(where)
    with Payer(stage.address, f"hand-{where}") as payer:
        sent = payer.send(f"hand-{where}", "A" * 32)
        assert (sent["queueId"], sent["transactionId"]) == ("1", "A" * 32)
        assert payer.end(sent, 5)[0] == 1
        assert payer.end(sent, 8, commitLogOffset=10**12) == (1, "Find prepared transaction message failed")
        assert payer.end(sent, 8, producerGroup="others") == (1, "The producer group wrong")
        assert payer.end(sent, 12, tranStateTableOffset=10**6) == (1, "The transaction state table offset wrong")
        assert payer.end(sent, 8)[0] == 0
        born_ms = int(time.time() * 1000) - 10_000
        immune = payer.send(f"hand-{where}", "B" * 32, born_ms, CHECK_IMMUNITY_TIME_IN_SECONDS="1")
        assert payer.end(immune, 8)[0] == 604
        assert payer.end(immune, 12, fromTransactionCheck="true")[0] == 0
