"""Names, namespaces, client ids and signatures."""

import os
from typing import Any

import pytest

from kourou.client import naming
from kourou.client.errors import InvalidNameError
from kourou.client.identity import MessageIds, client_id, fresh_instance, local_ip
from kourou.client.nameservers import namespace_of, parse_addresses
from kourou.client.signing import Credentials
from kourou.protocol.command import Command
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


def test_the_signature_is_that_of_the_java_client() -> None:
    ext = {"topic": "T", "queueId": "0", "consumerGroup": "G", "commitOffset": "10"}
    command = Command(15, ext=ext, body=b"body")
    Credentials("rocketmq2", "12345678").sign(command)
    assert command.ext is not None
    assert command.ext["Signature"] == "N765fF4j5bX5wvhmrTztSlH1AvE="
    Credentials("rocketmq2", "12345678").sign(command)
    assert command.ext["Signature"] == "N765fF4j5bX5wvhmrTztSlH1AvE="


def test_a_token_is_signed_too_and_secrets_do_not_show() -> None:
    account = Credentials("key", "hush-hush", "token")
    command = Command(34)
    account.sign(command)
    assert command.ext is not None and command.ext["SecurityToken"] == "token"
    assert "hush" not in repr(account) and "token" not in repr(account).replace("security_token", "")


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
def test_names_that_are_no_text(name: Any) -> None:
    for check in (naming.check_topic, naming.check_sendable, naming.check_group):
        with pytest.raises(InvalidNameError, match=f"must be a string, not {type(name).__name__}"):
            check(name)
