"""A broker with access control: every request of the table, users and policies by request, restarts."""

import msgspec
import pytest

from kourou.access.plain_acl import parse
from kourou.access.users import User, UserType
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS
from kourou.protocol.signing import Credentials
from kourou.testing.broker import SimulatedBroker, SimulatedClient

ROOT = Credentials("root", "secret-of-root")
ALICE = Credentials("alice", "secret-of-alice")
EVERY_CODE = sorted(int(code) for code in REQUESTS)
NAMES_NOTHING = {RequestCode.END_TRANSACTION, RequestCode.UNREGISTER_CLIENT, RequestCode.HEART_BEAT}


def guarded(**changes: object) -> BrokerSettings:
    root = User(name=ROOT.access_key, password=ROOT.secret_key, type=UserType.SUPER)
    settings = BrokerSettings(authenticates=True, authorizes=True, first_user=root)
    for name, value in changes.items():
        setattr(settings, name, value)
    return settings


@pytest.fixture
def world() -> SimulatedBroker:
    return SimulatedBroker(settings=guarded())


def ask(client: SimulatedClient, by: Credentials | None, code: int, body: bytes = b"", **ext: object) -> Command:
    command = Command(code, ext={name: str(value) for name, value in ext.items()}, body=body)
    if by is not None:
        by.sign(command)
    return client.ask(command)


def create_user(client: SimulatedClient, user: Credentials, kind: str = "Normal", by: Credentials = ROOT) -> Command:
    info = bodies.UserInfo(password=user.secret_key, user_type=kind)
    return ask(client, by, RequestCode.AUTH_CREATE_USER, info.encode(), username=user.access_key)


def allow(client: SimulatedClient, user: Credentials, resource: str, *actions: str, decision: str = "Allow") -> Command:
    entry = bodies.PolicyEntryInfo(resource=resource, actions=list(actions), decision=decision)
    info = bodies.AclInfo(policies=[bodies.PolicyInfo(entries=[entry])])
    return ask(client, ROOT, RequestCode.AUTH_CREATE_ACL, info.encode(), subject=f"User:{user.access_key}")


def send(client: SimulatedClient, by: Credentials | None, topic: str) -> Command:
    fields: dict[str, object] = {"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "queueId": 0}
    fields |= {"defaultTopicQueueNums": 4}
    fields |= {"sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false"}
    return ask(client, by, RequestCode.SEND_MESSAGE, b"body", **fields, batch="false")


def pull(client: SimulatedClient, by: Credentials | None, topic: str, group: str) -> Command:
    fields: dict[str, object] = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0}
    fields |= {"maxMsgNums": 32, "sysFlag": 4}
    fields |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
    return ask(client, by, RequestCode.PULL_MESSAGE, b"", **fields)


@pytest.mark.parametrize("code", [*EVERY_CODE, 99_999])
def test_every_request_without_a_signature_is_refused(world: SimulatedBroker, code: int) -> None:
    answer = ask(world.connect(), None, code)
    assert (answer.code, answer.remark) == (16, "username cannot be null.")


@pytest.mark.parametrize("code", EVERY_CODE)
def test_every_request_without_rights_is_refused(world: SimulatedBroker, code: int) -> None:
    client = world.connect()
    create_user(client, ALICE)
    before = tables_of(world)
    answer = client.ask(_request_to(code, ALICE))
    if code not in NAMES_NOTHING:
        assert answer.code != 0
        assert "secret" not in (answer.remark or "")
    assert tables_of(world) == before


def tables_of(world: SimulatedBroker) -> tuple[set[str], set[str], int, object]:
    machine = world.machine
    users = machine.access_control.directory.save() if machine.access_control.directory is not None else None
    return set(machine.topics.table), set(machine.groups.table), world.store.log.end, users


def _request_to(code: int, by: Credentials) -> Command:
    """A request with a value in each of its fields."""
    ext: dict[str, str] = {}
    header = REQUESTS[code].header
    for info in msgspec.structs.fields(header) if header is not None else ():
        text = str(info.type)
        ext[info.encode_name] = "1" if "int" in text else "true" if "bool" in text else "foreign"
    command = Command(code, ext=ext, body=b"{}")
    by.sign(command)
    return command


def test_wrong_signatures(world: SimulatedBroker) -> None:
    client = world.connect()
    create_user(client, ALICE)
    assert send(client, Credentials("alice", "wrong"), "t").remark == "check signature failed."
    assert send(client, Credentials("bob", "wrong"), "t").remark == "User:bob is not found."
    command = Command(RequestCode.GET_BROKER_RUNTIME_INFO, ext={})
    ROOT.sign(command)
    command.body = b"changed"
    assert client.ask(command).remark == "check signature failed."
    ask(client, ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice")
    assert send(client, ALICE, "t").remark == "User:alice is disabled."


def test_policies_decide(world: SimulatedBroker) -> None:
    client = world.connect()
    assert create_user(client, ALICE).code == 0
    refused = send(client, ALICE, "orders")
    assert refused.code == 16
    assert refused.remark == "User:alice has no permission to access Topic:orders from 127.0.0.1, no matched policies."
    assert "orders" not in world.machine.topics.table
    assert allow(client, ALICE, "Topic:ord*", "Pub").code == 0
    assert send(client, ALICE, "orders").code == 0
    assert send(client, ALICE, "orders").code == 0
    assert pull(client, ALICE, "orders", "g").code == 16
    allow(client, ALICE, "Topic:orders", "Sub")
    assert send(client, ALICE, "orders").code == 0  # the prefix still allows it
    assert pull(client, ALICE, "orders", "g").code == 16
    allow(client, ALICE, "Group:g", "Sub")
    assert pull(client, ALICE, "orders", "g").code == 0
    allow(client, ALICE, "Topic:orders", "All", decision="Deny")
    assert send(client, ALICE, "orders").remark is not None
    assert "the decision is deny." in (send(client, ALICE, "orders").remark or "")


def test_records_of_other_topics_are_not_shown(world: SimulatedBroker) -> None:
    """The request names a topic that the user may read, and the place of another topic's record."""
    client = world.connect()
    create_user(client, ALICE)
    for resource in ("Topic:mine", "Group:g"):
        allow(client, ALICE, resource, "All")
    assert send(client, ROOT, "secret").code == 0
    view = RequestCode.VIEW_MESSAGE_BY_ID
    assert ask(client, ROOT, view, topic="mine", offset=0).code == 0
    assert ask(client, ALICE, view, topic="mine", offset=0).code == 16
    assert ask(client, ALICE, view, offset=0).code == 16
    back = ask(client, ALICE, RequestCode.CONSUMER_SEND_MSG_BACK, offset=0, group="g", delayLevel=0, originTopic="mine")
    assert back.code == 16
    assert send(client, ROOT, "mine").code == 0
    offset = world.store.log.end - 200
    assert ask(client, ALICE, view, topic="mine", offset=offset).code != 0  # no record begins there


def test_passwords_are_for_super_users(world: SimulatedBroker) -> None:
    client = world.connect()
    create_user(client, ALICE)
    allow(client, ALICE, "Cluster:DefaultCluster", "All")
    for by, password in ((ROOT, ALICE.secret_key), (ALICE, None)):
        found = bodies.UserInfo.decode(ask(client, by, RequestCode.AUTH_GET_USER, username="alice").body)
        assert (found.username, found.password) == ("alice", password)
        text = ask(client, by, RequestCode.AUTH_LIST_USER).body.decode()
        assert (ROOT.secret_key in text) == (by is ROOT) and "alice" in text
    bob = Credentials("bob", "secret-of-bob")
    assert create_user(client, bob, "Super", by=ALICE).remark == "The super user can only be create by super user"
    update = ask(client, ALICE, RequestCode.AUTH_UPDATE_USER, b'{"password":"mine"}', username="root")
    assert update.remark == "The super user can only be update by super user"
    assert ask(client, ALICE, RequestCode.AUTH_DELETE_USER, username="root").code == 16


def test_users_survive_a_crash(world: SimulatedBroker) -> None:
    client = world.connect()
    create_user(client, ALICE)
    allow(client, ALICE, "Topic:t", "Pub")
    world = world.crash()
    client = world.connect()
    assert send(client, ALICE, "t").code == 0
    assert send(client, ALICE, "u").code == 16
    found = ask(client, ROOT, RequestCode.AUTH_GET_ACL, subject="User:alice")
    policies = bodies.AclInfo.decode(found.body).policies or []
    assert len(policies) == 1
    policy = policies[0]
    assert policy.policy_type == "Custom" and len(policy.entries or ()) == 1
    assert ask(client, ROOT, RequestCode.AUTH_DELETE_USER, username="alice").code == 0
    assert send(client, ALICE, "t").remark == "User:alice is not found."
    assert ask(client, ROOT, RequestCode.AUTH_GET_USER, username="alice").body == b""


def test_a_change_is_in_force_at_once_on_connections_that_were_allowed(world: SimulatedBroker) -> None:
    client, admin = world.connect(), world.connect()
    create_user(admin, ALICE)
    allow(admin, ALICE, "Topic:t", "Pub")
    assert [send(client, ALICE, "t").code for _ in range(3)] == [0, 0, 0]
    ask(admin, ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:t")
    assert send(client, ALICE, "t").code == 16


def test_producers_heartbeats_need_no_rights(world: SimulatedBroker) -> None:
    client = world.connect()
    create_user(client, ALICE)
    beat = bodies.HeartbeatData(client_id="c", producer_data_set=[bodies.ProducerData(group_name="p")])
    assert ask(client, ALICE, RequestCode.HEART_BEAT, beat.encode()).code == 0
    beat = bodies.HeartbeatData(client_id="c", consumer_data_set=[bodies.ConsumerData(group_name="g")])
    assert ask(client, ALICE, RequestCode.HEART_BEAT, beat.encode()).code == 16


def test_without_authorization_every_user_may_do_everything() -> None:
    client = SimulatedBroker(settings=guarded(authorizes=False)).connect()
    assert send(client, None, "t").code == 16
    assert send(client, ROOT, "t").code == 0


def test_codes_that_need_no_signature() -> None:
    code = int(RequestCode.GET_BROKER_RUNTIME_INFO)
    settings = guarded(unsigned_codes=frozenset((code,)), unruled_codes=frozenset((code,)))
    client = SimulatedBroker(settings=settings).connect()
    assert ask(client, None, code).code == 0
    assert send(client, None, "t").code == 16


def test_users_can_not_be_made_where_access_control_is_off() -> None:
    client = SimulatedBroker().connect()
    info = bodies.UserInfo(password="p").encode()
    answer = ask(client, None, RequestCode.AUTH_CREATE_USER, info, username="u")
    assert answer.code == 16 and "authenticationEnabled=true" in (answer.remark or "")


PLAIN = """
accounts:
- {accessKey: producer, secretKey: 12345678, topicPerms: [t=PUB]}
- {accessKey: administrator, secretKey: 12345678, admin: true}
"""


def test_accounts_of_plain_acl() -> None:
    settings = BrokerSettings(plain_acl=parse([("plain_acl.yml", PLAIN)]))
    client = SimulatedBroker(settings=settings).connect()
    producer, admin = Credentials("producer", "12345678"), Credentials("administrator", "12345678")
    assert (send(client, None, "t").code, send(client, producer, "t").code) == (1, 0)
    refused = send(client, producer, "u")
    assert refused.code == 1 and "No default permission for topic:u" in (refused.remark or "")
    delete = RequestCode.DELETE_TOPIC_IN_BROKER
    assert "Need admin permission" in (ask(client, producer, delete, topic="t").remark or "")
    assert ask(client, admin, delete, topic="t").code == 0


def test_accounts_become_users() -> None:
    settings = guarded(migrated=parse([("plain_acl.yml", PLAIN)]))
    client = SimulatedBroker(settings=settings).connect()
    producer, admin = Credentials("producer", "12345678"), Credentials("administrator", "12345678")
    assert (send(client, producer, "t").code, send(client, producer, "u").code) == (0, 16)
    assert ask(client, admin, RequestCode.DELETE_TOPIC_IN_BROKER, topic="t").code == 0


def test_the_log_has_one_line_for_a_host(world: SimulatedBroker, caplog: pytest.LogCaptureFixture) -> None:
    client = world.connect()
    for _ in range(5):
        send(client, Credentials("bad\x1b[31m", "x"), "t")
    lines = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert len(lines) == 1 and "\x1b" not in lines[0]
    assert world.machine.access_control.refusals.count == 5


def test_the_user_of_a_certificate_gets_passwords_only_as_a_super_user(world: SimulatedBroker) -> None:
    client = world.connect()
    create_user(client, ALICE)
    allow(client, ALICE, "Cluster:*", "Get")
    client.peer.user = "alice"
    answer = ask(client, None, RequestCode.AUTH_LIST_USER)
    assert answer.code == 0
    assert b"alice" in answer.body
    assert b"secret" not in answer.body
    client.peer.user = "root"
    assert b"secret-of-alice" in ask(client, None, RequestCode.AUTH_LIST_USER).body


def test_requests_about_users_are_never_exempt() -> None:
    codes = frozenset((int(RequestCode.AUTH_LIST_USER), int(RequestCode.GET_BROKER_RUNTIME_INFO)))
    client = SimulatedBroker(settings=guarded(unsigned_codes=codes, unruled_codes=codes)).connect()
    assert ask(client, None, RequestCode.GET_BROKER_RUNTIME_INFO).code == 0
    for by in (None, Credentials("root", "guess")):
        assert ask(client, by, RequestCode.AUTH_LIST_USER).code == 16
