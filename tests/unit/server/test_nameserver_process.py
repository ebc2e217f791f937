"""A name server that listens on loopback: its files, its connections, its end."""

import asyncio
import gc
import json
import logging
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.nameserver.settings import Settings
from kourou.net.client import connect
from kourou.net.connection import Connection
from kourou.net.errors import ConnectFailedError, ConnectionLostError
from kourou.net.listener import Listener
from kourou.net.tls import TlsMode, TlsSettings
from kourou.protocol import conf_text, fastjson
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.server import nameserver as nameserver_module
from kourou.server.conf import ConfError
from kourou.server.files import write_safely
from kourou.server.nameserver import NEVER_IDLE, NameServerProcess

TIMEOUT = 10.0


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        listen_port=0,
        kv_config_path=str(tmp_path / "namesrv" / "kvConfig.json"),
        config_store_path=str(tmp_path / "namesrv" / "namesrv.properties"),
    )


class Peer:
    """A client of one name server."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def ask(self, code: RequestCode, body: bytes = b"", **ext: str) -> Command:
        return await self.connection.request(Command(code, ext=ext, body=body), TIMEOUT)

    async def put(self, value: str) -> Command:
        return await self.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value=value)

    async def get(self) -> str | None:
        answer = await self.ask(RequestCode.GET_KV_CONFIG, namespace="n", key="k")
        return (answer.ext or {}).get("value")

    async def register(self, group: str, broker_id: int, address: str, **ext: str) -> Command:
        ext |= {"clusterName": "C", "brokerName": group, "brokerId": str(broker_id), "brokerAddr": address}
        return await self.ask(RequestCode.REGISTER_BROKER, b"", haServerAddr="h:1", **ext)

    async def members(self, group: str) -> dict[str, str]:
        answer = await self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, clusterName="C", brokerName=group)
        found = fastjson.loads(answer.body)["brokerMemberGroup"]["brokerAddrs"]
        return {str(broker_id): address for broker_id, address in found.items()}

    async def settings(self) -> dict[str, str]:
        return conf_text.loads((await self.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode())


Connect = Callable[[NameServerProcess], Awaitable[Peer]]


@pytest.fixture
async def peer_of() -> AsyncIterator[Connect]:
    connections: list[Connection] = []

    async def open_one(process: NameServerProcess) -> Peer:
        host, _, port = process.address.rpartition(":")
        connections.append(await connect(host.strip("[]"), int(port), timeout=TIMEOUT))
        return Peer(connections[-1])

    yield open_one
    for connection in connections:
        connection.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Asks until the answer is yes."""
    async with asyncio.timeout(TIMEOUT):
        while not await condition():
            pass


# ── What is kept ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_kv_config_survives_a_restart(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        assert (await peer.put("很快")).code == ResponseCode.SUCCESS
        assert json.loads(Path(settings.kv_config_path).read_text()) == {"configTable": {"n": {"k": "很快"}}}
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        assert await peer.get() == "很快"
        await peer.ask(RequestCode.DELETE_KV_CONFIG, namespace="n", key="k")
    async with NameServerProcess(settings) as process:
        assert await (await peer_of(process)).get() is None


async def test_many_changes_at_once_are_all_kept(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        answers = await asyncio.gather(
            *(peer.ask(RequestCode.PUT_KV_CONFIG, namespace="n", key=str(i), value=str(i)) for i in range(200))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    kept = json.loads(Path(settings.kv_config_path).read_text())["configTable"]["n"]
    assert kept == {str(i): str(i) for i in range(200)}


async def test_what_can_not_be_written_is_not_changed(settings: Settings, peer_of: Connect, tmp_path: Path) -> None:
    obstacle = tmp_path / "namesrv"
    obstacle.write_text("a file where a folder should be")
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        refused = await peer.put("x")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert refused.remark == f"not changed: {settings.kv_config_path} can't be written: File exists"
        assert await peer.get() is None
        refused = await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert (await peer.settings())["enableTopicList"] == "true"
        # Routes are served meanwhile, and when the obstacle is gone, changes are, too.
        assert (await peer.register("a", 0, "h:2")).code == ResponseCode.SUCCESS
        obstacle.unlink()
        assert (await peer.put("x")).code == ResponseCode.SUCCESS
        assert await peer.get() == "x"


async def test_a_broken_kv_config_is_replaced_by_its_backup(
    settings: Settings, peer_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(settings.kv_config_path)
    path.parent.mkdir()
    path.write_text('{"configTable":{"n":{"k"')
    path.with_name("kvConfig.json.bak").write_text('{"configTable":{"n":{"k":"from the backup"}}}')
    async with NameServerProcess(settings) as process:
        assert await (await peer_of(process)).get() == "from the backup"
    assert "the KV configuration can't be read path=" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", '{"configTable":{"n":7}}', '{"configTable":', "\x00"])
def test_a_broken_kv_config_without_backup_is_no_silent_loss(settings: Settings, content: str) -> None:
    path = Path(settings.kv_config_path)
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(ConfError, match=r"kvConfig.json: .* repair or remove the file") as raised:
        NameServerProcess(settings)
    assert "\n" not in str(raised.value)
    assert path.read_text() == content


async def test_changed_settings_are_written_with_what_else_is_in_the_file(settings: Settings, peer_of: Connect) -> None:
    others = {"tls.server.keyPassword": "geheim é", "some.thing": "a=b\\c"}
    async with NameServerProcess(settings, other_properties=others) as process:
        peer = await peer_of(process)
        assert (await peer.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"waitSecondsForService=7")).code == 0
        shown = await peer.settings()
        assert shown["waitSecondsForService"] == "7"
        assert shown["listenPort"] == process.address.rpartition(":")[2]
        assert "tls.server.keyPassword" not in shown
    written = conf_text.loads(Path(settings.config_store_path).read_text())
    assert others.items() <= written.items()
    assert written["waitSecondsForService"] == "7"


# ── Connections ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_broker_goes_with_its_connection(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(settings) as process:
        broker, client = await peer_of(process), await peer_of(process)
        await broker.register("a", 0, "h:2")
        assert await client.members("a") == {"0": "h:2"}
        broker.connection.abort("killed")

        async def is_gone() -> bool:
            return await client.members("a") == {}

        await until(is_gone)


async def test_connections_are_freed_without_the_garbage_collector(settings: Settings, peer_of: Connect) -> None:
    """A server makes its collections rare: they must have nothing to do."""
    gc.collect()
    gc.disable()
    try:
        async with NameServerProcess(settings) as process:
            peers = [await peer_of(process) for _ in range(20)]
            for number, peer in enumerate(peers):
                await peer.register("a", number, f"h:{number}")
                await peer.put("x")
            connections = [weakref.ref(connection) for connection in process.listener.connections]
            assert len(connections) == 20
            for peer in peers[1:]:
                peer.connection.abort("killed")

            async def are_gone() -> bool:
                return await peers[0].members("a") == {"0": "h:0"}

            await until(are_gone)
            assert sum(connection() is not None for connection in connections) == 1
    finally:
        gc.enable()


async def test_a_silent_broker_is_cut_off(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(replace(settings, scan_not_active_broker_interval=1)) as process:
        broker, client = await peer_of(process), await peer_of(process)
        await broker.register("a", 0, "h:2", heartbeatTimeoutMillis="1")
        async with asyncio.timeout(TIMEOUT):
            await broker.connection.lost
        assert await client.members("a") == {}


async def test_ipv6(settings: Settings, peer_of: Connect) -> None:
    try:
        async with NameServerProcess(replace(settings, bind_address="::1")) as process:
            assert process.address.startswith("[::1]:")
            assert (await (await peer_of(process)).put("x")).code == ResponseCode.SUCCESS
    except ConfError as error:
        pytest.skip(f"no IPv6 here: {error}")


async def test_tls_is_demanded_where_it_is_enforced(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(settings, tls=TlsSettings(mode=TlsMode.ENFORCING)) as process:
        plain = await peer_of(process)
        with pytest.raises(ConnectionLostError):
            await plain.get()
        port = int(process.address.rpartition(":")[2])
        connection = await connect("127.0.0.1", port, tls=TlsSettings(), timeout=TIMEOUT)
        assert (await Peer(connection).put("x")).code == ResponseCode.SUCCESS
        connection.close()


async def test_a_port_that_is_taken_is_told_in_one_line(settings: Settings) -> None:
    async with NameServerProcess(settings) as process:
        port = int(process.address.rpartition(":")[2])
        second = NameServerProcess(replace(settings, listen_port=port))
        with pytest.raises(ConfError, match=rf"can't listen on 127.0.0.1:{port}: .*in use.* -p PORT") as raised:
            await second.start()
        assert "\n" not in str(raised.value)
        await second.stop()
        third = NameServerProcess(replace(settings, listen_port=70000))
        with pytest.raises(ConfError, match=r"can't listen on 127\.0\.0\.1:70000"):
            await third.start()
        await third.stop()


def test_an_idle_time_of_zero_means_never(settings: Settings) -> None:
    process = NameServerProcess(replace(settings, server_channel_max_idle_time_seconds=0))
    assert process.listener._limits.idle == NEVER_IDLE


# ── Messages to brokers ─────────────────────────────────────────────────────────────────────────────────────────────


class Broker:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Command] = asyncio.Queue()

    def requests(self, connection: Connection, commands: list[Command]) -> None:
        for command in commands:
            self.told.put_nowait(command)

    def closed(self, connection: Connection) -> None:
        pass


async def test_brokers_are_told_of_the_smallest_id(settings: Settings, peer_of: Connect) -> None:
    broker = Broker()
    listener = Listener(broker)
    await listener.start("127.0.0.1", 0)
    address = f"127.0.0.1:{listener.port}"
    async with NameServerProcess(replace(settings, notify_min_broker_id_changed=True)) as process:
        slave, master = await peer_of(process), await peer_of(process)
        await slave.register("a", 1, address, enableActingMaster="true")
        await master.register("a", 0, "10.0.0.1:1", enableActingMaster="true")
        async with asyncio.timeout(TIMEOUT):
            told = await broker.told.get()
        assert told.code == RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE
        assert told.is_one_way
        assert told.ext == {"minBrokerId": "0", "minBrokerAddr": "10.0.0.1:1", "haBrokerAddr": "h:1"}
        master.connection.abort("killed")
        async with asyncio.timeout(TIMEOUT):
            told = await broker.told.get()
        assert told.ext == {"minBrokerId": "1", "minBrokerAddr": address, "offlineBrokerAddr": "10.0.0.1:1"}
    await listener.close()


@pytest.mark.parametrize(
    "address",
    [
        "nonsense",
        ":",
        "127.0.0.1:",
        "127.0.0.1:-1",
        "[::1",
        "a b:1",
        "\x00:1",
        "10.0.0.1:1\r\nX: y",
        "\x1b[2J:1",
        "a:123456",
    ],
)
async def test_an_address_that_is_none_is_refused(settings: Settings, peer_of: Connect, address: str) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        refused = await peer.register("a", 1, address)
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert (refused.remark or "").startswith("register broker failed: brokerAddr=")
        assert (refused.remark or "").isprintable()
        assert not process.machine.tables.brokers


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 256])
async def test_names_that_can_not_be_printed_are_refused(settings: Settings, peer_of: Connect, name: str) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        usual = {"clusterName": "C", "brokerName": "a", "brokerId": "0", "brokerAddr": "a:1", "haServerAddr": "h:1"}
        for field in ("brokerName", "clusterName", "haServerAddr"):
            refused = await peer.ask(RequestCode.REGISTER_BROKER, b"", **(usual | {field: name}))
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "unprintable characters" in (refused.remark or "")
        assert not process.machine.tables.brokers


async def test_only_the_host_that_registered_is_connected_to(
    settings: Settings, peer_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise any peer could make the name server connect to any address."""
    async with NameServerProcess(replace(settings, notify_min_broker_id_changed=True)) as process:
        peer = await peer_of(process)
        await peer.register("a", 1, "10.0.0.9:1", enableActingMaster="true")
        await peer.register("a", 0, "10.0.0.1:1", enableActingMaster="true")
        for _ in range(10_000):
            if "broker not notified address=10.0.0.9:1: it registered from another host, 127.0.0.1" in caplog.text:
                break
            await asyncio.sleep(0.001)
        else:
            pytest.fail(caplog.text)


async def test_a_second_address_of_a_broker_is_logged(
    settings: Settings, peer_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        await peer.register("a", 0, "10.0.0.1:1")
        await peer.register("a", 0, "10.0.0.1:1")
        assert "the same id" not in caplog.text
        await peer.register("a", 0, "10.0.0.2:1")
    assert "a second broker has the same id name=a id=0 address=10.0.0.2:1 before=10.0.0.1:1" in caplog.text


async def test_no_request_makes_the_name_server_connect_to_brokers(settings: Settings, peer_of: Connect) -> None:
    async with NameServerProcess(settings) as process:
        peer = await peer_of(process)
        change = Command(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"notifyMinBrokerIdChanged=true")
        assert (await peer.connection.request(change, TIMEOUT)).code == ResponseCode.NO_PERMISSION


async def test_nobody_is_told_anything_at_the_end(
    settings: Settings, peer_of: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the name server that leaves, not the brokers."""
    told: list[object] = []

    async def tell(*what: object) -> None:
        told.append(what)

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(nameserver_module, "tell", tell)
    async with NameServerProcess(replace(settings, notify_min_broker_id_changed=True)) as process:
        master, slave = await peer_of(process), await peer_of(process)
        await master.register("a", 0, "10.0.0.1:1", enableActingMaster="true")
        await slave.register("a", 1, "10.0.0.2:1", enableActingMaster="true")
    assert told == []
    assert "broker removed" not in caplog.text


# ── The end ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class SlowDisk:
    """Writes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asked, self._allowed = threading.Event(), threading.Event()
        monkeypatch.setattr(nameserver_module, "write_safely", self._write)

    def _write(self, path: Path, content: str) -> None:
        self._asked.set()
        assert self._allowed.wait(TIMEOUT)
        write_safely(path, content)

    async def is_asked(self) -> None:
        assert await asyncio.to_thread(self._asked.wait, TIMEOUT)

    def go_on(self) -> None:
        self._allowed.set()


@pytest.mark.parametrize("one_way", [False, True])
async def test_the_end_waits_for_what_is_being_written(
    settings: Settings, peer_of: Connect, monkeypatch: pytest.MonkeyPatch, one_way: bool
) -> None:
    disk = SlowDisk(monkeypatch)
    process = NameServerProcess(settings)
    await process.start()
    peer = await peer_of(process)
    put = Command(RequestCode.PUT_KV_CONFIG, ext={"namespace": "n", "key": "k", "value": "the last one"})
    if one_way:
        put.flag = CommandFlag.ONE_WAY
    asked = asyncio.create_task(peer.connection.send(put) if one_way else peer.connection.request(put, TIMEOUT))
    await disk.is_asked()
    stopped = asyncio.create_task(process.stop())

    async def lets_nobody_in() -> bool:
        try:
            await peer_of(process)
        except ConnectFailedError:
            return True
        return False

    await until(lets_nobody_in)
    assert not stopped.done()
    disk.go_on()
    await stopped
    answer = await asked
    assert one_way or (answer is not None and answer.code == ResponseCode.SUCCESS)
    assert "the last one" in Path(settings.kv_config_path).read_text()


async def test_a_batch_of_slow_requests_is_cut_short(
    settings: Settings, peer_of: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if each request took longer than a connection's turn: one is served in each, and all are in their order."""
    monkeypatch.setattr(nameserver_module, "BATCH_TIME", 0.0)
    batches: list[int] = []
    async with NameServerProcess(settings) as process:
        serve = process.requests

        def counted(connection: Connection, commands: list[Command]) -> None:
            batches.append(len(commands))
            serve(connection, commands)

        monkeypatch.setattr(process, "requests", counted)
        connection = await connect("127.0.0.1", process.listener.port, timeout=TIMEOUT)
        answers = await asyncio.gather(
            *(connection.request(Command(RequestCode.GET_NAMESRV_CONFIG), TIMEOUT) for _ in range(64))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert len(batches) == 64
        connection.close()
