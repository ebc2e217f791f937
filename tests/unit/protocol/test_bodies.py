"""The JSON bodies against what the Java classes of RocketMQ 5.5.0 write and read."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from kourou.protocol import bodies, fastjson
from kourou.protocol.errors import BodyError

DATA = Path(__file__).parents[2] / "data"


def recorded(version: str, kind: str) -> list[Any]:
    """Lines of one kind from the file of what real Java classes wrote, each with its name as the test's id."""
    lines = (json.loads(line) for line in (DATA / f"java-{version}.jsonl").read_text().splitlines())
    return [pytest.param(line, id=line["name"]) for line in lines if line["kind"] == kind]


def as_recorded(value: Any) -> Any:
    """A decoded value the way the recording shows it: maps whose keys are no strings as lists of pairs."""
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: as_recorded(member) for key, member in value.items()}
        return {"#pairs": [[key, as_recorded(member)] for key, member in value.items()]}
    return [as_recorded(item) for item in value] if isinstance(value, list) else value


def body_class(name: str) -> type[bodies.Body]:
    found: type[bodies.Body] = getattr(bodies, name)
    assert issubclass(found, bodies.Body)
    return found


@pytest.mark.parametrize("line", recorded("5.5.0", "body"))
def test_what_java_writes_is_read_and_written_alike(line: dict[str, Any]) -> None:
    data = bytes.fromhex(line["hex"])
    body = body_class(line["fields"]["class"]).decode(data)
    written = as_recorded(fastjson.loads(body.encode()))
    expected = line["fields"]["value"]
    if line["name"] == "route, to clients since 4.9.4":
        written = as_recorded(fastjson.loads(body.encode(standard=True)))
    # Where Java has null for an empty table, we write the empty table.
    assert written == expected | {key: value for key, value in written.items() if value in ({}, [])}
    assert body_class(line["fields"]["class"]).decode(body.encode()) == body


@pytest.mark.parametrize("line", recorded("4.9.8", "body"))
def test_what_old_java_writes_is_read_with_todays_fields_at_their_defaults(line: dict[str, Any]) -> None:
    cls = body_class(line["fields"]["class"])
    body = cls.decode(bytes.fromhex(line["hex"]))
    expected = line["fields"].get("resolved", line["fields"]["value"])
    assert_contains(as_recorded(fastjson.loads(body.encode())), expected)
    assert cls.decode(body.encode()) == body


def assert_contains(whole: Any, part: Any) -> None:
    if isinstance(part, dict):
        assert part.keys() <= whole.keys()
        for key, member in part.items():
            assert_contains(whole[key], member)
    elif isinstance(part, list):
        assert len(whole) == len(part)
        for left, right in zip(whole, part, strict=True):
            assert_contains(left, right)
    else:
        assert whole == part


@pytest.mark.parametrize("line", recorded("5.5.0", "register_body") + recorded("4.9.8", "register_body"))
def test_registrations_of_java_brokers_are_read(line: dict[str, Any]) -> None:
    data, fields = bytes.fromhex(line["hex"]), line["fields"]
    if fields["compressed"]:
        body = bodies.RegisterBrokerBody.decompress(data, fields["version"])
        assert bodies.RegisterBrokerBody.decompress(body.compress(), version=513) == body
    else:
        body = bodies.RegisterBrokerBody.decode(data)
        assert bodies.RegisterBrokerBody.decode(body.encode()) == body
    assert_contains(as_recorded(fastjson.loads(body.encode())), fields["value"])


@pytest.mark.parametrize("line", recorded("5.5.0", "topic_text"))
def test_topics_as_text_are_read_and_written_alike(line: dict[str, Any]) -> None:
    text = bytes.fromhex(line["hex"]).decode()
    topic = bodies.TopicConfig.from_text(text)
    assert topic.to_text() == text
    value = line["fields"]["value"] | {"order": False, "topicSysFlag": 0}  # these two are not in the text
    assert fastjson.loads(topic.encode()) == value


COMPRESSED_REGISTRATION = bytes.fromhex(
    "78da2d8e3d6bc3301086d5293fa3e65da321224aedded6a184401b0835594a10b272690db665647928c6ffbd7208c7c1f1f07e9c10a298"
    "e0fcd8450ea08dc4106de43387a1f6dd1dc4bae504db1ea4f2579de785d23bbdd1b310e229ed7399e9342fd9d7e1b8ff7837e5db3e9bb0"
    "b6205499c3225b7de3460a9787a39d5075b6e5450109378670b87eda54306d4949a548cd12d73ac43fd0cd36034b70efdd2f689b1e74be"
    "5facc6fc34beb28d312923fabe760996f73bdae634f2c803a898ff0195633e87"
)
"""RegisterBrokerBody.encode(true) of one topic with an attribute, one filter server and one static mapping."""


def test_route_has_defaults_and_leaves_out_nulls() -> None:
    assert bodies.TopicRouteData().encode() == b'{"queueDatas":[],"brokerDatas":[],"filterServerTable":{}}'


def test_defaults_are_not_shared() -> None:
    first, second = bodies.RegisterBrokerBody(), bodies.RegisterBrokerBody()
    first.topic_config_serialize_wrapper.topic_config_table["T"] = bodies.TopicConfig()
    assert second == bodies.RegisterBrokerBody()


def test_broker_ids_are_bare_numbers_or_quoted_in_standard_form() -> None:
    broker = bodies.BrokerData(cluster="c", broker_name="b", broker_addrs={0: "h:1", 1: "h:2"})
    assert b'"brokerAddrs":{0:"h:1",1:"h:2"}' in broker.encode()
    assert b'"brokerAddrs":{"0":"h:1","1":"h:2"}' in broker.encode(standard=True)
    assert bodies.BrokerData.decode(broker.encode(standard=True)) == broker


def test_topic_text_form_round_trips() -> None:
    text = 'T 4 8 6 SINGLE_TAG {"+message.type":"FIFO"}'
    topic = bodies.TopicConfig.from_text(text)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (4, 8, 6)
    assert topic.attributes == {"+message.type": "FIFO"}
    assert topic.to_text() == text


def test_topic_text_form_of_old_brokers_has_no_attributes() -> None:
    assert bodies.TopicConfig.from_text("T 4 4 6 MULTI_TAG").attributes == {}


@pytest.mark.parametrize("text", ["", "T 4 4 6", "T x 4 6 SINGLE_TAG", "T  4 4 6 SINGLE_TAG", "T 4 4 6 OTHER"])
def test_wrong_topic_text_is_refused(text: str) -> None:
    with pytest.raises(BodyError, match="text form"):
        bodies.TopicConfig.from_text(text)


def test_compressed_registration_of_an_old_broker_ends_before_the_mappings() -> None:
    body = bodies.RegisterBrokerBody.decompress(COMPRESSED_REGISTRATION, version=409)
    wrapper = body.topic_config_serialize_wrapper
    assert body.filter_server_list == ["f:1"]
    assert wrapper.data_version == bodies.DataVersion(timestamp=1794778145404)
    assert wrapper.topic_config_table["T"].attributes == {"+a": "b c"}
    assert wrapper.topic_queue_mapping_info_map == {}


def test_compressed_registration_round_trips() -> None:
    body = bodies.RegisterBrokerBody(
        topic_config_serialize_wrapper=bodies.TopicConfigAndMappingSerializeWrapper(
            topic_config_table={f"T{n}": bodies.TopicConfig(topic_name=f"T{n}") for n in range(20)},
            data_version=bodies.DataVersion(counter=7, timestamp=1, state_version=2),
        ),
        filter_server_list=["h:1"],
    )
    assert bodies.RegisterBrokerBody.decompress(body.compress(), version=513) == body


def test_registration_that_inflates_too_far_is_refused() -> None:
    bomb = zlib.compress(bytes(1_000_000))
    with pytest.raises(BodyError, match="more than 999999 bytes"):
        bodies.RegisterBrokerBody.decompress(bomb, version=513, limit_bytes=999_999)


@pytest.mark.parametrize("cut", [0, 1, 4, 60, 64, 99])
def test_registration_cut_short_is_refused(cut: int) -> None:
    whole = zlib.decompress(COMPRESSED_REGISTRATION)
    with pytest.raises(BodyError):
        bodies.RegisterBrokerBody.decompress(zlib.compress(whole[:cut]), version=409)


def test_a_registration_that_is_not_a_zlib_stream_is_refused() -> None:
    with pytest.raises(BodyError, match="zlib"):
        bodies.RegisterBrokerBody.decompress(b"{}", version=513)
