"""Settings by request, and housekeeping."""

import errno

import pytest
from tests.unit.broker.asking import TOPIC, bodies_of, ok, pull, request, send

from kourou.broker.properties import HOT, configure, known, to_properties
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, conf_text, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.hashes import crc32
from kourou.protocol.record import decode_records
from kourou.testing.broker import SimulatedBroker


def update(text: str | bytes) -> Command:
    body = text if isinstance(text, bytes) else text.encode()
    return request(RequestCode.UPDATE_BROKER_CONFIG, body=body)


def shown(world: SimulatedBroker) -> dict[str, str]:
    return conf_text.loads(ok(world.connect(), request(RequestCode.GET_BROKER_CONFIG)).body.decode())


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker()


def test_all_properties_are_shown(world: SimulatedBroker) -> None:
    properties = shown(world)
    assert properties["brokerName"] == "broker-a"
    assert properties["autoCreateTopicEnable"] == "true"
    assert properties["flushDiskType"] == "ASYNC_FLUSH"
    assert properties["waitTimeMillsInSendQueue"] == "200"  # known, and without meaning here
    assert len(properties) > 300


def test_property_changes_at_once(world: SimulatedBroker) -> None:
    client = world.connect()
    before = ok(client, request(RequestCode.GET_BROKER_CONFIG)).ext
    ok(client, update("autoCreateTopicEnable=false\nlongPollingEnable=false\n"))
    assert client.ask(send(topic="new")).code == ResponseCode.TOPIC_NOT_EXIST
    assert shown(world)["autoCreateTopicEnable"] == "false"
    after = ok(client, request(RequestCode.GET_BROKER_CONFIG)).ext
    assert before is not None
    assert after is not None
    assert bodies.DataVersion.decode(after["version"].encode()) != bodies.DataVersion.decode(before["version"].encode())


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("configBlackList=x", 16, "Can not update config in black list."),
        ("brokerConfigPath=/etc/passwd", 16, "Can not update config in black list."),
        ("storePathRootDir=/elsewhere", 16, "storePathRootDir"),
        ("storePathCommitLog=/elsewhere", 16, "storePathCommitLog"),
        ("namesrvAddr=evil:1", 16, "namesrvAddr"),
        ("brokerIP1=10.0.0.1", 16, "brokerIP1"),
        ("bindAddress=0.0.0.0", 16, "bindAddress"),
        ("listenPort=1", 16, "listenPort"),
        ("rocketmqHome=/elsewhere", 16, "rocketmqHome"),
        ("filterServerNums=1", 29, "filterServerNums"),
        ("socksProxyConfig={}", 16, "socksProxyConfig"),
        ("authConfigPath=/elsewhere", 16, "authConfigPath"),
        ("aclEnable=true", 16, "aclEnable can't change while the broker runs"),
        ("aclEnable=false", 16, "aclEnable"),
        ("inSyncReplicas=2", 16, "inSyncReplicas"),
        ("brokerRole=SLAVE", 29, "brokerRole=SLAVE: brokerId must be greater than 0"),
        ("haAllowedPeers=10.0.0.0/8", 16, "haAllowedPeers"),
        ("enableControllerMode=true", 29, "enableControllerMode=true: set controllerAddr as well"),
        ("enableControllerMode=false", 16, "enableControllerMode can't change while the broker runs"),
        ("flushDiskType=SYNC_FLUSH", 16, "flushDiskType"),
        ("deleteWhen=99", 29, "deleteWhen=99: hours from 00 to 23"),
        ("nonsense=1", 29, "nonsense is not a property of a broker"),
        ("longPollingEnable=perhaps", 29, "longPollingEnable=perhaps"),
        ("shortPollingTimeMills=soon", 29, "shortPollingTimeMills=soon"),
        ("longPollingEnable=false\nlistenPort=1", 16, "listenPort"),
        ("a=\\u12", 1, ""),
        (b"\xff=1", 1, "UTF-8"),
    ],
)
def test_refused_and_nothing_changes(world: SimulatedBroker, text: str | bytes, code: int, remark: str) -> None:
    before = shown(world)
    answer = world.connect().ask(update(text))
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert shown(world) == before


def test_property_without_meaning_is_taken_and_shown(world: SimulatedBroker) -> None:
    ok(world.connect(), update("sendMessageThreadPoolNums=16"))
    assert shown(world)["sendMessageThreadPoolNums"] == "16"


DESTRUCTIVE = (
    "fileReservedTime=0",
    "deleteWhen=00;01;02;03;04;05",
    "diskMaxUsedSpaceRatio=0",
    "diskSpaceCleanForciblyRatio=0",
    "diskSpaceWarningLevelRatio=0",
    "cleanFileForciblyEnable=true",
    "deleteFileBatchMax=1000",
    "validateSystemTopicWhenUpdateTopic=false",
    "maxAutoCreatedTopics=1000000",
    "maxTopics=1000000000",
)


@pytest.mark.parametrize("property_", DESTRUCTIVE)
def test_what_deletes_messages_or_lifts_a_limit_needs_the_file(world: SimulatedBroker, property_: str) -> None:
    answer = world.connect().ask(update(f"syncFlushTimeout=1000\n{property_}"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "change broker.conf, and restart" in (answer.remark or "")
    assert shown(world)["syncFlushTimeout"] == "5000"


def test_no_request_deletes_messages_before_their_time(world: SimulatedBroker) -> None:
    client = world.connect()
    for _ in range(8):
        ok(client, send(bytes(30_000)))
    world.tick(10 * 3_600_000)
    for property_ in DESTRUCTIVE:
        client.ask(update(property_))
    ok(client, request(RequestCode.DELETE_EXPIRED_COMMITLOG))
    world.pass_time(20_000)
    assert world.store.log.start == 0  # 72 hours are kept


@pytest.mark.parametrize("key", [key for key, range_ in HOT.items() if range_ is not None])
def test_each_hot_number_has_a_range(world: SimulatedBroker, key: str) -> None:
    client = world.connect()
    low, high = HOT[key] or (0, 0)
    for wrong in {low - 1, high + 1} - {2**63}:
        answer = client.ask(update(f"{key}={wrong}"))
        assert answer.code == ResponseCode.INVALID_PARAMETER, wrong
        assert key in (answer.remark or "")
    for right in (low, high):
        ok(client, update(f"{key}={right}"))
        assert shown(world)[key] == str(right)


def test_every_hot_property_has_a_range_or_is_a_flag_or_a_word() -> None:
    for key, range_ in HOT.items():
        assert (range_ is None) == (known().get(key, ("int", ""))[0] in ("bool", "str")), key


def test_secrets_are_not_shown(world: SimulatedBroker) -> None:
    secrets = {
        "initAuthenticationUser": '{"username":"rocketmq","password":"hunter2"}',
        "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"hunter2"}',
        "metricsGrpcExporterHeader": "Authorization:Bearer hunter2",
    }
    given = configure(world.machine.configuration, secrets)
    text = str(to_properties(given))
    assert "hunter2" not in text
    assert text.count("******") == len(secrets)
    for key in secrets:
        assert world.connect().ask(update(f"{key}=x")).code == ResponseCode.NO_PERMISSION


def test_limit_holds_from_now_on(world: SimulatedBroker) -> None:
    client = world.connect()
    world.machine.writer.waiting = 100
    ok(client, send())
    ok(client, update("sendThreadPoolQueueCapacity=100"))
    assert client.ask(send()).code == ResponseCode.SYSTEM_BUSY
    world.machine.writer.waiting = 0


def test_pulls_bring_as_much_as_is_allowed_now(world: SimulatedBroker) -> None:
    client = world.connect()
    for _ in range(40):
        ok(client, send(bytes(2_000)))
    one = len(ok(client, pull(max_msg_nums=1)).body)
    assert len(ok(client, pull(max_msg_nums=100)).body) == 32 * one
    ok(client, update("maxTransferCountOnMessageInMemory=36"))
    assert len(ok(client, pull(max_msg_nums=100)).body) == 36 * one
    ok(client, update(f"maxTransferBytesOnMessageInMemory={3 * one}"))
    assert len(ok(client, pull(max_msg_nums=100)).body) == 3 * one
    assert client.ask(update("maxTransferCountOnMessageInMemory=0")).code == ResponseCode.INVALID_PARAMETER


def test_readers_in_bulk_have_what_share_is_allowed_now(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, update("bulkReadRatio=7"))
    assert world.machine.settings.bulk_ratio == 7
    for wrong in ("0", "101", "-1", "x"):
        assert client.ask(update(f"bulkReadRatio={wrong}")).code == ResponseCode.INVALID_PARAMETER
    assert world.machine.settings.bulk_ratio == 7


def test_queries_bring_as_many_as_is_allowed_now(world: SimulatedBroker) -> None:
    client = world.connect()
    for _ in range(70):
        ok(client, send(properties={"KEYS": "k", "UNIQ_KEY": "u"}))

    def found(key: str, *, unique: bool) -> int:
        header = headers.QueryMessage(
            topic=TOPIC, key=key, max_num=100, begin_timestamp=0, end_timestamp=2**62, unique_key=unique
        )
        return len(decode_records(bytes(ok(client, request(RequestCode.QUERY_MESSAGE, header)).body)))

    assert (found("k", unique=False), found("u", unique=True)) == (64, 32)
    ok(client, update("maxMsgsNumBatch=66\ndefaultQueryMaxNum=3"))
    assert (found("k", unique=False), found("u", unique=True)) == (66, 3)
    ok(client, update("maxMsgsNumBatch=2"))
    assert (found("k", unique=False), found("u", unique=True)) == (2, 2)


def test_queries_by_tag(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, send(b"paid", properties={"KEYS": "k paid", "TAGS": "open"}))
    ok(client, send(b"open", properties={"KEYS": "k", "TAGS": "paid"}))

    def found(key: str, kind: str | None, *, unique: bool = False) -> list[bytes]:
        header = headers.QueryMessage(
            topic=TOPIC, key=key, max_num=9, begin_timestamp=0, end_timestamp=2**62, index_type=kind, unique_key=unique
        )
        answer = client.ask(request(RequestCode.QUERY_MESSAGE, header))
        assert answer.code == (0 if answer.body else ResponseCode.QUERY_NOT_FOUND)
        assert (answer.ext or {}).keys() == {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
        return [bytes(message.body) for message in decode_records(bytes(answer.body))]

    assert found("paid", "T") == [b"open"]
    assert found("paid", "K") == found("paid", None) == found("paid", "T", unique=True) == [b"paid"]
    assert found("k", "T") == []


def test_operator_may_fix_more_properties() -> None:
    world = SimulatedBroker(settings=BrokerSettings(unchangeable="brokerPermission; fileReservedTime"))
    client = world.connect()
    for text in ("brokerPermission=4", "fileReservedTime=1", "configBlackList="):
        answer = client.ask(update(text))
        assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
    ok(client, update("autoCreateTopicEnable=false"))


def test_nothing_to_change(world: SimulatedBroker) -> None:
    ok(world.connect(), update(""))


def test_name_servers_learn_of_another_permission(world: SimulatedBroker) -> None:
    world.machine.registration.is_on = True
    client = world.connect()
    ok(client, send())
    world.tick(1)
    world.announced.clear()
    version = world.machine.topics.version
    ok(client, update("brokerPermission=4"))
    wrapper = bodies.RegisterBrokerBody.decode(world.announced[-1].body).topic_config_serialize_wrapper
    assert wrapper.topic_config_table.keys() == world.machine.topics.table.keys()
    assert wrapper.topic_config_table[TOPIC].perm == 4
    assert wrapper.data_version != version


def test_name_servers_are_told_in_few_bytes(world: SimulatedBroker) -> None:
    world.machine.registration.is_on = True
    client = world.connect()
    ok(client, update("compressedRegister=true"))
    ok(client, send())
    world.tick(60_000)
    command = world.announced[-1]
    header = headers.RegisterBroker.decode(command.ext)
    assert header.compressed
    assert header.body_crc32 == crc32(command.body) & 0x7FFFFFFF
    wrapper = bodies.RegisterBrokerBody.decompress(command.body, command.version).topic_config_serialize_wrapper
    assert wrapper.topic_config_table.keys() == world.machine.topics.table.keys()
    assert wrapper.topic_config_table[TOPIC] == world.machine.topics.table[TOPIC]
    assert wrapper.data_version == world.machine.topics.version


# ── Housekeeping ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_queues_of_unused_topics_go(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, send())
    ok(client, send(topic="unused"))
    ok(client, send(properties={"DELAY": "3"}))
    world.machine.topics.table.pop("unused")
    ok(client, request(RequestCode.CLEAN_UNUSED_TOPIC))
    assert bodies_of(world) == [b"hello"]
    assert bodies_of(world, "unused") == []
    assert world.store.reader.offsets("SCHEDULE_TOPIC_XXXX", 2) == (0, 1)


def test_queues_in_use_stay(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, send())
    ok(client, request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))
    assert bodies_of(world) == [b"hello"]


def test_expired_segments_and_queues_go_on_request(world: SimulatedBroker) -> None:
    client = world.connect()
    ok(client, send(b"old", topic="old"))
    for _ in range(8):
        ok(client, send(bytes(30_000)))
    world.tick(80 * 3_600_000)
    start = world.store.log.start
    ok(client, request(RequestCode.DELETE_EXPIRED_COMMITLOG))
    world.pass_time(20_000)
    assert world.store.log.start > start
    ok(client, request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE))
    assert world.store.queues.get("old", 0) is None
    assert world.store.queues.get(TOPIC, 0) is not None


@pytest.mark.parametrize(
    ("code", "method"),
    [
        (RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, "remove_expired_queues"),
        (RequestCode.CLEAN_UNUSED_TOPIC, "remove_unused_topics"),
    ],
)
def test_disk_that_keeps_files_is_told_of(
    world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch, code: int, method: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "disk gone")

    monkeypatch.setattr(world.store, method, fail)
    answer = world.connect().ask(request(code))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "disk gone" in (answer.remark or "")
