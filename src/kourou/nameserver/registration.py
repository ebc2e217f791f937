"""What a name server reads of a broker's registration.

A broker with 10,000 topics sends 2 MB of JSON, and routes must not wait for it: fields that nobody here looks at are
skipped by the parser rather than kept. `RegisterBrokerBody` has them all, and is what the compressed form gives.
"""

import zlib
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from kourou.protocol import headers
from kourou.protocol.bodies import DataVersion, RegisterBrokerBody, TopicConfig, TopicQueueMappingInfo
from kourou.protocol.bodies.base import Body, always
from kourou.protocol.codes import Version
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.java import Int32


class Topic(Body):
    """Of TopicConfig, what routes are made of."""

    topic_name: str | None = None
    read_queue_nums: Int32 = always(16)
    write_queue_nums: Int32 = always(16)
    perm: Int32 = always(6)
    topic_sys_flag: Int32 = always(0)


class Topics(Body):
    """Of TopicConfigAndMappingSerializeWrapper."""

    topic_config_table: dict[str, Topic] = always(dict)
    data_version: DataVersion = always(DataVersion())
    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = always(dict)


class Registration(Body):
    """Of RegisterBrokerBody."""

    topic_config_serialize_wrapper: Topics = always(Topics)
    filter_server_list: list[str] = always(list)


AnyRegistration: TypeAlias = Registration | RegisterBrokerBody
AnyTopic: TypeAlias = Topic | TopicConfig


def read(command: Command, header: headers.RegisterBroker) -> AnyRegistration:
    """The body of a registration in any of its forms. Raises BodyError."""
    body = command.body
    if header.body_crc32 and zlib.crc32(body) & 0x7FFFFFFF != header.body_crc32:
        raise BodyError("crc32 not match")
    if not body:
        return Registration()
    if command.version < Version.V3_0_11:
        return Registration(topic_config_serialize_wrapper=Topics.decode(body))
    if header.compressed:
        return RegisterBrokerBody.decompress(body, command.version)
    return Registration.decode(body)


class _UnreadTopics(msgspec.Struct, rename="camel", gc=False):
    topic_config_table: msgspec.Raw = msgspec.Raw()
    data_version: msgspec.Raw = msgspec.Raw()
    topic_queue_mapping_info_map: msgspec.Raw = msgspec.Raw()


class _Unread(msgspec.Struct, rename="camel", gc=False):
    """A registration whose parts are found and not read."""

    topic_config_serialize_wrapper: _UnreadTopics | None = None
    filter_server_list: msgspec.Raw = msgspec.Raw()


_decode_unread = msgspec.json.Decoder(_Unread).decode


def fingerprint(command: Command, ext: Mapping[str, str]) -> int:
    """What a registration says, as a number, made without reading its topics.

    Brokers of 5.x give every repetition a new time of their mapping version, which means nothing here, and with it a
    new CRC. So the number is made of the parts that count. Of the topics a CRC is enough: with different topics comes
    a different data version.
    """
    said: object = command.body
    try:
        parts = _decode_unread(command.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # compressed, or not JSON as everyone writes it
    else:
        topics = parts.topic_config_serialize_wrapper or _UnreadTopics()
        said = (
            zlib.crc32(topics.topic_config_table),
            bytes(topics.data_version),
            bytes(topics.topic_queue_mapping_info_map),
            bytes(parts.filter_server_list),
        )
    return hash((said, command.version, tuple((key, value) for key, value in ext.items() if key != "bodyCrc32")))
