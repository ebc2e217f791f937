"""Invalid bytes, frames and requests: the broker answers with the reason, and serves other clients."""

import random
from contextlib import suppress

import msgspec
import pytest

from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.headers import REQUESTS

from .broker_target import BrokerTarget, Customer, pull_command, send_command
from .target import Peer
from .test_frames import SENSELESS

WORST_NUMBERS = ("-1", "-2147483648", "2147483647", "-9223372036854775808", "9223372036854775807")
ODD_WORDS = (
    "",
    " ",
    "\0",
    "../../../etc/passwd",
    "é" * 3000,
    "-0",
    "1e9",
    "NaN",
    "null",
    "%RETRY%",
    "%DLQ%",
    "a@b",
    "9" * 5000,
)

ODD_NAMES = {
    "a way up": "../up",
    "a long way up": "../../../../../../tmp/kourou-was-here",
    "an absolute path": "/tmp/kourou-was-here",
    "a way within": "a/b",
    "a dot": ".",
    "two dots": "..",
    "NUL": "nul\0nul",
    "NUL at the end": "nul\0",
    "a line break": "line\nbreak",
    "unicode": "тема-トピック-🚀",
    "a lone surrogate in JSON": "\\ud800",
    "blanks": "   ",
    "nothing": "",
    "too long": "x" * 128,
    "far too long": "x" * 100_000,
    "a retry topic that leads up": "%RETRY%../up",
    "an @, which parts names in files": "a@b",
}


@pytest.mark.parametrize("name", SENSELESS)
def test_senseless_bytes_end_their_connection(name: str, broker: BrokerTarget) -> None:
    with Peer(broker.port) as peer, suppress(ConnectionError):
        peer.send(SENSELESS[name])
        while peer.sock.recv(65536):  # TLS says why
            pass


def test_every_code_with_nothing_in_it(broker: BrokerTarget) -> None:
    """All are answered, or known to be served later; none ends the connection."""
    with Peer(broker.port) as peer:
        for opaque, code in enumerate([*REQUESTS, *range(-5, 1100), 32767, -32768, 2**31 - 1, -(2**31)], 1):
            answer = peer.ask(Command(code, opaque))
            assert answer.opaque == opaque
            assert answer.code != ResponseCode.SUCCESS or code in REQUESTS


def test_worst_numbers_and_words_in_every_field(broker: BrokerTarget) -> None:
    """Each request with all its fields wrong, and with each wrong in turn."""
    chance = random.Random(11)
    with Customer(broker) as customer, Peer(broker.port) as peer:
        for code, info in REQUESTS.items():
            fields = [field.encode_name for field in msgspec.structs.fields(info.header)] if info.header else []
            for number in WORST_NUMBERS:
                _answered(peer, code, dict.fromkeys(fields, number))
            for _ in range(len(fields) * 2):
                words = {name: chance.choice((*ODD_WORDS, *WORST_NUMBERS, "0", "true")) for name in fields}
                _answered(peer, code, words, chance.randbytes(chance.randrange(60)))
    assert customer.usual() < 1


def _answered(peer: Peer, code: int, ext: dict[str, str], body: bytes = b"") -> None:
    opaque = random.getrandbits(31)
    peer.send(Command(code, opaque, ext=ext, body=body))
    # Some serve by waiting (a pull), some tell clients something: an answer that is not long in coming follows anyhow.
    peer.send(Command(-77, opaque ^ 1))
    while peer.receive().opaque != opaque ^ 1:
        pass


@pytest.mark.parametrize("name", ODD_NAMES.values(), ids=ODD_NAMES.keys())
def test_names_that_no_topic_may_have(name: str, broker: BrokerTarget) -> None:
    files = _files(broker)
    refused = (ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST)
    with Peer(broker.port) as peer:
        for default in ("TBW102", "no-such-topic"):
            answer = peer.ask(send_command(name, default_topic=default))
            assert answer.code in refused, answer
            assert answer.remark
        assert peer.ask(pull_command(name)).code in refused
        assert peer.ask(pull_command("checked", group=name)).code in (
            *refused,
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
    broker.check()
    assert _files(broker) == files


def _files(broker: BrokerTarget) -> set[str]:
    """Folders of topics, and whatever lies beside the store."""
    queues = {path.name for path in (broker.folder / "store" / "consumequeue").glob("*")}
    return queues | {path.name for path in broker.folder.iterdir()} - {"checked"} | {"checked"}


def test_bodies_that_are_not_batches(broker: BrokerTarget) -> None:
    chance = random.Random(5)
    with Peer(broker.port) as peer:
        for size in (0, 1, 3, 4, 19, 20, 100, 5000):
            for start in (b"", b"\0\0\0\x14", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", (size & 0xFFFF).to_bytes(4)):
                body = (start + chance.randbytes(size))[:size]
                answer = peer.ask(_as_batch(send_command("checked", body)))
                assert answer.code == ResponseCode.MESSAGE_ILLEGAL, (size, start, answer)
                assert answer.remark


def _as_batch(command: Command) -> Command:
    return Command(RequestCode.SEND_BATCH_MESSAGE, command.opaque, ext=command.ext, body=command.body)


def test_messages_that_are_too_large(broker: BrokerTarget) -> None:
    with Peer(broker.port) as peer:
        for size in (4 * 1024 * 1024 + 1, 15 * 1024 * 1024):
            answer = peer.ask(send_command("checked", bytes(size)))
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert answer.remark
        answer = peer.ask(send_command("checked", properties="k\1" + "v" * 40_000 + "\2"))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


def test_sending_back_what_never_was(broker: BrokerTarget) -> None:
    """Offsets of nothing, of the middle of a record, of another group's message."""
    chance = random.Random(3)
    with Peer(broker.port) as peer:
        for offset in [
            0,
            1,
            -1,
            2**63 - 1,
            -(2**63),
            *(chance.randrange(1 << chance.randrange(1, 40)) for _ in range(500)),
        ]:
            ext = {"offset": str(offset), "group": "customers", "delayLevel": "3", "originTopic": "ordinary"}
            answer = peer.ask(Command(RequestCode.CONSUMER_SEND_MSG_BACK, 5, ext=ext))
            assert answer.opaque == 5


def test_one_way_nonsense_is_not_answered(broker: BrokerTarget) -> None:
    with Peer(broker.port) as peer:
        for code in REQUESTS:
            peer.send(Command(code, 1, flag=int(CommandFlag.ONE_WAY), ext={"topic": "../x"}, body=b"\xff"))
        assert peer.ask(Command(-77, 2)).opaque == 2
