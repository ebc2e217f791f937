"""The same with access control, whose checks and tables take time as well.

Policies are looked up for each name in a request, and a change of users or policies writes all of them.
"""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from kourou.access.users import User, UserType
from kourou.broker.events import Requests
from kourou.broker.lane import IS_COMPILED
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies
from kourou.protocol.bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.message import MessageQueue
from kourou.protocol.signing import Credentials

from .longest_turns import LIMIT_MS, Sizes, Walked, slowness

ROOT = Credentials("root", "root-secret")
BOB = Credentials("bob", "bob-secret")
EVE = Credentials("eve", "eve-secret")
SETTINGS = BrokerSettings(
    authenticates=True,
    authorizes=True,
    first_user=User(name=ROOT.access_key, password=ROOT.secret_key, type=UserType.SUPER),
)
TRIES = 5
FACTOR = 1 if IS_COMPILED else 3


class Guarded(Walked):
    """A broker with as many users and policies as there may be."""

    def _fill(self) -> None:
        directory = self.machine.access_control.directory
        assert directory is not None
        for user in (BOB, EVE):
            directory.create_user(UserInfo(username=user.access_key, password=user.secret_key))
        for number in range(9_900):
            directory.create_user(UserInfo(username=f"user-{number}", password="secret"))
        for number in range(90):
            directory.put_acl(f"User:user-{number}", policies(f"Topic:of-{number}-", 1_000))
        prefixes = [f"Topic:prefix-{number}-*" for number in range(900)]
        allowed = [entry(resource, "All") for resource in (*prefixes, "Topic:*", "Group:*", "Cluster:*")]
        directory.put_acl("User:bob", AclInfo(policies=[PolicyInfo(entries=allowed)]))

    def ask_as(self, user: Credentials, command: Command) -> Command:
        """The answer; `longest_ns` is the longest turn."""
        command = msgspec.structs.replace(command, opaque=next(self._opaques), ext=dict(command.ext or {}))
        user.sign(command)
        self.answers, self.longest_ns = [], 0
        self.do(Requests(self.client, [command]))
        self.settle()
        (answer,) = self.answers
        return answer


def entry(resource: str, *actions: str, sources: tuple[str, ...] = ()) -> PolicyEntryInfo:
    return PolicyEntryInfo(resource=resource, actions=list(actions), source_ips=list(sources), decision="Allow")


def policies(prefix: str, count: int, *, sources: tuple[str, ...] = ()) -> AclInfo:
    entries = [entry(f"{prefix}{number}", "Pub", "Sub", "Get", sources=sources) for number in range(count)]
    return AclInfo(policies=[PolicyInfo(entries=entries)])


def acl_change(wanted: AclInfo) -> Command:
    return Command(RequestCode.AUTH_CREATE_ACL, ext={"subject": "User:user-9000"}, body=wanted.encode())


def heartbeat(count: int) -> Command:
    subscriptions = [bodies.SubscriptionData(topic=f"t{number}") for number in range(count)]
    data = bodies.ConsumerData(group_name="g", subscription_data_set=subscriptions)
    return Command(RequestCode.HEART_BEAT, body=bodies.HeartbeatData(client_id="h", consumer_data_set=[data]).encode())


def locks() -> Command:
    queues = [MessageQueue(f"t{number}", "broker-a", number) for number in range(9_000)]
    body = bodies.LockBatchRequestBody(consumer_group="g", client_id="h", mq_set=queues)
    return Command(RequestCode.LOCK_BATCH_MQ, body=body.encode())


def names(count: int, separator: str, name: str = "t") -> str:
    return separator.join(f"{name}{number}" for number in range(count))


def stats(topics: str) -> Command:
    return Command(RequestCode.GET_CONSUME_STATS, ext={"consumerGroup": "g", "topicList": topics})


def corrections(groups: str) -> Command:
    ext = {"compareGroup": "g", "topic": "t", "filterGroups": groups}
    return Command(RequestCode.QUERY_CORRECTION_OFFSET, ext=ext)


SUCCESS, DENIED, ERROR = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR
NEW_USER = b'{"username":"new","password":"secret"}'
WORST: dict[str, tuple[Credentials, int, Callable[[], Command]]] = {
    "subscriptions": (BOB, SUCCESS, lambda: heartbeat(9_900)),
    "subscriptions that are checked at once": (BOB, SUCCESS, lambda: heartbeat(100)),
    "subscriptions without rights": (EVE, DENIED, lambda: heartbeat(9_900)),
    "locks": (BOB, SUCCESS, locks),
    "topics in a header": (BOB, SUCCESS, lambda: stats(names(2_000, ";"))),
    "too many topics in a header": (BOB, ERROR, lambda: stats(names(50_000, ";"))),
    "too many topics without rights": (EVE, ERROR, lambda: stats(names(50_000, ";"))),
    "too many topics without names": (EVE, ERROR, lambda: stats(";" * 500_000)),
    "groups in a header": (BOB, SUCCESS, lambda: corrections(names(2_000, ","))),
    "too many groups in a header": (BOB, ERROR, lambda: corrections(names(50_000, ","))),
    "a changed user": (
        ROOT,
        SUCCESS,
        lambda: Command(RequestCode.AUTH_UPDATE_USER, ext={"username": "bob"}, body=b"{}"),
    ),
    "a user who exists": (
        ROOT,
        DENIED,
        lambda: Command(RequestCode.AUTH_CREATE_USER, ext={"username": "bob"}, body=NEW_USER),
    ),
    "all users": (ROOT, SUCCESS, lambda: Command(RequestCode.AUTH_LIST_USER)),
    "one entry": (ROOT, SUCCESS, lambda: acl_change(policies("Topic:x", 1))),
    "all entries of a user": (ROOT, SUCCESS, lambda: acl_change(policies("Topic:x", 1_000))),
    "entries with addresses": (
        ROOT,
        SUCCESS,
        lambda: acl_change(policies("Topic:x", 10, sources=tuple(f"10.0.0.{number}" for number in range(100)))),
    ),
    "too many addresses": (ROOT, DENIED, lambda: acl_change(policies("Topic:x", 100, sources=("10.0.0.1",) * 99))),
    "all policies": (ROOT, SUCCESS, lambda: Command(RequestCode.AUTH_LIST_ACL)),
    "policies of nobody": (ROOT, SUCCESS, lambda: Command(RequestCode.AUTH_LIST_ACL, ext={"resourceFilter": "zzz"})),
    "an entry that is removed": (
        ROOT,
        SUCCESS,
        lambda: Command(RequestCode.AUTH_DELETE_ACL, ext={"subject": "User:user-1", "resource": "Topic:of-1-7"}),
    ),
}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"), Sizes(), SETTINGS)
    made.ask_as(ROOT, Command(RequestCode.AUTH_UPDATE_USER, ext={"username": "bob"}, body=b"{}"))
    gc.freeze()
    gc.disable()  # of a test process, which has far more than a broker
    yield made
    gc.enable()
    gc.unfreeze()


@pytest.mark.parametrize("name", WORST)
def test_no_request_holds_the_event_loop(name: str, guarded: Guarded) -> None:
    user, code, make = WORST[name]
    command = make()
    for _ in range(TRIES):  # the shortest counts
        limit = LIMIT_MS * FACTOR * slowness()
        answer = guarded.ask_as(user, command)
        assert answer.code == code, answer
        if guarded.longest_ns / 1e6 < limit:
            return
    pytest.fail(f"{guarded.longest_ns / 1e6:.1f} ms, the limit is {limit:.1f} ms")


def test_the_first_write_of_all_users_is_in_slices(tmp_path: Path) -> None:
    """No text of an entry is kept from an earlier write."""
    for number in range(TRIES):
        limit = LIMIT_MS * FACTOR * slowness()
        (folder := tmp_path / str(number)).mkdir()
        made = Guarded(folder, Sizes(), SETTINGS)
        made.ask_as(ROOT, Command(RequestCode.AUTH_UPDATE_USER, ext={"username": "bob"}, body=b"{}"))
        if made.longest_ns / 1e6 < limit:
            return
    pytest.fail(f"{made.longest_ns / 1e6:.1f} ms, the limit is {limit:.1f} ms")
