"""Signatures of requests: as the Java client makes them, and how they are verified."""

import msgspec
import pytest

from kourou.protocol.codes import Version
from kourou.protocol.command import Command
from kourou.protocol.signing import Credentials

ACCOUNT = Credentials("rocketmq2", "12345678")

SEND = {
    "a": "pg",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "1",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k1\x02TAGS\x01中文\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


@pytest.mark.parametrize(
    ("code", "ext", "body", "token", "signature"),
    [
        (310, SEND, b"hello", None, "zmnuRlCrjaTP+TCGS51b2sovu1A="),
        (105, {"topic": "TopicTest"}, b"", "tok", "srLC0a0pn58kwQ14kgLHSOPpVSo="),
        (34, None, b"{}", None, "rSstUKkrER5aSJ6DGS3kFVeNxfw="),
        (
            15,
            {"topic": "T", "queueId": "0", "consumerGroup": "G", "commitOffset": "10"},
            b"body",
            None,
            "N765fF4j5bX5wvhmrTztSlH1AvE=",
        ),
    ],
)
def test_the_signature_is_that_of_the_java_client(
    code: int, ext: dict[str, str] | None, body: bytes, token: str | None, signature: str
) -> None:
    account = Credentials("rocketmq2", "12345678", token)
    command = Command(code, ext=dict(ext) if ext is not None else None, body=body)
    for _ in range(2):  # a request that is sent again is signed again
        account.sign(command)
        assert command.ext is not None and command.ext["Signature"] == signature
        assert command.ext.get("SecurityToken") == token
        assert account.have_signed(command)


def test_secrets_do_not_show() -> None:
    account = Credentials("key", "hush-hush", "token")
    assert "hush" not in repr(account) and "token" not in repr(account).replace("security_token", "")


def signed(**fields: str) -> Command:
    command = Command(310, ext={"a": "pg", "b": "TopicTest", **fields}, body=b"hello")
    ACCOUNT.sign(command)
    return command


def test_what_was_changed_is_not_signed() -> None:
    command = signed()
    assert ACCOUNT.have_signed(command)
    assert command.ext is not None
    assert not ACCOUNT.have_signed(msgspec.structs.replace(command, body=b"hullo"))
    for ext in (
        {**command.ext, "b": "OtherTopic"},
        {**command.ext, "z": "added"},
        {key: value for key, value in command.ext.items() if key != "a"},
        {key: value for key, value in command.ext.items() if key != "Signature"},
        {**command.ext, "Signature": "中文"},
        {**command.ext, "AccessKey": "somebody"},
        None,
    ):
        assert not ACCOUNT.have_signed(msgspec.structs.replace(command, ext=ext))
    assert not Credentials("rocketmq2", "another secret").have_signed(command)


def test_old_senders_do_not_sign_the_field_that_they_add_later() -> None:
    command = signed()
    assert command.ext is not None
    later = {**command.ext, "_UNIQUE_KEY_QUERY": "true"}
    old = msgspec.structs.replace(command, ext=later, version=int(Version.V4_9_4) - 2)
    new = msgspec.structs.replace(command, ext=later, version=int(Version.V5_5_0))
    assert ACCOUNT.have_signed(old)
    assert not ACCOUNT.have_signed(new)
