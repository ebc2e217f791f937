"""Names, namespaces and client ids."""

import os
import time
from typing import Any

import pytest

from kourou.client import naming
from kourou.client.errors import InvalidNameError
from kourou.client.identity import MESSAGE_IDS, MessageIds, client_id, fresh_instance, local_ip
from kourou.client.nameservers import namespace_of, parse_addresses
from kourou.protocol.ids import decode_unique_id


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "../x", "ü", "a.b", "x" * 128])
def test_topics_that_no_broker_takes(name: str) -> None:
    with pytest.raises(InvalidNameError):
        naming.check_topic(name)


def test_topics_that_brokers_take() -> None:
    for name in ("a", "x" * 127, "%RETRY%" + "x" * 120, "A-b_c|d%e"):
        naming.check_topic(name)


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_groups_that_no_broker_takes(name: str) -> None:
    with pytest.raises(InvalidNameError):
        naming.check_group(name)


@pytest.mark.parametrize(
    ("plain", "wrapped"),
    [
        ("orders", "ns%orders"),
        ("%RETRY%billing", "%RETRY%ns%billing"),
        ("%DLQ%billing", "%DLQ%ns%billing"),
        ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
        ("rmq_sys_x", "rmq_sys_x"),
        ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ],
)
def test_namespaces(plain: str, wrapped: str) -> None:
    assert naming.wrap(plain, "ns") == wrapped
    assert naming.wrap(wrapped, "ns") == wrapped
    assert naming.unwrap(wrapped, "ns") == plain
    assert naming.wrap(plain, None) == plain


def test_client_ids() -> None:
    assert client_id("10.0.0.1", "DEFAULT", None) == "10.0.0.1@DEFAULT"
    assert client_id("10.0.0.1", "x", "unit") == "10.0.0.1@x@unit"
    assert fresh_instance().startswith(f"{os.getpid()}#")
    assert fresh_instance() != fresh_instance()


def test_message_ids_are_unique_and_say_when() -> None:
    ids = MessageIds()
    now_ms = 1_700_000_000_000
    made = {ids.next(now_ms) for _ in range(1000)}
    assert len(made) == 1000
    parts = decode_unique_id(made.pop())
    assert parts.pid == os.getpid() & 0xFFFF
    assert 0 <= parts.ms_of_month < 31 * 86_400_000 + 3_600_000
    assert len(local_ip()) >= 3


def test_addresses() -> None:
    assert parse_addresses("a:1;b:2; ") == ["a:1", "b:2"]
    assert parse_addresses("a:1,b:2") == ["a:1", "b:2"]
    assert parse_addresses(["a:1", " b:2"]) == ["a:1", "b:2"]
    assert parse_addresses("http://MQ_INST_1_Abc.cn.example.com:80") == ["MQ_INST_1_Abc.cn.example.com:80"]
    assert namespace_of(["MQ_INST_1_Abc.cn.example.com:80"]) == "MQ_INST_1_Abc"
    assert namespace_of(["10.0.0.1:9876"]) is None


@pytest.mark.parametrize("name", [5, None, b"orders", ["orders"], {"orders": 1}])
def test_names_that_are_not_text(name: Any) -> None:
    for check in (naming.check_topic, naming.check_sendable, naming.check_group):
        with pytest.raises(InvalidNameError, match=f"must be a string, not {type(name).__name__}"):
            check(name)


def test_a_forked_process_gives_its_messages_ids_of_its_own() -> None:
    now_ms = time.time_ns() // 1_000_000
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, MESSAGE_IDS.next(now_ms).encode())
        os._exit(0)
    os.close(write)
    with open(read) as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    ours = MESSAGE_IDS.next(now_ms)
    assert len(theirs) == len(ours)
    assert theirs[:-12] != ours[:-12], "the process parts of both ids"
