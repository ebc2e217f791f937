"""Offset ids name a server: no other than a broker of the cluster is connected to."""

import socket

import pytest

import kourou
from kourou.client import NoBrokerError
from kourou.protocol.hosts import encode_host
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset


async def test_only_brokers_of_the_cluster_are_dialled() -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        host = encode_host(f"127.0.0.1:{stranger.getsockname()[1]}")
        offset_id = encode_offset_id(host, PhysicalOffset(0))
        async with kourou.embedded() as broker, kourou.connect(broker.namesrv) as mq:
            sent = await mq.send("orders", b"hello")
            async with kourou.connect(broker.namesrv) as other:  # knows no route yet
                found = await other.admin.messages.by_offset_id(sent.offset_id)
                assert found is not None and found.body == b"hello"
            with pytest.raises(NoBrokerError, match="not a broker of this cluster"):
                await mq.admin.messages.by_offset_id(offset_id)
            with pytest.raises(NoBrokerError, match="not a broker of this cluster"):
                await mq.admin.messages.resume_check("orders", offset_id)
            with pytest.raises(NoBrokerError, match="not a broker of this cluster"):
                await mq.admin.groups.consume_directly("billing", "client", offset_id)
        with pytest.raises(BlockingIOError):
            stranger.accept()
