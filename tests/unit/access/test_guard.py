"""Decisions about requests: users with policies, and accounts of plain_acl.yml."""

from ipaddress import ip_address

import pytest

from kourou.access.directory import Directory
from kourou.access.errors import AccessError
from kourou.access.guard import Guard, Need
from kourou.access.plain_acl import parse
from kourou.access.plain_guard import PlainGuard
from kourou.access.policies import ResourceType
from kourou.access.users import User
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, NotifyMinBrokerIdChange
from kourou.protocol.headers.table import CREATE, DELETE, PUB, SUB, UPDATE
from kourou.protocol.signing import Credentials

HOME = ip_address("127.0.0.1")


@pytest.fixture
def directory() -> Directory:
    found = Directory()
    found.create_user(bodies.UserInfo(username="root", password="r", user_type="Super"))
    found.create_user(bodies.UserInfo(username="alice", password="a"))
    entries = [
        bodies.PolicyEntryInfo(resource="Topic:t", actions=["Pub"], decision="Allow"),
        bodies.PolicyEntryInfo(resource="Topic:no", actions=["All"], decision="Deny"),
    ]
    found.put_acl("User:alice", bodies.AclInfo(policies=[bodies.PolicyInfo(entries=entries)]))
    return found


def by(name: str, password: str, code: int = 10) -> Command:
    command = Command(code, ext={})
    Credentials(name, password).sign(command)
    return command


def named(user: User | None) -> str | None:
    return None if user is None else user.name


def test_authentication(directory: Directory) -> None:
    guard = Guard(directory)
    assert named(guard.authenticate(by("alice", "a"), HOME)) == "alice"
    directory.update_user(bodies.UserInfo(username="alice", user_status="disable"))
    for command, refusal in (
        (Command(10), "username cannot be null."),
        (by("bob", "b"), "User:bob is not found."),
        (by("root", "x"), "check signature failed."),
        (by("alice", "a"), "User:alice is disabled."),
    ):
        with pytest.raises(AccessError) as error:
            guard.authenticate(command, HOME)
        assert (str(error.value), error.value.code) == (refusal, 16)


def test_invalid_signatures(directory: Directory) -> None:
    for signature in ("", "ä", "\ud800"):
        command = by("root", "r")
        assert command.ext is not None
        command.ext["Signature"] = signature
        with pytest.raises(AccessError, match=r"check signature failed\."):
            Guard(directory).authenticate(command, HOME)


def test_authorization(directory: Directory) -> None:
    guard = Guard(directory)
    alice, root = directory.user("alice"), directory.user("root")
    assert alice is not None and root is not None

    def refusal(topic: str) -> str | None:
        return guard.refusal(alice, 10, [Need(ResourceType.TOPIC, topic, PUB)], HOME)

    assert refusal("t") is None
    assert refusal("x") == "User:alice has no permission to access Topic:x from 127.0.0.1, no matched policies."
    assert refusal("no") == "User:alice has no permission to access Topic:no from 127.0.0.1, the decision is deny."
    assert "it needs a super user" in (guard.refusal(alice, 10, [], HOME) or "")
    assert guard.refusal(root, 10, [], HOME) is None
    assert guard.refusal(root, 10, [Need(ResourceType.TOPIC, None, CREATE)], HOME) is None


@pytest.mark.parametrize("code", range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1))
def test_a_signature_of_another_request_does_not_sign_one_about_users(directory: Directory, code: int) -> None:
    """It does not cover the code: a broker is told about another one, signed, and could send the fields again."""
    guard = Guard(directory)
    header = NotifyMinBrokerIdChange(min_broker_id=1, broker_name="b", min_broker_addr="127.0.0.1:10911")
    other = Command(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, ext=header.encode())
    Credentials("root", "r").sign(other)
    assert guard.authenticate(other, HOME) is not None
    with pytest.raises(AccessError, match=r"check signature failed: \w+ is not a field of this request"):
        guard.authenticate(Command(code, ext=other.ext), HOME)
    declared = REQUESTS[code].header
    assert declared is not None
    own = Command(code, ext=dict.fromkeys((*declared.__struct_encode_fields__, "ns", "nsd", "bname", "oway"), "x"))
    Credentials("root", "r", "token").sign(own)
    assert guard.authenticate(own, HOME) is not None


PLAIN = """
globalWhiteRemoteAddresses: [10.0.0.1]
accounts:
- {accessKey: account, secretKey: 12345678, whiteRemoteAddress: 10.0.0.2, defaultGroupPerm: SUB, topicPerms: [t=PUB]}
- {accessKey: adminis, secretKey: 12345678, admin: true}
"""


def test_plain_acl() -> None:
    guard = PlainGuard(parse([("plain_acl.yml", PLAIN)]))
    assert guard.authenticate(Command(10), ip_address("10.0.0.1")) is None
    assert guard.authenticate(by("account", "wrong"), ip_address("10.0.0.2")) is None
    account = guard.authenticate(by("account", "12345678"), HOME)
    admin = guard.authenticate(by("adminis", "12345678"), HOME)
    assert account is not None and admin is not None
    for command, text in (
        (Command(10), "No accessKey is configured"),
        (by("other", "x"), "No acl config for other"),
        (by("account", "wrong"), "Check signature failed for accessKey=account"),
    ):
        with pytest.raises(AccessError, match=f"AclException: {text}") as error:
            guard.authenticate(command, HOME)
        assert error.value.code == 1

    def refusal(*needs: Need) -> str:
        return guard.refusal(account, 99, needs, HOME) or ""

    assert refusal(Need(ResourceType.TOPIC, "t", PUB)) == ""
    assert refusal(Need(ResourceType.TOPIC, "RMQ_SYS_TRACE_TOPIC", PUB)) == ""
    assert refusal(Need(ResourceType.GROUP, "g", SUB | UPDATE)) == ""
    assert "No default permission for topic:x" in refusal(Need(ResourceType.TOPIC, "x", PUB))
    for needs in ((), (Need(ResourceType.TOPIC, "t", DELETE),), (Need(ResourceType.CLUSTER, "c", UPDATE),)):
        assert "Need admin permission for request code=99, but accessKey=account is not" in refusal(*needs)
        assert guard.refusal(admin, 99, needs, HOME) is None
    assert guard.refusal(None, 99, (), HOME) is None
