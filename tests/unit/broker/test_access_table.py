"""The whole table of requests against a broker with access control: too few rights, enough of them, and what leaks."""

import msgspec
import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st
from tests.unit.broker.test_access_control import ALICE, ROOT, allow, ask, create_user, guarded, pull, send

from kourou.access.plain_acl import parse
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS, Direction, Right
from kourou.protocol.hosts import encode_host
from kourou.protocol.ids import encode_offset_id
from kourou.protocol.message import PhysicalOffset
from kourou.protocol.signing import Credentials
from kourou.testing.broker import BEGIN_MS, SimulatedBroker, SimulatedClient

TO_BROKERS = sorted(
    int(info.code)
    for info in REQUESTS.values()
    if info.direction
    in (Direction.CLIENT_TO_BROKER, Direction.ADMIN_TO_BROKER, Direction.ADMIN_TO_CLIENT, Direction.BROKER_TO_BROKER)
)
NAMES_NOTHING = {RequestCode.END_TRANSACTION, RequestCode.UNREGISTER_CLIENT, RequestCode.HEART_BEAT}
BY_PLACE = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.END_TRANSACTION}
HIDDEN, ABSENT = "hidden-name", "absent-name"


def request_to(code: int, name: str, by: Credentials | None) -> Command:
    """A request with a value in each of its fields; names are all the same."""
    ext: dict[str, str] = {}
    header = REQUESTS[code].header
    for info in msgspec.structs.fields(header) if header is not None else ():
        text = str(info.type)
        ext[info.encode_name] = "0" if "int" in text else "true" if "bool" in text else name
    command = Command(code, 7, ext=ext, body=b"{}")
    if by is not None:
        by.sign(command)
    return command


def answers_to(client: SimulatedClient, command: Command) -> list[Command]:
    """Its answer; a long poll, or what a client is asked, has none yet."""
    (number,) = client.send(command)
    answer = client.answers.pop(number, None)
    return [] if answer is None else [msgspec.structs.replace(answer, opaque=0)]


@pytest.fixture
def world() -> SimulatedBroker:
    return filled(SimulatedBroker(settings=guarded()))


def filled(world: SimulatedBroker) -> SimulatedBroker:
    """With a user without rights, and with data that this user must not learn of."""
    client = world.connect()
    create_user(client, ALICE)
    assert send(client, ROOT, HIDDEN).code == 0
    pull(client, ROOT, HIDDEN, HIDDEN)
    offset: dict[str, object] = {"consumerGroup": HIDDEN, "topic": HIDDEN, "queueId": 0, "commitOffset": 1}
    assert ask(client, ROOT, RequestCode.UPDATE_CONSUMER_OFFSET, b"", **offset).code == 0
    half_message(client, HIDDEN, group="foreign")
    return world


def state(world: SimulatedBroker) -> object:
    """All but the clients that are connected: producers have no rights, and are entered with their heartbeat."""
    machine = world.machine
    directory = machine.access_control.directory
    return (
        dict(machine.topics.table),
        dict(machine.groups.table),
        dict(machine.offsets.table),
        world.store.log.end,
        msgspec.json.encode(directory.save()) if directory is not None else None,
        machine.settings.permission,
    )


def test_every_request_with_the_right_that_its_entry_names_is_served(world: SimulatedBroker) -> None:
    client = world.connect()
    for code in TO_BROKERS:
        access = REQUESTS[code].access
        assert access is not None
        wanted: dict[str, set[str]] = {}
        for part in access.parts:
            for kind in {target.resource.value for target in part.targets} or {"topic", "group"}:
                wanted.setdefault(kind, set()).update((right.name or "").capitalize() for right in part.rights)
        for kind, rights in wanted.items():
            allow(client, ALICE, f"{kind.capitalize()}:*", *rights)
        if Right.PUB in access.rights:
            allow(client, ALICE, "Group:*", "Sub")
        for answer in answers_to(client, request_to(code, "foreign", ALICE)):
            assert HIDDEN not in f"{answer.remark}{answer.ext}" or code not in BY_PLACE
            refused = (answer.remark or "").startswith("User:alice has no permission")
            assert not refused or "super user" in (answer.remark or ""), (RequestCode(code).name, answer.remark)
        ask(client, ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice")
        create_user(client, ALICE)


def test_refusals_do_not_tell_what_exists(world: SimulatedBroker) -> None:
    """The same answer about a name that is there, and about one that is not."""
    client = world.connect()
    before = state(world)
    for by in (None, ALICE):
        for code in REQUESTS:
            answers = [answers_to(client, request_to(code, name, by)) for name in (HIDDEN, ABSENT)]
            shown = [[(one.code, (one.remark or "").replace(name, ""), one.ext, one.body) for one in found]
                     for name, found in zip((HIDDEN, ABSENT), answers, strict=True)]  # fmt: skip
            assert shown[0] == shown[1], code
    assert state(world) == before


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(map(int, REQUESTS))),
            st.sampled_from([None, ALICE, Credentials("root", "guess"), Credentials("bob", "x")]),
            st.sampled_from([HIDDEN, "foreign", "TBW102", "%RETRY%" + HIDDEN, "", "*"]),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_no_sequence_of_requests_without_rights_changes_anything(
    asked: list[tuple[int, Credentials | None, str, bool]],
) -> None:
    world = filled(SimulatedBroker(settings=guarded()))
    client, before = world.connect(), state(world)
    for code, by, name, one_way in asked:
        command = request_to(code, name, by)
        if one_way:
            command.flag |= int(CommandFlag.ONE_WAY)
        for answer in answers_to(client, command):
            assert answer.code != ResponseCode.SUCCESS or code in NAMES_NOTHING, RequestCode(code).name
            text = f"{answer.remark}{answer.ext}{answer.body!r}"
            assert HIDDEN not in text.replace(name, "") or HIDDEN in name
            assert "secret" not in text
    assert state(world) == before
    beat = bodies.HeartbeatData(client_id="c", producer_data_set=[bodies.ProducerData(group_name="foreign")])
    ask(client, ALICE, RequestCode.HEART_BEAT, beat.encode())
    world.pass_time(world.settings.transaction_check_interval_ms)
    told = [*client.told, *(asked.command for asked in client.asked)]
    assert not [command for command in told if HIDDEN in f"{command.ext}{command.body!r}"]


# ── Requests that are handed on to consumers ────────────────────────────────────────────────────────────────────────


def join(client: SimulatedClient, by: Credentials, group: str, client_id: str) -> None:
    beat = bodies.HeartbeatData(client_id=client_id, consumer_data_set=[bodies.ConsumerData(group_name=group)])
    assert ask(client, by, RequestCode.HEART_BEAT, beat.encode()).code == 0


def test_a_consumer_is_handed_no_message_of_another_topic(world: SimulatedBroker) -> None:
    """The request names a group and a topic of the user, and the place of another topic's record."""
    client = world.connect()
    for resource in ("Topic:mine", "Group:mine"):
        allow(client, ALICE, resource, "All")
    join(client, ALICE, "mine", "c1")
    fields: dict[str, object] = {"consumerGroup": "mine", "clientId": "c1", "topic": "mine"}
    asked = RequestCode.CONSUME_MESSAGE_DIRECTLY
    hidden = encode_offset_id(encode_host("127.0.0.1:10911"), PhysicalOffset(0))
    answer = ask(client, ALICE, asked, b"", msgId=hidden, **fields)
    assert answer.code == 16 and HIDDEN not in (answer.remark or "")
    assert not client.asked
    sent = send(client, ROOT, "mine").ext or {}
    command = Command(asked, ext={**{key: str(value) for key, value in fields.items()}, "msgId": sent["msgId"]})
    ALICE.sign(command)
    client.send(command)
    assert len(client.asked) == 1


def test_consumers_do_not_see_the_signatures_of_administrators(world: SimulatedBroker) -> None:
    """A signature covers the fields, and not the code: with it a consumer could list all passwords."""
    client, admin = world.connect(), world.connect()
    allow(client, ALICE, "Group:mine", "Sub")
    allow(client, ALICE, "Topic:mine", "All")
    join(client, ALICE, "mine", "c1")
    sent = send(admin, ROOT, "mine").ext or {}
    fields = {"consumerGroup": "mine", "clientId": "c1"}
    for code, more in (
        (RequestCode.GET_CONSUMER_RUNNING_INFO, {"jstackEnable": "false"}),
        (RequestCode.CONSUME_MESSAGE_DIRECTLY, {"msgId": sent["msgId"]}),
    ):
        command = Command(code, ext={**fields, **more})
        Credentials(ROOT.access_key, ROOT.secret_key, "token").sign(command)
        admin.send(command)
        question = client.asked.pop().command
        assert set(fields) <= set(question.ext or {})
        assert not {"AccessKey", "Signature", "SecurityToken"} & set(question.ext or {})
        replayed = Command(RequestCode.AUTH_LIST_USER, ext=question.ext)
        assert b"secret" not in client.ask(replayed).body


# ── Requests that name one thing and touch another ──────────────────────────────────────────────────────────────────


def half_fields(topic: str, group: str = "p") -> dict[str, object]:
    properties = f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02UNIQ_KEY\x017F00000100002A139A5500000000001A\x02"
    return {"a": group, "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 4, "g": BEGIN_MS, "h": 0, "i": properties}


def half_message(client: SimulatedClient, topic: str, group: str = "p") -> str:
    """Sends a half message as the super user: its id."""
    answer = ask(client, ROOT, RequestCode.SEND_MESSAGE_V2, b"half", **half_fields(topic, group))
    assert answer.code == 0
    return (answer.ext or {})["msgId"]


def test_a_transaction_of_another_topic_is_not_checked_again(world: SimulatedBroker) -> None:
    client = world.connect()
    allow(client, ALICE, "Topic:mine", "All")
    resume = RequestCode.RESUME_CHECK_HALF_MESSAGE
    hidden, before = half_message(client, HIDDEN), world.store.log.end
    answer = ask(client, ALICE, resume, msgId=hidden, topic="mine")
    assert answer.code == 16 and HIDDEN not in (answer.remark or "")
    assert world.store.log.end == before
    assert ask(client, ALICE, resume, msgId=half_message(client, "mine"), topic="mine").code == 0


def test_offsets_of_another_group_are_not_copied(world: SimulatedBroker) -> None:
    """What a group of the user has then says which topics the other group consumes, and how far it is."""
    client = world.connect()
    allow(client, ALICE, "Group:mine", "All")
    clone = RequestCode.CLONE_GROUP_OFFSET
    fields: dict[str, object] = {"destGroup": "mine", "offline": "true"}
    answers = [ask(client, ALICE, clone, b"", srcGroup=name, **fields) for name in (HIDDEN, ABSENT)]
    assert [answer.code for answer in answers] == [16, 16]
    assert HIDDEN.encode() not in ask(client, ALICE, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="mine").body
    allow(client, ALICE, f"Group:{HIDDEN}", "Get")
    assert ask(client, ALICE, clone, b"", srcGroup=HIDDEN, **fields).code == 0
    assert HIDDEN.encode() in ask(client, ALICE, RequestCode.QUERY_TOPICS_BY_CONSUMER, group="mine").body


# ── Checks of transactions: any client may join a producer group ────────────────────────────────────────────────────


def produce(client: SimulatedClient, by: Credentials | None, group: str, client_id: str) -> None:
    beat = bodies.HeartbeatData(client_id=client_id, producer_data_set=[bodies.ProducerData(group_name=group)])
    assert ask(client, by, RequestCode.HEART_BEAT, beat.encode()).code == 0


def questions(world: SimulatedBroker, *clients: SimulatedClient) -> list[bool]:
    """Which of these clients are asked about transactions in the next rounds."""
    for client in clients:
        client.told.clear()
    for _ in range(3):
        world.pass_time(world.settings.transaction_check_interval_ms)
    code = RequestCode.CHECK_TRANSACTION_STATE
    return [sum(command.code == code for command in client.told) > 0 for client in clients]


def test_only_producers_that_may_send_to_a_topic_are_asked_about_its_transactions(world: SimulatedBroker) -> None:
    """A question has the message in it."""
    owner, client = world.connect(), world.connect()
    half_message(owner, HIDDEN)
    produce(client, ALICE, "p", "c1")
    assert questions(world, client) == [False]

    def asked() -> list[bool]:
        produce(client, ALICE, "p", "c1")
        produce(owner, ROOT, "p", "c2")
        return questions(world, client, owner)

    assert asked() == [False, True]
    allow(owner, ALICE, f"Topic:{HIDDEN}", "Pub")
    assert asked() == [True, True]
    produce(client, ALICE, "p", "c1")
    ask(owner, ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice")
    assert questions(world, client) == [False]


@pytest.mark.parametrize(("unsigned", "asked"), [((34,), False), ((34, 310), True)])
def test_unsigned_producers_are_asked_about_topics_that_they_may_send_to(
    unsigned: tuple[int, ...], asked: bool
) -> None:
    codes = frozenset(unsigned)
    world = filled(SimulatedBroker(settings=guarded(unsigned_codes=codes, unruled_codes=codes)))
    client = world.connect()
    half_message(client, HIDDEN)
    produce(client, None, "p", "c1")
    assert questions(world, client) == [asked]


PLAIN = """
globalWhiteRemoteAddresses: [%s]
accounts:
- {accessKey: of-mine, secretKey: 12345678, topicPerms: [mine=PUB]}
- {accessKey: of-hidden, secretKey: 12345678, topicPerms: [hidden-name=PUB]}
- {accessKey: of-address, secretKey: 12345678, whiteRemoteAddress: 127.0.0.1}
"""


@pytest.mark.parametrize(
    ("trusted", "key", "asked"),
    [
        ("", "of-mine", False),
        ("", "of-hidden", True),
        ("", "of-address", True),
        ("127.0.0.1", "of-mine", True),
    ],
)
def test_accounts_of_plain_acl_are_asked_about_topics_that_they_may_send_to(
    trusted: str, key: str, asked: bool
) -> None:
    acl = parse([("plain_acl.yml", PLAIN % trusted)])
    world = SimulatedBroker(settings=BrokerSettings(plain_acl=acl))
    client = world.connect()
    fields = half_fields(HIDDEN)
    assert ask(client, Credentials("of-hidden", "12345678"), RequestCode.SEND_MESSAGE_V2, b"half", **fields).code == 0
    produce(client, Credentials(key, "12345678"), "p", "c1")
    assert questions(world, client) == [asked]
    produce(client, Credentials("of-mine", "12345678"), "p", "c1")
    world.machine.access_control.use_accounts(parse([("plain_acl.yml", "accounts:")]))
    assert questions(world, client) == [False], "there is no such account any more"


def test_replies_do_not_reach_a_user_with_the_id_of_another_client(world: SimulatedBroker) -> None:
    owner, thief, admin = world.connect(), world.connect(), world.connect()
    produce(owner, ROOT, "requesters", "client-id")
    produce(thief, ALICE, "thieves", "client-id")
    fields = half_fields("replies") | {"f": 0, "i": "REPLY_TO_CLIENT\x01client-id\x02UNIQ_KEY\x01k\x02"}
    command = Command(RequestCode.SEND_REPLY_MESSAGE_V2, ext={name: str(value) for name, value in fields.items()})
    ROOT.sign(command)
    admin.send(command)
    assert (len(owner.asked), len(thief.asked)) == (1, 0)
    second = world.connect()
    produce(second, ROOT, "requesters", "client-id")  # the same user on a new connection
    admin.send(command)
    assert (len(owner.asked), len(second.asked), len(thief.asked)) == (1, 1, 0)


def test_a_key_of_the_same_hash_finds_no_message_of_another_topic(world: SimulatedBroker) -> None:
    """The index has hashes of 31 bits, and a key can be made for each of them."""
    client = world.connect()
    allow(client, ALICE, "Topic:mine", "Get")
    fields = half_fields(HIDDEN) | {"f": 0, "i": "KEYS\x01order-7\x02UNIQ_KEY\x01u\x02"}
    assert ask(client, ROOT, RequestCode.SEND_MESSAGE_V2, b"hidden", **fields).code == 0
    key = key_with_hash("mine#", java_hash(f"{HIDDEN}#order-7"))
    assert java_hash(f"mine#{key}") == java_hash(f"{HIDDEN}#order-7")
    query: dict[str, object] = {"maxNum": 32, "beginTimestamp": 0, "endTimestamp": 2**62}
    found = ask(client, ROOT, RequestCode.QUERY_MESSAGE, b"", topic=HIDDEN, key="order-7", **query)
    assert b"hidden" in found.body
    for by in (ALICE, ROOT):
        answer = ask(client, by, RequestCode.QUERY_MESSAGE, b"", topic="mine", key=key, **query)
        assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")


def java_hash(text: str) -> int:
    found = 0
    for char in text:
        found = (31 * found + ord(char)) % 2**32
    return found


def key_with_hash(prefix: str, wanted: int) -> str:
    """Letters that follow the prefix, so that the hash of both is this one: digits of base 31, from `@` on."""
    size = 7
    rest = (wanted - java_hash(prefix + "@" * size)) % 2**32
    letters = []
    for _ in range(size):
        rest, digit = divmod(rest, 31)
        letters.append(chr(ord("@") + digit))
    return "".join(reversed(letters))


# ── Pulls that wait ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("how", "remark"),
    [
        ("policy", "User:alice has no permission to access Topic:mine from 127.0.0.1, no matched policies."),
        ("disabled", "User:alice is disabled."),
        ("deleted", "User:alice is not found."),
        ("other", "FOUND"),
    ],
)
def test_a_pull_that_waits_is_judged_again_when_rules_have_changed(
    world: SimulatedBroker, how: str, remark: str
) -> None:
    """Its time is the client's choice: it must not get messages for an hour after its user was deleted."""
    client, admin = world.connect(), world.connect()
    allow(admin, ALICE, "Topic:mine", "Sub")
    allow(admin, ALICE, "Group:mine", "Sub")
    assert send(admin, ROOT, "mine").code == 0
    fields: dict[str, object] = {"consumerGroup": "mine", "topic": "mine", "queueId": 0, "queueOffset": 1}
    fields |= {"maxMsgNums": 32, "sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 3_600_000}
    fields |= {"subscription": "*", "subVersion": 0}
    command = Command(RequestCode.PULL_MESSAGE, ext={name: str(value) for name, value in fields.items()})
    ALICE.sign(command)
    (number,) = client.send(command)
    if how == "policy":
        ask(admin, ROOT, RequestCode.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:mine")
    elif how == "disabled":
        ask(admin, ROOT, RequestCode.AUTH_UPDATE_USER, b'{"userStatus":"disable"}', username="alice")
    elif how == "deleted":
        ask(admin, ROOT, RequestCode.AUTH_DELETE_USER, username="alice")
    else:
        create_user(admin, Credentials("bob", "secret-of-bob"))
    assert number not in client.answers
    assert send(admin, ROOT, "mine").code == 0
    answer = client.answers[number]
    assert (answer.code, answer.remark) == (0 if how == "other" else 16, remark)
    assert bool(answer.body) == (how == "other")
