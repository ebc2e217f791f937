"""Users, policies and refusals: our broker and Apache's answer alike to the same signed requests."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.waiting import wait_for

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command
from kourou.protocol.signing import Credentials

from .clients import Client, Kind
from .servers import ApacheStage, KourouRun
from .wire import Answer, Connection
from .worlds import needed

pytestmark = pytest.mark.interop

AUTH = "org.apache.rocketmq.auth"
SETTINGS = (
    "authenticationEnabled=true",
    "authorizationEnabled=true",
    f"authenticationProvider={AUTH}.authentication.provider.DefaultAuthenticationProvider",
    f"authenticationMetadataProvider={AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    f"authorizationProvider={AUTH}.authorization.provider.DefaultAuthorizationProvider",
    f"authorizationMetadataProvider={AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    'initAuthenticationUser={"username":"root","password":"secret-of-root"}',
    'innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret-of-inner"}',
)
ROOT, ALICE = Credentials("root", "secret-of-root"), Credentials("alice", "secret-of-alice")
Stage = KourouRun | ApacheStage


@pytest.fixture(scope="module")
def apaches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with needed():
        stage = ApacheStage(tmp_path_factory.mktemp("apache"), *SETTINGS)
    yield stage
    stage.kill_all()


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    stage = KourouRun(tmp_path_factory.mktemp("kourou"), *SETTINGS)
    yield stage
    stage.kill()


@pytest.fixture(scope="module")
def stages(apaches: Stage, ours: Stage) -> tuple[Stage, Stage]:
    return apaches, ours


class User:
    """Sends signed requests to a broker."""

    def __init__(self, stage: Stage) -> None:
        self._connection = Connection(stage.address)

    def ask(self, by: Credentials | None, code: int, body: bytes = b"", **ext: object) -> Answer:
        command = Command(code, version=513, ext={name: str(value) for name, value in ext.items()}, body=body)
        if by is not None:
            by.sign(command)
        return self._connection.ask(code, command.ext, body, version=command.version)

    def send(self, by: Credentials | None, topic: str) -> Answer:
        fields = {"a": "p", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 0, "h": 0, "i": "", "j": 0}
        return self.ask(by, RequestCode.SEND_MESSAGE_V2, b"body", **fields, k="false", m="false")

    def pull(self, by: Credentials, topic: str, group: str) -> Answer:
        fields = {"consumerGroup": group, "topic": topic, "queueId": 0, "queueOffset": 0, "maxMsgNums": 32}
        fields |= {"sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
        return self.ask(by, RequestCode.PULL_MESSAGE, b"", **fields)

    def create(self, name: str, password: str = "secret-of-alice", kind: str = "Normal") -> Answer:
        body = json.dumps({"username": name, "password": password, "userType": kind}).encode()
        return self.ask(ROOT, RequestCode.AUTH_CREATE_USER, body, username=name)

    def allow(self, name: str, resource: str, *actions: str, decision: str = "Allow", ips: object = None) -> Answer:
        entry = {"resource": resource, "actions": actions, "decision": decision, "sourceIps": ips}
        body = json.dumps({"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": [entry]}]})
        return self.ask(ROOT, RequestCode.AUTH_CREATE_ACL, body.encode(), subject=f"User:{name}")

    def close(self) -> None:
        self._connection.close()


def signatures(user: User) -> list[Answer]:
    user.create("alice")
    answers = [
        user.ask(None, RequestCode.GET_BROKER_RUNTIME_INFO),
        user.ask(None, 99_999),
        user.ask(Credentials("bob", "x"), RequestCode.GET_BROKER_RUNTIME_INFO),
        user.ask(Credentials("root", "x"), RequestCode.GET_BROKER_RUNTIME_INFO),
        user.send(Credentials("alice", "x"), "t"),
        user.ask(ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice"),
        user.send(ALICE, "t"),
    ]
    user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice")
    return answers


def policies(user: User) -> list[Answer]:
    return [
        user.create("alice"),
        user.send(ALICE, "orders"),
        user.allow("alice", "Topic:ord*", "Pub"),
        user.send(ALICE, "orders"),
        user.send(ALICE, "other"),
        user.pull(ALICE, "orders", "g"),
        user.allow("alice", "Topic:orders", "Sub"),
        user.pull(ALICE, "orders", "g"),
        user.allow("alice", "Group:g", "Sub", ips=["10.0.0.0/8"]),
        user.pull(ALICE, "orders", "g"),
        user.allow("alice", "Topic:orders", "All", decision="Deny"),
        user.send(ALICE, "orders"),
        user.send(ALICE, "ordinary"),
        user.ask(ALICE, RequestCode.UPDATE_AND_CREATE_TOPIC, topic="new", defaultTopic="TBW102", readQueueNums=1,
                 writeQueueNums=1, perm=6, topicFilterType="SINGLE_TAG", topicSysFlag=0, order="false"),
        user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice"),
    ]  # fmt: skip


def administration(user: User) -> list[Answer]:
    return [
        user.create(""),
        user.create("alice", ""),
        user.create("alice"),
        user.create("alice"),
        user.ask(ROOT, RequestCode.AUTH_UPDATE_USER, b"{}", username="nobody"),
        user.ask(ROOT, RequestCode.AUTH_GET_USER, username="nobody"),
        user.allow("nobody", "Topic:t", "Pub"),
        user.allow("alice", "Queue:t", "Pub"),
        user.allow("alice", "Topic:t", "Any"),
        user.allow("alice", "Topic:t", "Pub", decision="Perhaps"),
        user.allow("alice", "Topic:t", "Pub", ips=["1.2.3"]),
        user.ask(ROOT, RequestCode.AUTH_GET_ACL, subject="User:alice"),
        user.ask(ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice"),
        user.ask(ROOT, RequestCode.AUTH_GET_ACL, subject="User:nobody"),
        user.allow("alice", "Topic:t", "Pub", "sub"),
        user.ask(ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:t"),
        user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice"),
        user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice"),
    ]


@pytest.mark.parametrize("scenario", [signatures, policies, administration])
def test_the_same_answers(stages: tuple[Stage, Stage], scenario: Callable[[User], list[Answer]]) -> None:
    found = []
    for stage in stages:
        user = User(stage)
        found.append([(answer.code, answer.remark if answer.code else None) for answer in scenario(user)])
        user.close()
    apaches, ours = found
    assert ours == apaches


def test_what_is_displayed(stages: tuple[Stage, Stage]) -> None:
    found = []
    for stage in stages:
        user = User(stage)
        user.create("alice")
        user.allow("alice", "Topic:t*", "Pub", "Sub", ips=["10.0.0.0/8"])
        user.allow("alice", "*", "All", decision="Deny")
        found.append(
            [
                user.ask(ROOT, RequestCode.AUTH_GET_USER, username="alice").json(),
                user.ask(ROOT, RequestCode.AUTH_LIST_USER, filter="ali").json(),
                user.ask(ROOT, RequestCode.AUTH_GET_ACL, subject="User:alice").json(),
                user.ask(ROOT, RequestCode.AUTH_LIST_ACL, subjectFilter="ali", resourceFilter="Topic").json(),
            ]
        )
        user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice")
        user.close()
    apaches, ours = found
    assert ours == apaches


@pytest.fixture(scope="module")
def world(ours: Stage) -> Iterator[tuple[Stage, User]]:
    """A broker with a topic that alice may use, and one that she may not."""
    user = User(ours)
    for topic in ("clients", "secrets"):
        user.send(ROOT, topic)
    user.create("alice")
    user.allow("alice", "Topic:clients", "Pub", "Sub")
    user.allow("alice", "Group:readers", "Sub")
    yield ours, user
    user.ask(ROOT, RequestCode.AUTH_DELETE_USER, username="alice")
    user.close()


def route_is_there(stage: Stage) -> bool:
    connection = Connection(stage.name_server_address)
    try:
        for topic in ("clients", "secrets"):
            command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, version=513, ext={"topic": topic})
            ROOT.sign(command)
            if connection.ask(command.code, command.ext, b"", version=command.version).code != 0:
                return False
        return True
    finally:
        connection.close()


@pytest.mark.parametrize("kind", [Kind.JAVA, Kind.JAVA_49, Kind.GO], ids=lambda kind: kind.name)
def test_clients_with_credentials(world: tuple[Stage, User], kind: Kind, tmp_path: Path) -> None:
    """Allowed, denied, a wrong secret, and a policy and a status that change while the client is connected."""
    stage, user = world
    wait_for("the routes", lambda: route_is_there(stage) or None)
    with needed():
        mine = Client(kind, stage.name_server_address, tmp_path, "alice", "secret-of-alice")
        wrong = Client(kind, stage.name_server_address, tmp_path, "alice", "wrong") if kind is Kind.GO else mine

    def check(why: str, text: str) -> None:
        """Go's client does not say why."""
        assert text in why or kind is Kind.GO

    try:
        if kind is not Kind.GO:
            mine.sign_as("alice", "secret-of-alice")
        mine.send("clients", kind.name, 3)
        check(mine.refusal("secrets"), "No route info")  # Java's words for every refusal of a name server
        user.allow("alice", "Topic:clients", "Pub", decision="Deny")
        check(mine.refusal("clients"), "the decision is deny")
        user.allow("alice", "Topic:clients", "Pub", "Sub")
        mine.send("clients", f"{kind.name}-again", 1)
        user.ask(ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice")
        check(mine.refusal("clients"), "is disabled")
        user.ask(ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"enable"}', username="alice")
        if kind is not Kind.GO:
            wrong.sign_as("alice", "wrong")
        check(wrong.refusal("clients"), "check signature failed")
    finally:
        mine.stop()
        if wrong is not mine:
            wrong.stop()
