"""The table of requests: its codec, and its agreement with the header classes of RocketMQ 5.5.0."""

import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.protocol import headers
from kourou.protocol.codes import RequestCode
from kourou.protocol.errors import HeaderError
from kourou.protocol.headers import GET, PUB, REQUESTS, SUB, Direction, Header, Int32, Int64, needs, request

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data"

COMMON = {field.encode_name for field in msgspec.structs.fields(headers.Common)}

QUERY = {"consumerGroup": "g", "topic": "T", "queueId": "3"}


# ------------------------------------------------------------------------------------------------------------- codec


def test_header_is_read_from_strings_and_written_to_strings() -> None:
    header = headers.QueryConsumerOffset.decode(QUERY | {"setZeroIfNotFound": "true", "unknown": "x"})
    assert header == headers.QueryConsumerOffset(consumer_group="g", topic="T", queue_id=3, set_zero_if_not_found=True)
    assert header.encode() == QUERY | {"setZeroIfNotFound": "true"}


def test_none_is_left_out() -> None:
    assert headers.QueryConsumerOffset.decode(QUERY).encode() == QUERY


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("tRue", True), ("false", False), ("1", False), ("yes", False), ("", False)],
)
def test_booleans_are_read_as_java_reads_them(text: str, value: bool) -> None:
    header = headers.QueryConsumerOffset.decode(QUERY | {"setZeroIfNotFound": text})
    assert header.set_zero_if_not_found is value


@pytest.mark.parametrize(("text", "value"), [("+7", 7), ("007", 7), ("-0", 0), ("-2147483648", -(2**31))])
def test_integers_are_read_as_java_reads_them(text: str, value: int) -> None:
    assert headers.QueryConsumerOffset.decode(QUERY | {"queueId": text}).queue_id == value


@pytest.mark.parametrize("text", ["", " 7", "7 ", "0x7", "7_0", "٧", "seven", "2147483648", "-2147483649", "9" * 5000])
def test_other_integers_are_refused(text: str) -> None:
    with pytest.raises(HeaderError) as caught:
        headers.QueryConsumerOffset.decode(QUERY | {"queueId": text})
    message = str(caught.value)
    assert message.startswith("QUERY_CONSUMER_OFFSET: the field queueId is ")
    assert message.endswith("expected an integer of 32 bits")
    assert repr(text[:10])[:-1] in message
    assert len(message) < 200


def test_longs_reach_further() -> None:
    ext = QUERY | {"commitOffset": "9223372036854775807"}
    assert headers.UpdateConsumerOffset.decode(ext).commit_offset == 2**63 - 1
    with pytest.raises(HeaderError, match="commitOffset is '9223372036854775808', expected an integer of 64 bits"):
        headers.UpdateConsumerOffset.decode(ext | {"commitOffset": "9223372036854775808"})


@pytest.mark.parametrize("ext", [None, {}, {"topic": "T"}])
def test_missing_field_is_named(ext: dict[str, str] | None) -> None:
    with pytest.raises(HeaderError, match="QUERY_CONSUMER_OFFSET: the field consumerGroup is missing"):
        headers.QueryConsumerOffset.decode(ext)


def test_an_answer_is_named_by_its_class() -> None:
    with pytest.raises(HeaderError, match="OffsetAnswer: the field offset is missing"):
        headers.OffsetAnswer.decode(None)


def test_short_and_long_send_headers_say_the_same() -> None:
    short = {"a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "3", "f": "0", "g": "1700000000000", "h": "5", "i": "p"}
    short |= {"j": "1", "k": "false", "l": "16", "m": "true", "n": "broker-a"}
    v2 = headers.SendMessageV2.decode(short)
    v1 = v2.to_v1()
    assert v1.encode() == {
        "producerGroup": "g",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "3",
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "5",
        "properties": "p",
        "reconsumeTimes": "1",
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "batch": "true",
        "bname": "broker-a",
    }
    assert v1.to_v2() == v2
    assert v1.to_v2().encode() == short


def test_fields_that_any_request_may_carry() -> None:
    common = headers.Common.decode(QUERY | {"bname": "broker-a", "lo": "false", "ns": "n"})
    assert common == headers.Common(broker_name="broker-a", logical=False, namespace="n")


# ------------------------------------------------------------------------------------------------------- declaration


def test_a_code_is_declared_once() -> None:
    with pytest.raises(TypeError, match=r"request code 14 \(QUERY_CONSUMER_OFFSET\) is already declared"):

        @request(RequestCode.QUERY_CONSUMER_OFFSET, Direction.CLIENT_TO_BROKER)
        class Again(Header):
            """Once more."""

    assert REQUESTS[14].header is headers.QueryConsumerOffset


def test_access_names_fields_that_exist() -> None:
    with pytest.raises(TypeError, match="GET_CLIENT_CONFIG names topic in its access, but has no such field"):

        @request(RequestCode.GET_CLIENT_CONFIG, Direction.ADMIN_TO_BROKER, access=needs(GET, "topic"))
        class NoTopic(Header):
            """Has no topic."""

            group: str

    assert RequestCode.GET_CLIENT_CONFIG not in REQUESTS


def test_a_field_of_another_type_is_refused() -> None:
    class Wrong(Header):
        """Has a list."""

        names: list[str]

    with pytest.raises(TypeError, match="names is list"):
        Wrong(names=[]).encode()


def test_codes_with_one_header_are_all_in_the_table() -> None:
    assert headers.SendMessageV2.codes == (
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    )
    for code in headers.SendMessageV2.codes:
        assert REQUESTS[code].header is headers.SendMessageV2
        assert REQUESTS[code].answer is headers.SendMessageAnswer


UNUSED = {
    # Numbers that Apache reserves, and which none of its programs sends or serves.
    RequestCode.QUERY_BROKER_OFFSET,
    RequestCode.GET_TOPIC_CONFIG_LIST,
    RequestCode.GET_TOPIC_NAME_LIST,
    RequestCode.TRIGGER_DELETE_FILES,
    RequestCode.GET_CLIENT_CONFIG,
    RequestCode.SUSPEND_CONSUMER,
    RequestCode.RESUME_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_CONSUMER,
    RequestCode.RESET_CONSUMER_OFFSET_IN_BROKER,
    RequestCode.ADJUST_CONSUMER_THREAD_POOL,
    RequestCode.WHO_CONSUME_THE_MESSAGE,
    RequestCode.REGISTER_FILTER_SERVER,
    RequestCode.REGISTER_MESSAGE_FILTER_CLASS,
    RequestCode.ACK_LITE_MESSAGE,
    # Entries in the log of Apache's controllers.
    RequestCode.BROKER_CLOSE_CHANNEL_REQUEST,
    RequestCode.CHECK_NOT_ACTIVE_BROKER_REQUEST,
    RequestCode.GET_BROKER_LIVE_INFO_REQUEST,
    RequestCode.GET_SYNC_STATE_DATA_REQUEST,
    RequestCode.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
}


def test_every_code_that_a_client_sends_is_declared() -> None:
    assert set(RequestCode) - UNUSED == set(REQUESTS)


def test_every_entry_is_told_in_a_sentence() -> None:
    for info in REQUESTS.values():
        assert info.about.endswith((".", "?")), info.name
        assert info.name == RequestCode(info.code).name


def test_access_is_declared_unless_a_client_is_asked() -> None:
    open_to_all = {info.direction for info in REQUESTS.values() if info.access is None}
    assert open_to_all == {Direction.BROKER_TO_CLIENT}


def test_the_page_of_all_requests_is_current() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "rpc_table.py"))
    page = (ROOT / "docs" / "rpc.md").read_text(encoding="utf-8")
    assert page == tool["render"](), "run tools/rpc_table.py"
    assert all(f"### {info.code} {info.name}\n" in page for info in REQUESTS.values())


# --------------------------------------------------------------------------------------------------- Java's classes


def recorded(kind: str) -> dict[str, Any]:
    lines = (json.loads(line) for line in (DATA / "java-5.5.0.jsonl").read_text().splitlines())
    return {line["name"]: line["fields"] for line in lines if line["kind"] == kind}


SCHEMA = recorded("header_schema")

UNKNOWN_CODE: dict[str, type[Header] | None] = {
    # Java's classes that do not say which request they belong to.
    "GetLiteClientInfoRequestHeader": headers.GetLiteClientInfo,
    "GetLiteGroupInfoRequestHeader": headers.GetLiteGroupInfo,
    "GetLiteTopicInfoRequestHeader": headers.GetLiteTopicInfo,
    "GetParentTopicInfoRequestHeader": headers.GetParentTopicInfo,
    "PopLiteMessageRequestHeader": headers.PopLiteMessage,
    "TriggerLiteDispatchRequestHeader": headers.TriggerLiteDispatch,
    "LiteSubscriptionCtlRequestHeader": None,
    "GetBrokerConfigResponseHeader": headers.GetBrokerConfigAnswer,
    "GetMetaDataResponseHeader": headers.GetMetadataAnswer,
    "PopLiteMessageResponseHeader": headers.PopLiteMessageAnswer,
    "CheckTransactionStateResponseHeader": headers.EndTransaction,  # the answer is a request of its own
}

UNUSED_CLASSES = {
    "InitConsumerOffsetRequestHeader",
    "RegisterOrderTopicRequestHeader",
    "StatisticsMessagesRequestHeader",
}

EXTRA = {
    # Fields that Java adds by hand, or that we take from the common ones.
    headers.SendMessage: {"bname"},
    headers.SendMessageAnswer: {"MSG_REGION", "TRACE_ON"},
    headers.QueryMessage: {"_UNIQUE_KEY_QUERY"},
    headers.CheckTransactionState: {"bname"},
    headers.GetTopicConfig: {"lo"},
}

OPTIONAL_HERE = {
    # Required by 5.5.0, not sent by earlier releases.
    ("GetAllTopicConfigRequestHeader", "topicSeq"),
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"),
    ("GetAllSubscriptionGroupResponseHeader", "totalGroupNum"),
    # Required, but Java's class has a value from the start.
    ("CreateTopicRequestHeader", "order"),
    ("ElectMasterRequestHeader", "designateElect"),
}


def our_class(name: str) -> type[Header] | None:
    if name in UNKNOWN_CODE:
        return UNKNOWN_CODE[name]
    if name.endswith("ResponseHeader"):
        return REQUESTS[SCHEMA[name.replace("Response", "Request")]["code"]].answer
    return REQUESTS[SCHEMA[name]["code"]].header


TYPES = {"int": Int32, "long": Int64, "bool": bool, "str": str, "BoundaryType": str}


@pytest.mark.parametrize("name", sorted(SCHEMA.keys() - UNUSED_CLASSES - {"CheckTransactionStateResponseHeader"}))
def test_fields_are_those_of_the_java_class(name: str) -> None:
    cls = our_class(name)
    java = {key: kind for key, kind in SCHEMA[name]["types"].items() if key not in COMMON}
    if cls is None:
        assert java == {}
        return
    ours = {field.encode_name: field for field in msgspec.structs.fields(cls)}
    assert ours.keys() == java.keys() | EXTRA.get(cls, set())
    for key, kind in java.items():
        assert ours[key].type in (TYPES[kind], TYPES[kind] | None), key
    required = {key for key, field in ours.items() if field.required}
    assert required == {key for key in SCHEMA[name]["required"] if (name, key) not in OPTIONAL_HERE}
    for key in SCHEMA[name]["primitive"]:
        assert ours[key].type == TYPES[java[key]], f"{key} is never null in Java"


FRAMES = {name: fields for name, fields in recorded("frame").items() if fields["header"] not in {None, *UNUSED_CLASSES}}


@pytest.mark.parametrize("name", [name for name in FRAMES if "JSON" in name])
def test_what_java_sends_is_read_and_written_alike(name: str) -> None:
    fields = FRAMES[name]
    cls = our_class(fields["header"])
    ext = {key: value for key, value in (fields["ext"] or {}).items() if value is not None}
    if cls is None or fields["header"] == "CheckTransactionStateResponseHeader":
        return
    written = cls.decode(ext).encode()
    known = {field.encode_name for field in msgspec.structs.fields(cls)}
    assert {key: value for key, value in written.items() if key in ext} == {
        key: value for key, value in ext.items() if key in known
    }
    common = headers.Common.decode(ext).encode()
    assert common == {key: value for key, value in ext.items() if key in COMMON}


# ----------------------------------------------------------------------------------------------------------- access

ACCESS: dict[str, Any] = json.loads((DATA / "java-access-5.5.0.json").read_text())

DECIDED_IN_CODE = {
    # Java's annotations say one thing, the code that checks them another; we follow the code.
    RequestCode.GET_ROUTEINFO_BY_TOPIC: needs(PUB | SUB | GET, "topic"),
    RequestCode.QUERY_CONSUMER_OFFSET: needs(SUB | GET, "topic", "consumer_group"),
    RequestCode.UPDATE_CONSUMER_OFFSET: needs(SUB | headers.UPDATE, "topic", "consumer_group"),
    RequestCode.CONSUMER_SEND_MSG_BACK: needs(SUB, "group"),
    RequestCode.UNREGISTER_CLIENT: needs(SUB, "consumer_group"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: needs(SUB | GET, "consumer_group"),
    RequestCode.HEART_BEAT: needs(SUB, in_body=True),
    RequestCode.LOCK_BATCH_MQ: needs(SUB, in_body=True),
    RequestCode.UNLOCK_BATCH_MQ: needs(SUB, in_body=True),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: needs(headers.CREATE, in_body=True),
}


@pytest.mark.parametrize("code", sorted({facts["code"] for facts in ACCESS.values() if facts["code"]}))
def test_access_is_what_java_asks_for(code: int) -> None:
    info = REQUESTS[code]
    if info.direction is Direction.BROKER_TO_CLIENT:
        return
    assert info.access is not None
    if code in DECIDED_IN_CODE:
        assert info.access == DECIDED_IN_CODE[RequestCode(code)]
        return
    classes = [facts for facts in ACCESS.values() if facts["code"] == code]
    assert {right.name for right in info.access.rights} == {action for facts in classes for action in facts["actions"]}
    (facts,) = (
        facts for name, facts in ACCESS.items() if facts["code"] == code and not name.endswith("ResponseHeader")
    )
    ours = {}
    for target in info.access.targets:
        assert target.attribute is not None or target.resource.name == facts["resource"]
        if target.attribute is not None and info.header is not None:
            keys = {field.name: field.encode_name for field in msgspec.structs.fields(info.header)}
            split = f" split at {target.separator}" if target.separator else ""
            ours[keys[target.attribute]] = target.resource.name + split
    assert ours == facts["names"]
