"""Controllers with sockets and files."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.authority import Authority
from tests.interop.processes import free_port
from tests.waiting import eventually

import kourou
from kourou.controller.settings import ControllerSettings, is_controller_property
from kourou.embedded import Embedded
from kourou.net.tls import TlsSettings
from kourou.protocol.errors import KourouError
from kourou.server.access_files import controller_access
from kourou.server.conf import AddressError, ConfError
from kourou.server.controller import FILE, ControllerProcess
from kourou.server.ha_gate import controller_security

QUICK = ControllerSettings(peers="n0-127.0.0.1:0", election_ms=200, heartbeat_ms=50)


def trusting(authority: Authority) -> TlsSettings:
    """The certificate of a controller, and those of the others."""
    return replace(authority.settings("controller"), trust_path=authority.path)


def three_ports(processes: list[ControllerProcess]) -> list[str]:
    """Where controllers listen for each other."""
    return [str(int(process.address.rpartition(":")[2]) + 1) for process in processes]


def three(root: Path) -> list[ControllerSettings]:
    """The port after that of each controller has to be free, too."""
    ports: list[int] = []
    while len(ports) < 3:
        port = free_port(1)
        if not {port - 1, port, port + 1} & set(ports):
            ports.append(port)
    peers = ";".join(f"n{number}-127.0.0.1:{port}" for number, port in enumerate(ports))
    return [replace(QUICK, peers=peers, self_id=f"n{number}", store=str(root / f"n{number}")) for number in range(3)]


async def leads(controller: ControllerProcess) -> None:
    await eventually(lambda: controller.machine.member.is_leading)


async def test_a_controller_alone_elects_the_master_of_a_broker_and_remembers_it(tmp_path: Path) -> None:
    settings = replace(QUICK, store=str(tmp_path / "controller"))
    async with ControllerProcess(settings) as controller:
        await leads(controller)
        address = controller.address
        properties = {"enableControllerMode": "true", "controllerAddr": address}
        async with (
            Embedded(store=tmp_path / "broker", properties=properties) as broker,
            kourou.connect(broker.namesrv) as mq,
        ):
            (one,) = broker.brokers
            await eventually(lambda: one.is_master)
            await eventually(lambda: "broker-a" in controller.machine.member.table)
            found = await mq.admin.controllers.metadata(address)
            assert (found.is_leader, found.controller_leader_address, found.peers) == (True, address, f"n0:{address};")
            replicas = await mq.admin.controllers.replicas(address, ["broker-a"])
            assert [one.broker_address for one in replicas.replicas_info_table["broker-a"].in_sync_replicas] == [
                one.address
            ]
            assert (await mq.admin.controllers.config(address))["enableElectUncleanMaster"] == "false"
            with pytest.raises(KourouError, match="restart it"):
                await mq.admin.controllers.set_config({"controllerStorePath": "/elsewhere"}, address)
            await mq.admin.controllers.set_config({"enableElectUncleanMaster": "true"}, address)
            assert (await mq.admin.controllers.config(address))["enableElectUncleanMaster"] == "true"
    async with ControllerProcess(settings) as controller:
        await leads(controller)
        assert controller.machine.member.table["broker-a"].epoch == 1
    (tmp_path / "controller" / FILE).write_bytes(b"nonsense")
    with pytest.raises(ConfError, match="can't be used"):
        ControllerProcess(settings)


async def test_a_controller_with_access_control_elects_the_master_of_a_broker_that_signs(tmp_path: Path) -> None:
    inner = '{"accessKey":"inner","secretKey":"secret-of-inner"}'
    access = controller_access({"authenticationEnabled": "true", "innerClientAuthenticationCredentials": inner})
    settings = replace(QUICK, store=str(tmp_path / "controller"))
    async with ControllerProcess(settings, access=access) as controller:
        await leads(controller)
        properties = {
            "enableControllerMode": "true",
            "controllerAddr": controller.address,
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "innerClientAuthenticationCredentials": inner,
        }
        async with Embedded(store=tmp_path / "broker", properties=properties) as broker:
            (one,) = broker.brokers
            await eventually(lambda: one.is_master)
            async with kourou.connect(broker.namesrv) as mq:
                with pytest.raises(KourouError, match="username cannot be null"):
                    await mq.admin.controllers.metadata(controller.address)
            async with kourou.connect(broker.namesrv, access_key="inner", secret_key="secret-of-inner") as mq:
                assert (await mq.admin.controllers.metadata(controller.address)).is_leader


async def test_three_controllers_go_on_without_one(tmp_path: Path) -> None:
    processes = [ControllerProcess(settings) for settings in three(tmp_path)]
    try:
        await asyncio.gather(*(process.start() for process in processes))
        await eventually(lambda: any(process.machine.member.is_leading for process in processes))
        first = next(process for process in processes if process.machine.member.is_leading)
        properties = {
            "enableControllerMode": "true",
            "controllerAddr": ";".join(process.address for process in processes),
            "syncControllerMetadataPeriod": "500",
        }
        async with (
            Embedded(store=tmp_path / "broker", properties=properties) as broker,
            kourou.connect(broker.namesrv) as mq,
        ):
            await eventually(lambda: broker.brokers[0].is_master)
            await first.stop()
            others = [process for process in processes if process is not first]
            await eventually(lambda: any(process.machine.member.is_leading for process in others))
            await eventually(lambda: all("broker-a" in process.machine.member.table for process in others))
            await mq.send("orders", b"still there")
            second = next(process for process in others if process.machine.member.is_leading)
            found = await mq.admin.controllers.replicas(others[0].address, ["broker-a"])
            assert found.replicas_info_table["broker-a"].master_epoch == 1
            assert (await mq.admin.controllers.metadata(others[1].address)).controller_leader_address == second.address
    finally:
        for process in processes:
            if not process._is_stopping:
                await process.stop()


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with ControllerProcess(replace(QUICK, store=str(tmp_path / "one"))) as controller:
        peers = f"n0-{controller.address}"
        with pytest.raises(AddressError, match="controllerDLegerPeers"):
            await ControllerProcess(replace(QUICK, peers=peers, store=str(tmp_path / "two"))).start()


async def test_controllers_prove_a_secret_to_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two of three have the secret: they elect a leader, and the third takes no part."""
    files = []
    for number, secret in enumerate(("the same secret", "the same secret", "another secret")):
        files.append(tmp_path / f"secret-{number}")
        files[-1].write_text(secret * 3)
    securities = [controller_security({"haSecretFile": str(file)}, None) for file in files]
    processes = [
        ControllerProcess(settings, security=security)
        for settings, security in zip(three(tmp_path), securities, strict=True)
    ]
    try:
        await processes[2].start()
        await asyncio.gather(*(process.start() for process in processes[:2]))
        await eventually(lambda: any(process.machine.member.is_leading for process in processes[:2]))
        await eventually(lambda: "it has a different secret" in caplog.text)
        assert processes[2].machine.member.leader is None
    finally:
        for process in processes:
            await process.stop()


async def test_controllers_use_tls_among_themselves(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority", "controllers")
    security = controller_security({"haTlsMode": "enforcing"}, trusting(authority))
    processes = [ControllerProcess(settings, security=security) for settings in three(tmp_path)]
    try:
        await asyncio.gather(*(process.start() for process in processes))
        await eventually(lambda: any(process.machine.member.is_leading for process in processes))
        host, port = "127.0.0.1", int(three_ports(processes)[0])
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"in plain text")
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
    finally:
        for process in processes:
            await process.stop()


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"haTlsMode": "maybe"}, "haTlsMode=maybe: disabled, permissive or enforcing is expected"),
        ({"haTlsMode": "enforcing"}, "haTlsMode=enforcing needs tls.server.certPath"),
        ({"haAllowedNames": "a"}, "haAllowedNames needs certificates"),
        ({"haSecretFile": "/nowhere/secret"}, "/nowhere/secret can't be read"),
    ],
)
def test_a_controller_does_not_start_with_half_of_a_protection(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfError, match=problem):
        controller_security(properties, None)
    assert all(map(is_controller_property, properties))
