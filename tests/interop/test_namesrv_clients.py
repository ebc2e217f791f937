"""Real clients find a real broker through the name server, send messages, and receive them."""

import ssl

import pytest
from tests.waiting import wait_for

from .clients import Kind
from .wire import Connection
from .worlds import StartClient, World

pytestmark = pytest.mark.interop

COUNT = 20


@pytest.mark.parametrize("kind", list(Kind), ids=lambda kind: kind.value)
def test_what_is_sent_arrives(world: World, start_client: StartClient, kind: Kind) -> None:
    topic = f"client-{kind.name}"
    client = start_client(kind, world.name_server.address)
    client.send(topic, "body", COUNT)  # makes the topic: its route must come from the name server
    address = f'"127.0.0.1:{world.broker.address.rpartition(":")[2]}"'
    wait_for("the route", lambda: address in world.run("topicRoute", "-t", topic))
    client.subscribe(topic, f"group-{kind.name}")
    received = client.receive(f"group-{kind.name}", COUNT)
    assert sorted(received) == sorted(f"body-{n}" for n in range(COUNT))


def test_topic_made_by_mqadmin_is_found(world: World, start_client: StartClient) -> None:
    made = world.run("updateTopic", "-t", "made-before", "-c", "InteropCluster", "-r", "3", "-w", "3")
    assert f"create topic to {world.broker.address} success" in made
    client = start_client(Kind.JAVA, world.name_server.address)
    client.send("made-before", "sent", COUNT)
    client.subscribe("made-before", "group-made-before")
    received = client.receive("group-made-before", COUNT)
    assert sorted(received) == sorted(f"sent-{n}" for n in range(COUNT))


def test_tls_and_plain_text_share_a_port(world: World) -> None:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with Connection(world.name_server.address, trusting) as secret, Connection(world.name_server.address) as plain:
        answers = [connection.ask(105, {"topic": "broker-a"}) for connection in (secret, plain)]
    assert answers[0] == answers[1]
    assert world.broker.address.encode() in answers[0].body
