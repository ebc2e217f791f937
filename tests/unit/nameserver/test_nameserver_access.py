"""A name server with access control: every request of its table, users and policies by request, restarts."""

from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from kourou.access.directory import Saved
from kourou.access.plain_acl import parse
from kourou.access.users import User, UserType
from kourou.nameserver.access import CLUSTERS_MAX, USERS_MAX, AccessSettings
from kourou.nameserver.events import (
    AccountsRead,
    Asked,
    Effect,
    Event,
    Kept,
    NotSaved,
    Reply,
    Save,
    Saved as DocumentSaved,
    Tell,
    Tick,
    Turn,
)
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Direction
from kourou.protocol.signing import Credentials

ROOT, BROKER = Credentials("root", "secret-of-root"), Credentials("inner", "secret-of-inner")
ALICE = Credentials("alice", "secret-of-alice")
OURS = AccessSettings(
    authenticates=True,
    authorizes=True,
    first_user=User(name="root", password=ROOT.secret_key, type=UserType.SUPER),
    inner_user=User(name="inner", password=BROKER.secret_key, type=UserType.SUPER),
)
OF_USERS = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
SERVED = sorted(
    int(info.code)
    for info in REQUESTS.values()
    if info.direction in (Direction.CLIENT_TO_NAMESERVER, Direction.BROKER_TO_NAMESERVER) or info.code in OF_USERS
)
FIELDS = {
    "topic": "orders",
    "cluster": "C",
    "clusterName": "C",
    "brokerName": "b",
    "brokerAddr": "127.0.0.1:10911",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
    "namespace": "n",
    "key": "k",
    "value": "v",
    "username": "bob",
    "subject": "User:alice",
}


class World:
    """A name server, whose files are written at once unless they fail."""

    def __init__(self, access: AccessSettings = OURS, settings: Settings | None = None) -> None:
        self.machine = NameServer(settings or Settings(), {}, 0, access=access)
        self.failure: str | None = None
        self.files: dict[Kept, str | bytes] = {}
        self.told: list[Command] = []
        self.now_ms = 0
        self.step(Tick())

    def step(self, event: Event) -> list[Command]:
        answers: list[Command] = []
        waiting: list[Event] = [event]
        while waiting or self.machine.is_busy:
            effects = self.machine.step(waiting or [Turn()], self.now_ms)
            waiting = []
            for effect in effects:
                self._perform(effect, answers, waiting)
        self.machine.check()
        return answers

    def _perform(self, effect: Effect, answers: list[Command], waiting: list[Event]) -> None:
        match effect:
            case Reply(_, command):
                answers.append(command)
            case Tell(_, command):
                self.told.append(command)
            case Save(document, version, content) if self.failure is None:
                self.files[document] = content
                waiting.append(DocumentSaved(document, version))
            case Save(document, version):
                waiting.append(NotSaved(document, version, self.failure or ""))

    def ask(
        self, by: Credentials | None, code: int, body: bytes = b"", peer: str = "127.0.0.1:5", **ext: Any
    ) -> Command:
        command = Command(code, ext=dict(ext), body=body)
        if by is not None:
            by.sign(command)
        (answer,) = self.step(Asked("c", command, peer))
        return answer

    def register(self, by: Credentials | None, cluster: str = "C", topic: str = "orders", name: str = "b") -> Command:
        header = headers.RegisterBroker(
            broker_name=name, broker_addr=FIELDS["brokerAddr"], cluster_name=cluster, ha_server_addr="h:1", broker_id=0
        )
        wrapper = bodies.TopicConfigAndMappingSerializeWrapper(
            topic_config_table={name: bodies.TopicConfig(topic_name=name) for name in (topic, "SELF_TEST_TOPIC")},
            data_version=bodies.DataVersion(timestamp=1, counter=1),
        )
        body = bodies.RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()
        return self.ask(by, RequestCode.REGISTER_BROKER, body, **header.encode())

    def create(self, user: Credentials, by: Credentials = ROOT, kind: str = "Normal") -> Command:
        info = bodies.UserInfo(password=user.secret_key, user_type=kind)
        return self.ask(by, RequestCode.AUTH_CREATE_USER, info.encode(), username=user.access_key)

    def allow(self, resource: str, *actions: str, ips: list[str] | None = None, decision: str = "Allow") -> Command:
        entry = bodies.PolicyEntryInfo(resource=resource, actions=list(actions), source_ips=ips, decision=decision)
        info = bodies.AclInfo(policies=[bodies.PolicyInfo(entries=[entry])])
        return self.ask(ROOT, RequestCode.AUTH_CREATE_ACL, info.encode(), subject="User:alice")

    def route(self, by: Credentials | None, topic: str = "orders", **ext: Any) -> Command:
        return self.ask(by, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, **ext)

    def state(self) -> object:
        machine = self.machine
        directory = machine.access.directory
        return (
            set(machine.tables.topics),
            set(machine.tables.clusters),
            set(machine.tables.live),
            machine.settings,
            machine.configuration._kv.value,
            None if directory is None else directory.save(),
        )


@pytest.fixture
def world() -> World:
    made = World()
    assert made.register(BROKER).code == 0
    assert made.create(ALICE).code == 0
    return made


def request_to(code: int) -> tuple[dict[str, str], bytes]:
    """A valid request, as far as its header and body are concerned."""
    info = REQUESTS[code]
    names = [] if info.header is None else [key for key in FIELDS if key in _keys(info.header)]
    body = b""
    if isinstance(info.body, type):
        user = bodies.UserInfo(password="secret-of-bob")
        entries = [bodies.PolicyEntryInfo(resource="Topic:t", actions=["Pub"], decision="Allow")]
        acl = bodies.AclInfo(policies=[bodies.PolicyInfo(entries=entries)])
        known: dict[object, bodies.Body] = {bodies.UserInfo: user, bodies.AclInfo: acl}
        body = known.get(info.body, info.body()).encode()
    elif info.body is not None:
        body = b"enableTopicList=true\n"
    return {name: FIELDS[name] for name in names}, body


def _keys(header: type[headers.Header]) -> set[str]:
    return set(header.__struct_encode_fields__)


# ── Every request ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_request_that_is_served_has_a_rule_by_its_header() -> None:
    machine = World().machine
    handled = {*machine._handlers, *machine._changes, RequestCode.REGISTER_BROKER}
    assert handled == set(SERVED)
    for code in handled:
        access = REQUESTS[code].access
        assert access is not None and access.rights and access.targets and not access.in_body


def test_every_request_without_a_signature_is_refused(world: World) -> None:
    before = world.state()
    for code in (*REQUESTS, 99_999):
        answer = world.ask(None, code, b"", **FIELDS)
        assert (answer.code, answer.remark, answer.body) == (16, "username cannot be null.", b"")
    assert world.state() == before


def test_every_request_without_rights_is_refused(world: World) -> None:
    before = world.state()
    for code in REQUESTS:
        ext, body = request_to(code) if code in SERVED else (FIELDS, b"")
        answer = world.ask(ALICE, code, body, **ext)
        assert answer.code != 0
        assert answer.code == ResponseCode.NO_PERMISSION or code not in SERVED
        assert answer.body == b""
        assert "127.0.0.1:10911" not in (answer.remark or "")
    assert world.state() == before


@pytest.mark.parametrize("code", SERVED)
def test_every_request_with_the_right_is_served(world: World, code: int) -> None:
    access = REQUESTS[code].access
    assert access is not None
    kind = access.targets[0].resource.value.capitalize()
    right = next(iter(access.rights)).name
    assert right is not None
    assert world.allow(f"{kind}:*", right.capitalize()).code == 0
    ext, body = request_to(code)
    if code in (RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE):
        assert world.ask(ROOT, RequestCode.PUT_KV_CONFIG, namespace="n", key="k", value="v").code == 0
    if code == RequestCode.AUTH_DELETE_ACL:
        ext["subject"] = "User:alice"
    if code in (RequestCode.AUTH_UPDATE_USER, RequestCode.AUTH_DELETE_USER):
        assert world.create(Credentials("bob", "secret-of-bob")).code == 0
    answer = world.ask(ALICE, code, body, **ext)
    assert answer.code == 0, answer.remark


def test_every_request_of_a_super_user_is_served(world: World) -> None:
    for code in set(SERVED) - set(OF_USERS):
        ext, body = request_to(code)
        assert world.ask(ROOT, code, body, **ext).code != ResponseCode.NO_PERMISSION


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(SERVED), st.sampled_from([None, ALICE, Credentials("root", "guess")]))))
def test_no_sequence_of_requests_without_rights_changes_anything(asked: list[tuple[int, Credentials | None]]) -> None:
    world = World()
    world.register(BROKER)
    world.create(ALICE)
    before = world.state()
    for code, by in asked:
        ext, body = request_to(code)
        answer = world.ask(by, code, body, **{**ext, **({"topic": "bills"} if code == 105 else {})})
        assert answer.code == ResponseCode.NO_PERMISSION
        text = f"{answer.remark}{answer.ext}{answer.body!r}"
        assert "orders" not in text
        assert "10911" not in text
        assert "secret" not in text
    assert world.state() == before


def test_a_user_of_one_cluster_does_not_reach_the_brokers_of_another(world: World) -> None:
    """Broker names are the same in all clusters: the request says another cluster than the broker's own."""
    assert world.register(BROKER).code == 0
    world.allow("Cluster:mine", "All")
    before = world.state()
    other = {**FIELDS, "clusterName": "mine"}
    refused = [
        world.register(ALICE, cluster="mine", topic="theirs"),
        world.ask(ALICE, RequestCode.UNREGISTER_BROKER, b"", **other),
        world.ask(ALICE, RequestCode.BROKER_HEARTBEAT, b"", **other),
        world.ask(ALICE, RequestCode.GET_BROKER_MEMBER_GROUP, b"", **other),
    ]
    for answer in refused:
        assert (answer.code, answer.body) == (16, b"")
        assert "Cluster:C" not in (answer.remark or "")
    assert world.state() == before
    assert world.register(ALICE, cluster="mine", name="own").code == 0
    assert world.register(ALICE, cluster="mine", name="own", topic="more").code == 0
    world.allow("Cluster:C", "Get")
    assert world.ask(ALICE, RequestCode.GET_BROKER_MEMBER_GROUP, b"", **other).code == 0


# ── Users and policies ──────────────────────────────────────────────────────────────────────────────────────────────


def test_refusals_have_the_texts_of_apaches_broker(world: World) -> None:
    def remark(by: Credentials) -> str | None:
        answer = world.route(by)
        assert answer.code == 16
        return answer.remark

    assert remark(Credentials("bob", "x")) == "User:bob is not found."
    assert remark(Credentials("alice", "wrong")) == "check signature failed."
    denied = "User:alice has no permission to access Topic:orders from 127.0.0.1, "
    assert remark(ALICE) == denied + "no matched policies."
    world.allow("Topic:orders", "All", decision="Deny")
    assert remark(ALICE) == denied + "the decision is deny."
    world.ask(ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice")
    assert remark(ALICE) == "User:alice is disabled."


def test_a_route_needs_a_right_on_its_topic(world: World) -> None:
    world.allow("Topic:ord*", "Sub")
    assert b"10911" in world.route(ALICE).body
    assert world.route(ALICE, "bills").code == ResponseCode.NO_PERMISSION
    assert world.route(ALICE, "order-2").code == ResponseCode.TOPIC_NOT_EXIST
    assert world.route(ALICE, "%RETRY%readers").code == ResponseCode.NO_PERMISSION
    world.allow("Group:readers", "Sub")
    assert world.route(ALICE, "%RETRY%readers").code == ResponseCode.TOPIC_NOT_EXIST


def test_addresses_restrict(world: World) -> None:
    world.allow("Topic:orders", "Pub", ips=["10.0.0.0/8"])
    assert world.route(ALICE).code == ResponseCode.NO_PERMISSION
    assert world.ask(ALICE, RequestCode.GET_ROUTEINFO_BY_TOPIC, peer="10.1.2.3:9", topic="orders").code == 0


def test_what_is_about_all_clusters_needs_the_right_on_each(world: World) -> None:
    world.allow("Cluster:C", "Get", "Update")
    assert world.ask(ALICE, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
    world.register(BROKER, cluster="D", name="d")
    assert world.ask(ALICE, RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.NO_PERMISSION
    assert world.register(ALICE, cluster="C").code == 0
    assert world.register(ALICE, cluster="D").code == ResponseCode.NO_PERMISSION
    world.allow("Cluster:*", "Get")
    assert world.ask(ALICE, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0


def test_without_clusters_it_needs_a_super_user_and_with_many_an_entry_for_all() -> None:
    world = World()
    world.create(ALICE)
    world.allow("Cluster:*", "Get")
    assert world.ask(ALICE, RequestCode.GET_BROKER_CLUSTER_INFO).code == ResponseCode.NO_PERMISSION
    assert world.ask(ROOT, RequestCode.GET_BROKER_CLUSTER_INFO).code == 0
    for number in range(CLUSTERS_MAX + 1):
        world.machine.tables.clusters[f"c{number}"] = set()
    assert world.machine.access.allows(Asked("c", signed(ALICE, RequestCode.GET_BROKER_CLUSTER_INFO), "127.0.0.1:5"))


def signed(by: Credentials, code: int) -> Command:
    command = Command(code)
    by.sign(command)
    return command


def test_a_topic_is_removed_in_a_cluster_of_ones_own_only(world: World) -> None:
    world.allow("Cluster:C", "Update")
    code = RequestCode.DELETE_TOPIC_IN_NAMESRV
    assert world.ask(ALICE, code, topic="orders").code == ResponseCode.NO_PERMISSION
    assert world.ask(ALICE, code, topic="orders", clusterName="C").code == 0


def test_passwords_are_for_super_users(world: World) -> None:
    world.allow("Cluster:*", "Get")
    assert b"secret-of-alice" in world.ask(ROOT, RequestCode.AUTH_GET_USER, username="alice").body
    for answer in (world.ask(ALICE, RequestCode.AUTH_LIST_USER), world.ask(ALICE, RequestCode.GET_NAMESRV_CONFIG)):
        assert answer.code == 0
        assert b"secret" not in answer.body


def test_a_certificate_names_the_user(world: World) -> None:
    def listed(user: str | None) -> Command:
        (answer,) = world.step(Asked("c", Command(RequestCode.AUTH_LIST_USER), "127.0.0.1:5", user))
        return answer

    assert (listed("bob").code, listed("bob").remark) == (16, "User:bob is not found.")
    assert listed("alice").code == 16
    world.allow("Cluster:*", "Get")
    assert b"alice" in listed("alice").body
    assert b"secret" not in listed("alice").body
    assert b"secret-of-alice" in listed("root").body


def test_a_change_that_can_not_be_written_is_taken_back(world: World) -> None:
    before, epoch = world.state(), world.machine.access.epoch
    world.failure = "the disk is full"
    answer = world.create(Credentials("bob", "secret-of-bob"))
    assert (answer.code, answer.remark) == (1, "not changed: the disk is full")
    assert world.state() == before
    assert world.machine.access.epoch > epoch
    world.failure = None
    assert world.create(Credentials("bob", "secret-of-bob")).code == 0


def test_users_survive_a_restart_and_are_sealed_with_a_key(world: World) -> None:
    content = world.files[Kept.USERS]
    assert isinstance(content, bytes) and b"secret-of-alice" in content
    saved = Saved.decode(content, trusted=True)
    again = World(AccessSettings(authenticates=True, authorizes=True, saved=saved, key=bytes(32)))
    assert again.route(ALICE).remark == world.route(ALICE, "bills").remark.replace("bills", "orders")  # type: ignore[union-attr]
    assert again.create(Credentials("bob", "secret-of-bob")).code == 0
    sealed = again.files[Kept.USERS]
    assert isinstance(sealed, bytes) and b"alice" not in sealed


def test_users_are_limited(world: World) -> None:
    directory = world.machine.access.directory
    assert directory is not None
    for number in range(USERS_MAX - len(directory.users())):
        directory.create_user(bodies.UserInfo(username=f"u{number}", password="x"))
    answer = world.create(Credentials("bob", "x"))
    assert answer.code == 16
    assert str(USERS_MAX) in (answer.remark or "")


def test_a_body_that_is_too_large_or_no_json_is_refused(world: World) -> None:
    for body in (b"{" * 70_000, b"{", b"\xff", b'{"password":' + b"[" * 60_000):
        assert world.ask(ROOT, RequestCode.AUTH_CREATE_USER, body, username="bob").code != 0


def test_what_brokers_are_told_is_signed() -> None:
    world = World(settings=Settings(notify_min_broker_id_changed=True, support_acting_master=True))
    world.register(BROKER)
    header: dict[str, Any] = {"brokerName": "b", "clusterName": "C", "haServerAddr": "h:1"}
    header["enableActingMaster"] = "true"
    world.ask(BROKER, RequestCode.REGISTER_BROKER, brokerId="1", brokerAddr="127.0.0.1:20911", **header)
    gone: dict[str, Any] = {"brokerName": "b", "clusterName": "C", "brokerId": "0", "brokerAddr": FIELDS["brokerAddr"]}
    assert world.ask(BROKER, RequestCode.UNREGISTER_BROKER, **gone).code == 0
    assert [BROKER.have_signed(command) for command in world.told] == [True]


# ── plain_acl.yml ───────────────────────────────────────────────────────────────────────────────────────────────────


def accounts(text: str) -> AccessSettings:
    return AccessSettings(accounts=parse([("plain_acl.yml", text)]))


PLAIN = """
accounts:
  - {accessKey: rootroot, secretKey: secret-of-root, admin: true}
  - {accessKey: alicealice, secretKey: secret-of-alice, topicPerms: ["orders=SUB"]}
"""
PLAIN_ROOT, PLAIN_ALICE = Credentials("rootroot", "secret-of-root"), Credentials("alicealice", "secret-of-alice")


def test_accounts_of_plain_acl() -> None:
    world = World(accounts(PLAIN))
    assert world.register(PLAIN_ALICE).code == 1
    assert world.register(PLAIN_ROOT).code == 0
    assert world.route(PLAIN_ALICE).code == 0
    refusals = [world.route(PLAIN_ALICE, "bills"), world.route(None), world.route(Credentials("bob", "x"))]
    assert [(answer.code, (answer.remark or "").partition("AclException: ")[2]) for answer in refusals] == [
        (1, "No default permission for topic:bills"),
        (1, "No accessKey is configured"),
        (1, "No acl config for bob"),
    ]
    world.step(AccountsRead(parse([("plain_acl.yml", PLAIN.replace("orders", "bills"))])))
    assert world.route(PLAIN_ALICE).code == 1


# ── Without it ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def open_world() -> World:
    world = World(AccessSettings())
    world.register(None)
    return world


def test_without_it_every_client_is_served(open_world: World) -> None:
    assert open_world.route(None).code == 0
    assert open_world.route(Credentials("anybody", "x")).code == 0
    answer = open_world.ask(None, RequestCode.AUTH_LIST_USER)
    assert "authenticationEnabled" in (answer.remark or "")
