"""A broker group on loopback: a name server, a master and slaves, each with sockets and files of its own."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kourou.broker.properties import Configuration, ProcessSettings, configure
from kourou.broker.settings import BrokerSettings
from kourou.nameserver.settings import Settings
from kourou.net.tls import TlsSettings
from kourou.server.broker import BrokerPaths, BrokerProcess
from kourou.server.nameserver import NameServerProcess
from kourou.store.settings import EMBEDDED


@asynccontextmanager
async def name_server(root: Path, *, support_acting_master: bool = False) -> AsyncIterator[NameServerProcess]:
    settings = Settings(
        bind_address="127.0.0.1",
        listen_port=0,
        kv_config_path=str(root / "kvConfig.json"),
        config_store_path=str(root / "namesrv.properties"),
        support_acting_master=support_acting_master,
    )
    process = NameServerProcess(settings)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def broker(
    root: Path,
    name_servers: list[str],
    tls: TlsSettings | None = None,
    group_socket: socket.socket | None = None,
    /,
    **properties: object,
) -> BrokerProcess:
    """A broker of the group broker-a; not started."""
    settings = BrokerSettings(name="broker-a", ip="127.0.0.1", ha_ip="127.0.0.1", port=0)
    given = {key: str(value) for key, value in properties.items()}
    configuration = configure(Configuration(settings, EMBEDDED, ProcessSettings(), {}), given)
    paths = BrokerPaths(root)
    return BrokerProcess(configuration, paths, name_servers, host="127.0.0.1", tls=tls, group_socket=group_socket)
