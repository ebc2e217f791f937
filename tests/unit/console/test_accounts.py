"""Users who sign in with their RocketMQ keys: brokers decide what they may see and change."""

from pathlib import Path

import httpx
import pytest
from tests.unit.console.conftest import BASE, HOST, Page

import kourou
from kourou.client import Credentials
from kourou.console.accounts import Accounts
from kourou.console.app import make_app
from kourou.console.guard import Rules
from kourou.console.limits import ATTEMPTS_PER_MINUTE
from kourou.console.serving import Options, ServeError, check
from kourou.console.sessions import Role
from kourou.console.state import Access, Console, open_client
from kourou.console.users import add_user
from kourou.embedded import Embedded
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo

ADMIN = Credentials("admin", "secret-of-admin")
GUARDED = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"secret-of-inner"}',
}
SIGN_IN = "/api/session"


def console_of(namesrv: str) -> Console:
    access = Access((namesrv,))
    rules = Rules(frozenset((HOST,)))
    console = Console(open_client(access), rules)
    console.accounts = Accounts(access, lambda one: Console(open_client(one), rules), background=False)
    return console


def page_of(console: Console) -> Page:
    return Page(console, None)


async def sign_in(page: Page, user: str, key: str, status: int = 200) -> None:
    answer = await page.http.post(
        SIGN_IN, json={"user": user, "password": key}, headers={"x-kourou": "1", "content-type": "application/json"}
    )
    assert answer.status_code == status, answer.text


async def test_each_user_works_with_their_own_rights() -> None:
    async with (
        kourou.embedded(properties=GUARDED) as broker,
        kourou.connect(broker.namesrv, access_key="admin", secret_key=ADMIN.secret_key) as mq,
    ):
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b"secret body")
        await mq.admin.brokers.create_user("bob", "secret-of-bob")
        await mq.admin.brokers.create_user("eve", "secret-of-eve")  # without any right
        entries = [
            PolicyEntryInfo(resource="Cluster:DefaultCluster", actions=["Get"], decision="Allow"),
            PolicyEntryInfo(resource="Topic:payments", actions=["Pub"], decision="Allow"),
        ]
        policy = PolicyInfo(policy_type="Custom", entries=entries)
        await mq.admin.brokers.create_rule(AclInfo(subject="User:bob", policies=[policy]))
        console = console_of(broker.namesrv)
        admin, bob, nobody = page_of(console), page_of(console), page_of(console)
        try:
            assert (await nobody.get(SIGN_IN))["login"] == "key"
            assert (await nobody.get("/api/topics", 401))["code"] == "not_signed_in"
            await sign_in(nobody, "bob", "wrong", 401)
            await sign_in(nobody, "nobody", "secret-of-bob", 401)
            await sign_in(nobody, "", "", 401)
            await sign_in(nobody, "eve", "secret-of-eve", 401)
            await sign_in(bob, "bob", "secret-of-bob")
            await sign_in(admin, "admin", ADMIN.secret_key)
            assert (await bob.get(SIGN_IN))["user"] == "bob"

            assert [one["name"] for one in (await admin.get("/api/topics"))["topics"]] == ["orders"]
            assert "secret body" in str(await admin.get("/api/topics/orders/messages"))
            await admin.post("/api/topics", {"name": "payments", "queues": 1})
            assert "orders" not in str((await bob.http.get("/api/topics")).json()), "no answer of another user"
            await bob.get("/api/topics/orders/messages", 409)
            await bob.post("/api/topics", {"name": "invoices"}, 409)
            await bob.change("DELETE", "/api/topics/orders", {"confirm": "orders"}, 409)
            assert [one["user"] for one in (await admin.get("/api/audit"))["entries"]] == ["admin"]

            await admin.change("DELETE", SIGN_IN)
            await admin.get("/api/topics", 401)
        finally:
            await console.close()
            for page in (admin, bob, nobody):
                await page.http.aclose()


async def test_keys_are_not_guessed() -> None:
    async with kourou.embedded(properties=GUARDED) as broker:
        console = console_of(broker.namesrv)
        page = page_of(console)
        for _ in range(ATTEMPTS_PER_MINUTE):
            await sign_in(page, "admin", "wrong", 401)
        await sign_in(page, "admin", ADMIN.secret_key, 429)
        await console.close()
        await page.http.aclose()


async def test_brokers_without_access_control_let_nobody_in(broker: Embedded) -> None:
    """They accept any key."""
    console = console_of(broker.namesrv)
    page = page_of(console)
    await sign_in(page, "admin", "anything", 409)
    await page.get("/api/topics", 401)
    await console.close()
    await page.http.aclose()


async def test_consoles_of_accounts_end_with_their_sessions() -> None:
    async with kourou.embedded(properties=GUARDED) as broker:
        console = console_of(broker.namesrv)
        assert console.accounts is not None
        transport = httpx.ASGITransport(make_app(console, background=False))
        async with httpx.AsyncClient(transport=transport, base_url=BASE):
            first, second = page_of(console), page_of(console)
            await sign_in(first, "admin", ADMIN.secret_key)
            await sign_in(second, "admin", ADMIN.secret_key)
            await first.get("/api/topics")
            assert len(console.accounts) == 1
            await first.change("DELETE", SIGN_IN)
            await console.accounts.tidy(console)
            await second.get("/api/topics")
            await second.change("DELETE", SIGN_IN)
            await console.accounts.tidy(console)
            assert len(console.accounts) == 0
            for page in (first, second):
                await page.http.aclose()
        await console.close()


def test_where_accounts_are_enough_to_listen(tmp_path: Path) -> None:
    access = Access(("127.0.0.1:1",))
    with pytest.raises(ServeError, match="users"):
        check(Options(access=access, host="0.0.0.0", is_behind_proxy=True))
    assert check(Options(access=access, host="0.0.0.0", is_behind_proxy=True, accounts=True)) is None
    with pytest.raises(ServeError, match="TLS"):
        check(Options(access=access, host="0.0.0.0", accounts=True))
    file = tmp_path / "users"
    add_user(file, "anna", Role.SEE, "long enough")
    with pytest.raises(ServeError, match="together"):
        check(Options(access=access, users=file, accounts=True))


@pytest.mark.parametrize("text", ["javascript:alert({trace_id})", "https://traces/", "https://traces/{trace_id}<"])
def test_addresses_of_traces_are_checked(text: str) -> None:
    with pytest.raises(ServeError, match="trace_id"):
        check(Options(access=Access(("127.0.0.1:1",)), trace_url=text))
