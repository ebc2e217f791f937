"""Brokers, their settings, connections and the audit log, on embedded brokers."""

from collections.abc import Callable
from typing import Any

from tests.unit.console.conftest import MakePage, Page, until
from tests.waiting import answered, becomes

import kourou
from kourou.console.views.brokers import raft_view, settings_view
from kourou.console.watching import Watching, find_features
from kourou.embedded import Embedded


async def test_a_broker(broker: Embedded, page: Page) -> None:
    (row,) = (await page.get("/api/brokers"))["brokers"]
    found = await page.get(f"/api/brokers/{row['address']}")
    assert found["broker"]["name"] == "broker-a" and found["broker"]["ok"]
    assert found["runtime"]["bootTimestamp"].isdigit()
    assert {"key": "brokerName", "value": "broker-a"} in found["config"]
    assert found["raft"] == {"on": False, "reason": "the broker is not in a Raft group", "facts": {}}
    assert (await page.get("/api/brokers/127.0.0.1:1", 404))["code"] == "not_found", "only brokers of the cluster"


async def test_settings_are_changed_after_a_confirmation(broker: Embedded, page: Page) -> None:
    path = f"/api/brokers/{broker.broker().address}/config"
    given = {"settings": {"autoCreateTopicEnable": "false"}}
    preview = (await page.change("PATCH", path, {**given, "preview": True}))["preview"]
    assert preview["changes"] == [{"key": "autoCreateTopicEnable", "from": "true", "to": "false"}]
    assert (await page.change("PATCH", path, given, 409))["code"] == "confirm_needed"
    done = await page.change("PATCH", path, {**given, "confirm": "broker-a"})
    assert (
        done["cli"] == f"kourou admin updateBrokerConfig -b {broker.broker().address} -k autoCreateTopicEnable -v false"
    )
    config = (await page.get(f"/api/brokers/{broker.broker().address}"))["config"]
    assert {"key": "autoCreateTopicEnable", "value": "false"} in config
    entry = (await page.get("/api/audit"))["entries"][0]
    assert (entry["action"], entry["user"], entry["ok"], entry["cli"]) == ("change settings", "anna", True, done["cli"])


async def test_settings_that_are_not_possible(broker: Embedded, page: Page) -> None:
    path = f"/api/brokers/{broker.broker().address}/config"
    for settings in ({}, {"noSuchSetting": "1"}, {"fileReservedTime": "1\nbrokerName=x"}, {"brokerName": "x" * 5000}):
        body = {"settings": settings, "confirm": "broker-a"}
        assert (await page.change("PATCH", path, body, 400))["code"] == "bad_request", settings
    refused = await page.change("PATCH", path, {"settings": {"brokerName": "x"}, "confirm": "broker-a"}, 409)
    assert refused["code"] == "refused"


async def test_a_slave_and_its_master(make_page: MakePage) -> None:
    async with kourou.embedded(slaves=1) as cluster:
        page = await make_page(cluster.namesrv)
        rows = (await page.get("/api/brokers"))["brokers"]
        master, slave = sorted(rows, key=lambda row: row["id"])

        async def acknowledged() -> bool:
            page.console.facts.forget("replication")
            slaves = (await page.get(f"/api/brokers/{master['address']}"))["replication"]["slaves"]
            return [one["in_sync"] for one in slaves] == [True]

        await becomes(acknowledged, True)
        found = (await page.get(f"/api/brokers/{slave['address']}"))["replication"]
        assert (found["master"], found["slaves"]) == (False, []) and found["follows"]["address"]


async def test_connections(broker: Embedded, page: Page) -> None:
    async with kourou.connect(broker.namesrv) as mq:
        await mq.admin.topics.create("orders", queues=1)
        await mq.send("orders", b"1")
        async with mq.consume("orders", group="billing"):

            async def connected() -> bool:
                page.console.facts.forget("connections", "groups", "producers")
                found = (await page.get("/api/clients"))["clients"]
                return {row["role"] for row in found if "billing" in row["groups"] or row["role"] == "producer"} == {
                    "producer",
                    "consumer",
                }

            await becomes(connected, True)
            found = await page.get("/api/clients", q="billing")
            assert [row["groups"] for row in found["clients"]] == [["billing"]] and found["total"] == 1
            assert (await page.get("/api/clients", q="nobody"))["clients"] == []
            for row in (await page.get("/api/clients"))["clients"]:
                assert row["address"].startswith("127.0.0.1:"), "a broker writes /127.0.0.1:… for producers"
                assert row["version"] == "V5_5_0"


def test_secrets_are_hidden() -> None:
    found = settings_view({"innerClientSecretKey": "x", "initAuthenticationUser": "y", "brokerName": "a\x1b"})
    assert {one.key: one.value for one in found} == {
        "innerClientSecretKey": "***",
        "initAuthenticationUser": "***",
        "brokerName": "a\\x1b",
    }


def test_a_raft_group() -> None:
    config = {"enableDLegerCommitLog": "true", "dLegerGroup": "g", "dLegerSelfId": "n0"}
    found = raft_view({"raftTerm": "3", "putTps": "1"}, config, None)
    assert found.facts == {"dLegerGroup": "g", "dLegerSelfId": "n0", "raftTerm": "3"}


async def test_a_raft_group_with_a_missing_member(make_page: MakePage) -> None:
    async with kourou.embedded(raft=3) as group:
        page = await make_page(group.namesrv)
        console = page.console
        leader = group.leader
        assert leader is not None

        async def shown(is_so: Callable[[Any], bool]) -> Any:
            return await until(page, f"/api/brokers/{leader.address}", is_so)

        found = await shown(lambda found: [one["in_sync"] for one in found["replication"]["slaves"]] == [True, True])
        assert (found["replication"]["master"], found["replication"]["in_sync"]) == (True, 3)
        facts = found["raft"]["facts"]
        assert (facts["role"], facts["leader"], facts["members"].count(",")) == ("leader", facts["dLegerSelfId"], 2)
        follower = next(one for one in group.brokers if one is not leader)
        other = await page.get(f"/api/brokers/{follower.address}")
        assert other["replication"]["follows"]["address"].startswith(facts["leader"])

        await follower.stop()
        found = await shown(lambda found: found["replication"]["in_sync"] == 2)
        watching = Watching(console)
        console.known_features = await find_features(console.facts.look(), await console.facts.look().members())

        async def problems() -> Any:
            console.facts.forget("raft", "cluster")
            await watching.look_at_replication(console.facts.look())
            return [one for one in (await page.get("/api/overview"))["problems"] if one["code"] == "raft_missing"]

        (problem,) = await answered(problems)
        assert problem["args"]["broker"] == "broker-a" and problem["link"].startswith(f"/brokers/{leader.address}")
