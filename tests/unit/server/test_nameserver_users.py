"""A name server with access control, as a process: files, a broker that signs, clients with credentials."""

import base64
import stat
from pathlib import Path

import pytest
from tests.waiting import becomes

from kourou.client import Credentials, connect
from kourou.embedded import Embedded
from kourou.nameserver.settings import Settings
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.errors import KourouError, NoPermissionError
from kourou.server.conf import ConfError
from kourou.server.nameserver import NameServerProcess

ROOT, ALICE = Credentials("root", "secret-of-root"), Credentials("alice", "secret-of-alice")
ACCESS: dict[str, str] = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"secret-of-root"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}


def settings(folder: Path, **more: str) -> Settings:
    ours = Settings(
        listen_port=0, kv_config_path=str(folder / "kv.json"), config_store_path=str(folder / "namesrv.properties")
    )
    return ours.with_properties({**ACCESS, **more})


async def test_users_are_kept_in_a_file_that_only_the_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "access.json"
    async with NameServerProcess(settings(tmp_path)) as server:
        async with connect(server.address, access_key="root", secret_key="secret-of-root") as mq:
            await mq.admin.brokers.create_user("alice", "secret-of-alice", broker=server.address)
            shown = await mq.admin.brokers.name_server_config()
        assert "secret" not in str(shown)
        assert shown[server.address]["initAuthenticationUser"] == "******"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"secret-of-alice" in file.read_bytes()

    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(bytes(32)))
    file.with_name("access.json.bak").write_bytes(file.read_bytes())
    async with (
        NameServerProcess(settings(tmp_path, usersKeyFile=str(key))) as server,
        connect(server.address, access_key="alice", secret_key="secret-of-alice") as mq,
    ):
        check_sealed(tmp_path)
        with pytest.raises(NoPermissionError, match="needs a super user"):
            await mq.admin.brokers.cluster()
    check_sealed(tmp_path)
    with pytest.raises(ConfError, match="sealed; give its key"):
        NameServerProcess(settings(tmp_path))


async def test_the_users_of_a_broker_are_sealed_with_all_their_copies(tmp_path: Path) -> None:
    config = tmp_path / "config"
    async with (
        Embedded(properties=ACCESS, store=tmp_path) as both,
        connect(both.namesrv, access_key="root", secret_key="secret-of-root") as mq,
    ):
        for name in ("alice", "bob"):
            await mq.admin.brokers.create_user(name, f"secret-of-{name}", broker=both.address)
    assert b"secret-of-alice" in (config / "access.json.bak").read_bytes()
    (config / "access.json.broken").write_text('{"users": {"carol"')

    key = tmp_path / "key"
    key.write_bytes(base64.b64encode(bytes(32)))
    async with Embedded(properties={**ACCESS, "usersKeyFile": str(key)}, store=tmp_path) as both:
        check_sealed(config, copies=3)
        async with connect(both.namesrv, access_key="root", secret_key="secret-of-root") as mq:
            await mq.admin.brokers.create_user("dora", "secret-of-dora", broker=both.address)
    check_sealed(config, copies=3)


def check_sealed(folder: Path, copies: int = 2) -> None:
    found = list(folder.glob("access.json*"))
    assert len(found) == copies
    for one in found:
        assert one.read_bytes().startswith(b"KOUROU SEALED 1\n")
        assert stat.S_IMODE(one.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"authenticationEnabled": "false"}, "access keys would not be verified"),
        ({"aclEnable": "true"}, "use one of them"),
        ({"initAuthenticationUser": '{"username":"secret-of-root"}'}, "initAuthenticationUser"),
        ({"authenticationWhitelist": "x"}, "authenticationWhitelist"),
    ],
)
def test_settings_that_protect_nothing_are_refused(tmp_path: Path, properties: dict[str, str], told: str) -> None:
    with pytest.raises(ConfError, match=told) as refused:
        NameServerProcess(settings(tmp_path, **properties))
    assert "secret-of" not in str(refused.value)


async def test_accounts_of_plain_acl_are_read_again(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    text = "accounts:\n- {accessKey: rootroot, secretKey: secret-of-root, admin: true}\n"
    file.write_text(text)
    off = {"authenticationEnabled": "false", "authorizationEnabled": "false"}
    async with NameServerProcess(settings(tmp_path, **off, aclEnable="true", plainAclFile=str(file))) as server:

        async def is_allowed(key: str) -> bool:
            async with connect(server.address, access_key=key, secret_key="secret-of-root") as mq:
                try:
                    await mq.admin.brokers.cluster()
                except KourouError:
                    return False
                return True

        assert await is_allowed("rootroot")
        file.write_text(text.replace("rootroot", "otherroot"))
        await becomes(lambda: is_allowed("otherroot"), True)
        assert not await is_allowed("rootroot")


async def test_a_broker_and_clients_with_credentials(tmp_path: Path) -> None:
    """The broker signs as `inner`; the name server beside it has its users."""
    async with Embedded(properties=ACCESS, store=tmp_path) as both:
        namesrv = both.namesrv
        async with connect(namesrv, access_key="root", secret_key="secret-of-root") as mq:
            await mq.admin.topics.create("orders", queues=1, broker=both.address)
            await mq.admin.brokers.create_user("alice", "secret-of-alice", broker=both.address)
            entry = PolicyEntryInfo(resource="Topic:orders", actions=["Pub"], decision="Allow")
            rule = AclInfo(subject="User:alice", policies=[PolicyInfo(entries=[entry])])
            await mq.admin.brokers.create_rule(rule, broker=both.address)
            with pytest.raises(NoPermissionError, match="send the request to it"):
                await mq.admin.brokers.create_user("bob", "secret-of-bob", broker=namesrv)
            assert (await mq.send("orders", b"one")).is_safe
        async with connect(namesrv, access_key="alice", secret_key="secret-of-alice") as mq:
            assert (await mq.send("orders", b"two")).is_safe
            with pytest.raises(NoPermissionError, match="Topic:bills"):
                await mq.send("bills", b"three")
        async with connect(namesrv) as mq:
            with pytest.raises(NoPermissionError, match="username cannot be null"):
                await mq.send("orders", b"four")
        assert not (tmp_path / "namesrv" / "access.json").exists()


async def test_tools_change_the_users_of_slaves_as_well(tmp_path: Path) -> None:
    """As mqadmin does: each broker has its own users, and a slave serves pulls, or becomes the master."""
    async with Embedded(store=tmp_path, properties=ACCESS, slaves=1) as cluster:
        addresses = [broker.address for broker in cluster.brokers]
        assert len(addresses) == 2
        async with connect(cluster.namesrv, access_key="root", secret_key="secret-of-root") as mq:
            tools = mq.admin.brokers

            async def users() -> list[list[str | None]]:
                return [[user.username for user in await tools.users(address)] for address in addresses]

            await tools.create_user("alice", "secret-of-alice")
            assert await users() == [["alice", "inner", "root"]] * 2
            entry = PolicyEntryInfo(resource="Topic:t", actions=["Pub"], decision="Allow")
            await tools.create_rule(AclInfo(subject="User:alice", policies=[PolicyInfo(entries=[entry])]))
            assert [len(await tools.rules(address)) for address in addresses] == [1, 1]
            await tools.delete_rule("User:alice")
            assert [len(await tools.rules(address)) for address in addresses] == [0, 0]
            await tools.delete_user("alice", cluster="DefaultCluster")
            assert await users() == [["inner", "root"]] * 2
