"""How a broker reaches its name servers."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import eventually

from kourou.nameserver.settings import Settings
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.server.conf import ConfError, client_tls_settings
from kourou.server.name_servers import NameServers
from kourou.server.nameserver import NameServerProcess

QUESTION = Command(RequestCode.GET_BROKER_CLUSTER_INFO)


async def test_in_tls_where_that_is_wanted(tmp_path: Path) -> None:
    settings = Settings(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv"),
        config_store_path=str(tmp_path / "c"),
    )
    async with NameServerProcess(settings, tls=TlsSettings(mode=TlsMode.ENFORCING)) as process:
        for tls, answers in ((None, False), (client_tls_settings({}), True)):
            servers = NameServers([process.address], tls)
            (link,) = await servers.links()
            assert isinstance(await link.ask(QUESTION, 5.0), Command) is answers
            servers.close()


async def test_each_address_behind_a_name_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = ["10.0.0.1", "fd00::1"]

    async def found(host: str, port: int, **_: Any) -> list[tuple[Any, ...]]:
        assert (host, port) == ("mq.example", 9876)
        if not addresses:
            raise OSError("no answer")
        return [(0, 0, 0, "", (address, port)) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    servers = NameServers(["mq.example:9876"], by_lookup=True)
    assert servers
    first = {link.address: link for link in await servers.links()}
    assert first.keys() == {"10.0.0.1:9876", "[fd00::1]:9876"}
    addresses[:] = ["10.0.0.1", "10.0.0.2"]
    second = {link.address: link for link in await servers.links()}
    assert second.keys() == {"10.0.0.1:9876", "10.0.0.2:9876"}
    assert second["10.0.0.1:9876"] is first["10.0.0.1:9876"], "its connection stays"
    addresses.clear()
    assert {link.address for link in await servers.links()} == second.keys(), "nobody is left for want of an answer"


async def test_a_connection_that_is_made_during_close_is_closed(tmp_path: Path) -> None:
    settings = Settings(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv"),
        config_store_path=str(tmp_path / "c"),
    )
    async with NameServerProcess(settings) as process:
        servers = NameServers([process.address])
        (link,) = await servers.links()
        asked = asyncio.create_task(link.ask(QUESTION, 5.0))
        await asyncio.sleep(0)  # it begins to connect
        servers.close()
        assert "closed" in str(await asked)
        assert "closed" in str(await link.ask(QUESTION, 5.0)), "it does not connect again"
        await eventually(lambda: not process.listener.connections)


def test_who_asks_for_proof_gets_it() -> None:
    assert client_tls_settings({}).test_mode
    wanted = client_tls_settings({"tls.client.authServer": "true"})
    assert (wanted.test_mode, wanted.verify_peer) == (False, True)
    with pytest.raises(ConfError, match="the TLS settings for connections to other servers are invalid"):
        client_tls_settings({"tls.client.trustCertPath": "/no/file", "tls.client.authServer": "true"})


async def test_one_that_does_not_answer_is_asked_last_the_next_time(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        await _ask_beside(f"127.0.0.1:{closed.getsockname()[1]}", tmp_path)


async def _ask_beside(dead: str, tmp_path: Path) -> None:
    """`dead` is a port at which nobody listens."""
    servers = NameServers([dead])
    assert await servers.ask_one(QUESTION, 5.0) is None
    servers.close()
    settings = Settings(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(tmp_path / "kv"),
        config_store_path=str(tmp_path / "c"),
    )
    async with NameServerProcess(settings) as process:
        servers = NameServers([dead, process.address])
        silent, _ = await servers.links()
        for _ in range(2):
            assert isinstance(await servers.ask_one(QUESTION, 5.0), Command)
            assert silent.is_silent
        servers.close()
