"""Signatures in the lane: the same as signing.py's, and the same streams served as by the general path."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.property.lane_worlds import Twins
from tests.property.test_lane import (
    TAKEN,
    draw_end,
    draw_frame,
    go,
    half,
    heartbeat,
    java,
    mutated,
    pull_header,
    send_header,
)

from kourou.access.users import User, UserType
from kourou.broker import lane
from kourou.protocol import bodies, frame
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.errors import FrameError
from kourou.protocol.frame import Decoder
from kourou.protocol.signing import Credentials

if lane.IS_COMPILED:
    from kourou.broker import _lane_signing

pytestmark = pytest.mark.skipif(not lane.IS_COMPILED, reason="the lane is not compiled, or KOUROU_PURE=1")

ROOT, ALICE = Credentials("root", "secret-of-root"), Credentials("alice", "secret-of-alice")
SETTINGS: dict[str, Any] = {
    "authenticates": True,
    "authorizes": True,
    "first_user": User(name="root", password=ROOT.secret_key, type=UserType.SUPER),
}


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def sha(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both forms of SHA-1, where the processor has both."""
    if _lane_signing.use_fast_sha1(request.param) != request.param:
        pytest.skip("the processor has no instructions for SHA-1")
    yield
    _lane_signing.use_fast_sha1(True)


@pytest.mark.usefixtures("sha")
def test_the_same_signatures_as_pythons() -> None:
    rnd = Random(1)
    for size in (*range(200), 1_000, 4_096, 70_001):
        secret, text = rnd.randbytes(rnd.choice((1, 8, 63, 64, 65, 200))), rnd.randbytes(size)
        signer = _lane_signing.Signer(secret, set(), set())
        given = base64.b64encode(hmac.digest(secret, text, hashlib.sha1))
        assert signer.signs(text, given)
        at = rnd.randrange(27)
        assert not signer.signs(text, given[:at] + (b"A" if given[at : at + 1] != b"A" else b"B") + given[at + 1 :])
        assert not signer.signs(text + b"x", given)
        assert not signer.signs(text, given[:-1])


# ── Signed streams ──────────────────────────────────────────────────────────────────────────────────────────────────


def signed(data: bytes, by: Credentials | None = ROOT, rnd: Random | None = None) -> bytes:
    """The same frames, signed; with `rnd`, their fields in any order."""
    found = b""
    for command in Decoder().feed(data):
        if by is not None:
            by.sign(command)
        if rnd is not None and command.ext:
            names = list(command.ext)
            rnd.shuffle(names)
            command.ext = {name: command.ext[name] for name in names}
        found += (
            go(command.code, command.ext or {}, command.body, opaque=command.opaque)
            if (command.language == "GO")
            else frame.encode(command)
        )
    return found


def policy(resource: str, *actions: str, decision: str = "Allow") -> bytes:
    entry = bodies.PolicyEntryInfo(resource=resource, actions=list(actions), decision=decision)
    body = bodies.AclInfo(policies=[bodies.PolicyInfo(entries=[entry])]).encode()
    return signed(java(RequestCode.AUTH_CREATE_ACL, {"subject": "User:alice"}, body))


def update(**changes: str) -> bytes:
    return signed(java(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, bodies.UserInfo(**changes).encode()))


def guarded(twins: Twins) -> Twins:
    """Topics, queues, a group, and a user who may use them; the lane knows both users on the first connection."""
    create = bodies.UserInfo(password=ALICE.secret_key).encode()
    twins.read(signed(java(RequestCode.AUTH_CREATE_USER, {"username": "alice"}, create)))
    for resource in ("Topic:orders", "Group:readers"):
        twins.read(policy(resource, "Pub", "Sub"))
    for by in (ROOT, ALICE):
        for queue_id in range(4):
            twins.read(signed(java(310, send_header(queue_id=queue_id)), by))
        twins.read(signed(heartbeat(), by))
        twins.read(signed(java(11, pull_header()), by))
    for queue_id in range(4):
        twins.read(signed(java(310, send_header(queue_id=queue_id, topic="bills"))))
    twins.read(signed(half()))
    twins.compare()
    return twins


@pytest.fixture(scope="module")
def usual() -> Twins:
    return guarded(Twins(SETTINGS))


@pytest.mark.usefixtures("sha")
@pytest.mark.parametrize("by", [ROOT, ALICE], ids=["a super user", "a user with policies"])
@pytest.mark.parametrize("name", ["a send", "as Go writes it", "a body that zlib checks", "a pull", "several"])
def test_it_takes_what_is_signed(usual: Twins, name: str, by: Credentials) -> None:
    data = signed(TAKEN[name], by)
    assert usual.read(data) == len(data)
    usual.compare()


def forged(name: str) -> bytes:
    data = signed(java(310, send_header(), b"hello"), ALICE)
    match name:
        case "another body":
            return data.replace(b"hello", b"hullo")
        case "another queue":
            return data.replace(b'"e":"1"', b'"e":"2"')
        case "a wrong secret":
            return signed(java(310, send_header(), b"hello"), Credentials("alice", "wrong"))
        case "another user":
            return data.replace(b'"AccessKey":"alice"', b'"AccessKey":"root"')
        case "nobody":
            return data.replace(b'"AccessKey":"alice"', b'"AccessKey":"bob"')
        case "no access key":
            return data.replace(b'"AccessKey":"alice",', b"")
        case "no signature":
            return java(310, {**send_header(), "AccessKey": "alice"}, b"hello")
        case "not signed":
            return java(310, send_header(), b"hello")
        case "a topic of others":
            return signed(java(310, send_header(topic="bills"), b"hello"), ALICE)
        case _:
            return signed(java(11, pull_header(topic="bills")), ALICE)


@pytest.mark.parametrize(
    "name",
    [
        *("another body", "another queue", "a wrong secret", "another user", "nobody", "no access key"),
        *("no signature", "not signed", "a topic of others", "a pull of others"),
    ],
)
def test_it_leaves_what_is_refused(usual: Twins, name: str) -> None:
    data = forged(name)
    header = int.from_bytes(data[4:8])
    data = (len(data) - 4).to_bytes(4) + (header + len(data) - int.from_bytes(data[:4]) - 4).to_bytes(4) + data[8:]
    before = len(usual.fast.wires[0].sent)
    assert usual.read(data) == 0
    (answer,) = Decoder().feed(bytes(usual.fast.wires[0].sent[before:]))
    assert answer.code == ResponseCode.NO_PERMISSION
    usual.compare()


@pytest.mark.parametrize(
    "change",
    [
        update(password="another-secret"),
        update(user_status="disable"),
        policy("Topic:orders", "Pub", decision="Deny"),
        signed(java(RequestCode.AUTH_DELETE_USER, {"username": "alice"})),
        signed(java(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice"})),
    ],
    ids=["another password", "disabled", "denied", "deleted", "without policies"],
)
def test_a_change_counts_for_the_next_request(change: bytes) -> None:
    twins = guarded(Twins(SETTINGS))
    send = signed(java(310, send_header(), b"hello", opaque=4711), ALICE)
    assert twins.read(send) == len(send)
    assert twins.read(change + send) == 0
    answer = [one for one in Decoder().feed(bytes(twins.fast.wires[0].sent)) if one.opaque == 4711][-1]
    assert answer.code == ResponseCode.NO_PERMISSION
    twins.compare()


def test_what_one_connection_was_allowed_says_nothing_of_another() -> None:
    twins = guarded(Twins(SETTINGS))
    send = signed(java(310, send_header(), b"hello"), ALICE)
    assert twins.read(send, 1) == 0
    assert twins.read(send, 1) == len(send)
    twins.compare()


def test_codes_that_need_no_signature_are_learned_for_no_user() -> None:
    """SEND_MESSAGE_V2 may be free, and SEND_BATCH_MESSAGE not: they have one header."""
    free = frozenset((int(RequestCode.SEND_MESSAGE_V2),))
    twins = guarded(Twins({**SETTINGS, "unsigned_codes": free, "unruled_codes": free}))
    for code, expected in ((310, 0), (310, 0), (320, ResponseCode.NO_PERMISSION)):
        twins.read(java(code, send_header(batch=code == 320), b"x"))
        assert Decoder().feed(bytes(twins.fast.wires[0].sent))[-1].code == expected
    twins.compare()


def test_many_access_keys_on_one_connection_are_bounded() -> None:
    twins = guarded(Twins(SETTINGS))
    for number in range(40):
        info = bodies.UserInfo(password="secret", user_type="Super").encode()
        twins.read(signed(java(RequestCode.AUTH_CREATE_USER, {"username": f"u{number}"}, info)))
    for number in range(40):
        twins.read(signed(java(310, send_header()), Credentials(f"u{number}", "secret")))
    grants = twins.fast.wires[0].peer.grants
    assert len(grants.signed) == len(grants.signers) <= 16
    twins.compare()


def drive(twins: Twins, rnd: Random, reads: int) -> None:
    opaque = 100
    for _ in range(reads):
        number, data = rnd.randrange(3), b""
        for _ in range(rnd.choice((1, 1, 2, 3, 6))):
            opaque += 1
            one = draw_end(twins, rnd) if rnd.random() < 0.1 else draw_frame(rnd, opaque)
            if rnd.random() < 0.04:
                one = rnd.choice(
                    (
                        policy(rnd.choice(("Topic:orders", "Topic:*", "Group:readers")), "Pub", "Sub"),
                        policy("Topic:orders", "Pub", decision=rnd.choice(("Allow", "Deny"))),
                        update(user_status=rnd.choice(("disable", "enable", "enable"))),
                        update(password=rnd.choice(("another", ALICE.secret_key, ALICE.secret_key))),
                    )
                )
            elif rnd.random() < 0.95:
                by = rnd.choice((ROOT, ALICE, ALICE, ALICE, Credentials("alice", "another"), Credentials("bob", "x")))
                with suppress(FrameError, ValueError):
                    one = signed(one, by, rnd if rnd.random() < 0.5 else None) or one
            data += mutated(rnd, one) if rnd.random() < 0.03 else one
        while data:
            size = len(data) if rnd.random() < 0.7 else rnd.randint(1, len(data))
            twins.read(data[:size], number)
            data = data[size:]
        if rnd.random() < 0.2:
            twins.tick(rnd.choice((1, 100, 600)))
        if twins.general.wires[number].decoder.error is not None or rnd.random() < 0.02:
            twins.lose(number)
    twins.compare()


def test_signed_streams_have_the_same_effect() -> None:
    served = 0
    for seed in range(5):
        twins = guarded(Twins(SETTINGS))
        before = twins.fast.in_lane
        drive(twins, Random(seed), 120)
        served += twins.fast.in_lane - before
    assert served > 10_000, "bytes of signed requests in the lane"
