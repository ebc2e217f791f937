"""Traces of the real clients, in the usual topic and in one of their own, as mqadmin finds them."""

import re

import pytest
from tests.waiting import wait_for

from kourou.protocol.codes import RequestCode

from .mqadmin import MqAdmin
from .scenarios import PATIENCE_S, Scene, bodies
from .wire import Connection

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("trace_topic", ["RMQ_SYS_TRACE_TOPIC", "own"])
def test_what_happened_to_a_message(scene: Scene, mqadmin: MqAdmin, trace_topic: str) -> None:
    traces = scene.new_topic("traces", queues=()) if trace_topic == "own" else trace_topic
    topic, senders, group = scene.new_topic("traced", queues=()), scene.name("senders"), scene.name("group")
    (sent,) = scene.send(topic, "m", group=senders, trace=traces)
    name = scene.consume(topic, group, trace=traces)
    assert "m-0" in bodies(scene.received(name, 2))
    wait_for("the traces", lambda: kinds_of(scene, traces, sent["id"]) >= {"Pub", "SubAfter"}, PATIENCE_S)
    text = mqadmin.run(scene.broker.name_server_address, "queryMsgTraceById", "-i", sent["id"], "-t", traces)
    lines = [line.split() for line in text.splitlines() if line.startswith(("Pub", "Sub"))]
    assert [(line[0], line[1], line[-1]) for line in lines] == [
        ("Pub", senders, "success"),
        ("Sub", group, "success"),
    ], text
    assert all(re.fullmatch(r"\d+ms", line[-2]) for line in lines)
    scene.close(name)


def kinds_of(scene: Scene, traces: str, message_id: str) -> set[str]:
    """Kinds of the records about a message that a query by its id finds."""
    ext = {"topic": traces, "key": message_id, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 2**62}
    with Connection(scene.broker.address) as connection:
        answer = connection.ask(RequestCode.QUERY_MESSAGE, ext)
    found = re.findall(rb"(Pub|SubAfter)\x01[^\x02]*" + message_id.encode(), answer.body)
    return {kind.decode() for kind in found}
