"""broker.conf: what its properties come to."""

import pytest

from kourou.broker.properties import (
    Configuration,
    ProcessSettings,
    PropertyError,
    configure,
    to_properties,
    unknown_keys,
    unused_keys,
)
from kourou.broker.settings import BrokerSettings, Role
from kourou.store.settings import FlushMode, StoreSettings

DEFAULTS = Configuration(BrokerSettings(), StoreSettings(), ProcessSettings(), {})


def test_properties_find_their_places() -> None:
    found = configure(
        DEFAULTS,
        {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH", "namesrvAddr": "a:1", "maxMessageSize": " 1024 "},
    )
    assert found.broker.role is Role.SYNC_MASTER
    assert found.broker.max_body_size == found.store.max_body_size == 1024
    assert found.store.flush_mode is FlushMode.SYNC
    assert found.process.name_servers == "a:1"
    assert to_properties(found)["maxMessageSize"] == "1024"
    process = configure(DEFAULTS, {"useTLS": "true", "fetchNameSrvAddrByDnsLookup": "true"}).process
    assert process.name_servers_in_tls
    assert process.name_servers_by_lookup


def test_master_has_the_id_of_masters() -> None:
    """Also with Apache, whose sample files say so anyway."""
    assert configure(DEFAULTS, {"brokerId": "3", "brokerRole": "ASYNC_MASTER"}).broker.broker_id == 0
    assert configure(DEFAULTS, {"brokerId": "3", "brokerRole": "SLAVE"}).broker.broker_id == 3
    with pytest.raises(PropertyError, match="brokerId must be greater than 0"):
        configure(DEFAULTS, {"brokerRole": "SLAVE"})
    with pytest.raises(PropertyError, match="enableControllerMode=true: set controllerAddr"):
        configure(DEFAULTS, {"enableControllerMode": "true"})
    with pytest.raises(PropertyError, match="controllerAddr=here: addresses such as host:port;host:port"):
        configure(DEFAULTS, {"controllerAddr": "here"})
    with pytest.raises(PropertyError, match="haMasterAddress=there: host:port is expected"):
        configure(DEFAULTS, {"haMasterAddress": "there"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("storeType", "defaultRocksDB"),
        ("configManagerVersion", "v2"),
        ("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore"),
        ("readOnlyCommitLogStorePaths", "/old"),
    ],
)
def test_promises_that_would_not_be_kept_are_refused(key: str, text: str) -> None:
    with pytest.raises(PropertyError, match=rf"^{key}={text}: .*remove the property"):
        configure(DEFAULTS, {key: text})


GROUP = {"enableDLegerCommitLog": "true", "dLegerGroup": "g0", "dLegerSelfId": "n1"}
PEERS = "n0-10.0.0.5:40911;n1-10.0.0.6:40911;n2-broker.example:40911"


def test_a_member_of_a_raft_group_begins_as_a_slave_with_its_number() -> None:
    broker = configure(DEFAULTS, {**GROUP, "dLegerPeers": PEERS, "brokerRole": "SYNC_MASTER", "brokerId": "0"}).broker
    assert (broker.role, broker.broker_id) == (Role.SLAVE, 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "dLegerGroup, dLegerPeers and dLegerSelfId are expected"),
        ({"dLegerPeers": "n0-10.0.0.5:40911"}, "dLegerSelfId=n1 is expected to be in dLegerPeers"),
        ({"dLegerPeers": "n0:10.0.0.5:40911"}, "is not a letter and a number"),
        ({"dLegerPeers": "n0-10.0.0.5"}, "has no address"),
        ({"dLegerPeers": f"{PEERS};n0-10.0.0.9:1"}, "occurs twice"),
        ({"dLegerPeers": PEERS, "preferredLeaderIds": "n7"}, "n7 is expected to be in dLegerPeers"),
        ({"dLegerPeers": PEERS, "raftHeartbeatInterval": "900"}, "at least twice raftHeartbeatInterval"),
    ],
)
def test_a_member_needs_a_group_that_it_belongs_to(given: dict[str, str], expected: str) -> None:
    with pytest.raises(PropertyError, match=expected):
        configure(DEFAULTS, {**GROUP, **given})


@pytest.mark.parametrize(
    ("key", "text"),
    [("aclEnable", "false"), ("inSyncReplicas", "1"), ("storeType", "default"), ("authenticationEnabled", "false")],
)
def test_promises_of_nothing_are_fine(key: str, text: str) -> None:
    assert to_properties(configure(DEFAULTS, {key: text}))[key] == text


@pytest.mark.parametrize(("text", "wanted"), [("PROM", "PROM"), ("2", "PROM"), ("prom", "PROM"), ("3", "LOG")])
def test_exporters_have_names_and_numbers(text: str, wanted: str) -> None:
    assert to_properties(configure(DEFAULTS, {"metricsExporterType": text}))["metricsExporterType"] == wanted


def test_properties_of_access_control_are_known_and_shown_only_if_given() -> None:
    assert "authenticationEnabled" not in to_properties(DEFAULTS)
    given = {"authenticationProvider": "x", "nonsense": "1"}
    assert unknown_keys(given) == ["nonsense"]
    assert unused_keys(given) == ["authenticationProvider"]


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"authorizationEnabled": "true"}, "access keys would not be verified"),
        ({"aclEnable": "true", "authenticationEnabled": "true"}, "use one of them"),
        (
            {"initAuthenticationUser": "hunter2"},
            r'initAuthenticationUser=\*\*\*\*\*\*: {"username":"…","password":"…"}',
        ),
        ({"initAuthenticationUser": '{"username":"u"}'}, "is expected"),
        ({"initAuthenticationUser": '{"username":" ","password":"p"}'}, "is expected"),
        ({"authenticationWhitelist": "105,x"}, "request codes, separated by commas, are expected"),
    ],
)
def test_settings_of_access_control_that_do_not_protect(properties: dict[str, str], problem: str) -> None:
    with pytest.raises(PropertyError, match=problem) as error:
        configure(DEFAULTS, properties)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("listenPort", "70000", "listenPort=70000: a number from 0 to 65535 is expected"),
        ("deleteWhen", "99", "deleteWhen=99: hours from 00 to 23 are expected, separated by semicolons"),
        ("fileReservedTime", "long", "fileReservedTime=long: a whole number is expected"),
        ("aclEnable", "perhaps", "aclEnable=perhaps: true or false is expected"),
        ("storePathCommitLog", "/a,/b", "storePathCommitLog=/a,/b: one folder is expected"),
        ("metricsExporterType", "4", "metricsExporterType=4: one of DISABLE, OTLP_GRPC, PROM, LOG is expected"),
        ("metricsLabel", "a:b:c", "metricsLabel=a:b:c: labels such as name:value,name:value are expected"),
        ("inSyncReplicas", "many", "inSyncReplicas=many: a whole number is expected"),
    ],
)
def test_mistakes_are_named_once(key: str, text: str, message: str) -> None:
    with pytest.raises(PropertyError) as raised:
        configure(DEFAULTS, {key: text})
    assert str(raised.value) == message
