"""A broker that authenticates clients: Apache's, with access control."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kourou.client import Credentials, connect
from kourou.protocol.errors import NoPermissionError

from .conftest import PATIENT, apache
from .steps import make_topic

pytestmark = [pytest.mark.interop, pytest.mark.slow]

ME = Credentials("rocketmq", "12345678")
SETTINGS = {
    "authenticationEnabled": "true",
    "authenticationProvider": "org.apache.rocketmq.auth.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": (
        "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
    ),
    "initAuthenticationUser": '{"username":"rocketmq","password":"12345678"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"rocketmq","secretKey":"12345678"}',
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name server of a guarded broker."""
    with apache(tmp_path_factory.mktemp("guarded"), SETTINGS) as world:
        yield world.namesrv


async def test_signed_requests_are_served(guarded: str, name: str) -> None:
    async with connect(guarded, settings=replace(PATIENT, credentials=ME)) as mq:
        await make_topic(mq, name, queues=1)
        sent = await mq.send(name, b"mine", tag="paid", keys=["k"])
        await mq.send_batch(name, [b"a", b"b"])
        async with mq.consume(name, group=name, start="first") as consumer:
            found = []
            for _ in range(3):
                message = await consumer.next(30)
                assert message is not None
                message.ack()
                found.append(message.body)
        assert sorted(found) == [b"a", b"b", b"mine"]
        assert sent.is_safe


@pytest.mark.parametrize("credentials", [None, Credentials("rocketmq", "wrong"), Credentials("stranger", "12345678")])
async def test_others_are_refused_with_the_reason(guarded: str, name: str, credentials: Credentials | None) -> None:
    async with connect(guarded, settings=replace(PATIENT, credentials=credentials)) as mq:
        with pytest.raises(NoPermissionError, match=r"(?i)user|signature"):
            await mq.send("guarded", b"not mine")
