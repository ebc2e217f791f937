"""Every administrative request gets an answer, however invalid it is, and the broker continues."""

from random import Random

import msgspec
import pytest
from tests.unit.broker.asking import GROUP, TOPIC, heartbeat, ok, send

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers.table import REQUESTS, Direction
from kourou.testing.broker import SimulatedBroker

OF_OPERATORS = (Direction.ADMIN_TO_BROKER, Direction.ADMIN_TO_CLIENT, Direction.BROKER_TO_BROKER)

WORDS = ("", " ", "0", "-1", "1", "2147483647", "9223372036854775807", "-9223372036854775808", "true", "null", "@")
NAMES = (TOPIC, GROUP, "nowhere", "../../x", "a@b", "%RETRY%", "%DLQ%" + GROUP, "TBW102", "\x00", "名" * 50, "x" * 300)
BODIES = (b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"a":' * 500, b"a=b\n", b'{"groupName":{}}', b"\0" * 100)


def field_names(code: int) -> list[str]:
    """Keys on the wire."""
    header = REQUESTS[code].header
    return [] if header is None else [field.encode_name for field in msgspec.structs.fields(header)]


@pytest.mark.parametrize("seed", range(4))
def test_every_request_has_an_answer(seed: int) -> None:
    chance = Random(seed)
    world = SimulatedBroker()
    client = world.connect()
    ok(client, send())
    ok(client, heartbeat("c1", group=GROUP))
    for code in [code for code, about in REQUESTS.items() if about.direction in OF_OPERATORS] * 10:
        command = Command(code, ext=_nonsense(code, chance), body=chance.choice(BODIES))
        (number,) = client.send(command)
        for ask in list(client.asked):
            client.answer(ask)
        world.tick(100)
        assert number in client.answers, command
    ok(client, Command(RequestCode.PROMOTE_BROKER, ext={"force": "true"}))  # a forced demotion makes sense
    ok(client, send(topic="BenchmarkTest"))


def _nonsense(code: int, chance: Random) -> dict[str, str] | None:
    if chance.random() < 0.1:
        return None
    return {name: chance.choice(chance.choice((WORDS, NAMES))) for name in field_names(code) if chance.random() < 0.9}
