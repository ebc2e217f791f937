"""A real broker whose time of day is set back an hour, and ahead a day: everything periodic goes on.

libfaketime (Debian's package `libfaketime`) sits between the process and the clock.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.hostile.broker_target import BrokerTarget, pull_command, send_command
from tests.hostile.target import Peer
from tests.waiting import wait_for

from kourou.protocol import headers
from kourou.protocol.bodies import ConsumerData, HeartbeatData, KVTable, SubscriptionData
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
GROUP = "clock-group"
TOPIC = "clock"


class FakedBroker(BrokerTarget):
    """A broker that is told what time it is."""

    def __init__(self, folder: Path, mode: str) -> None:
        self._time = folder / "time"
        self.set_clock("+0")
        self.extra_environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._time),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        super().__init__(
            folder,
            f"flushDiskType={mode}_FLUSH",
            "flushCommitLogThoroughInterval=500",
            "flushConsumerOffsetInterval=500",
            "flushConsumeQueueThoroughInterval=500",
        )

    def set_clock(self, offset: str) -> None:
        self._time.write_text(offset)

    def runtime(self) -> dict[str, str]:
        return KVTable.decode(self.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO, 1)).body).table


@pytest.fixture(params=["SYNC", "ASYNC"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FakedBroker]:
    if not LIBRARIES:
        pytest.skip("libfaketime is not installed (Debian: apt-get install libfaketime)")
    broker = FakedBroker(tmp_path, request.param)
    yield broker
    broker.process.kill()
    broker.process.wait()


@pytest.mark.slow
def test_periodic_work_goes_on_when_the_clock_jumps(broker: FakedBroker) -> None:
    with Peer(broker.port) as member, Peer(broker.port) as peer:
        _join(member)
        for number, offset in enumerate(("+0", "-1h", "+1d", "-1d")):
            broker.set_clock(offset)
            _check(broker, peer, number)
    assert "Traceback" not in broker.log


def _join(peer: Peer) -> None:
    wanted = SubscriptionData(topic=TOPIC, sub_string="*", sub_version=1)
    consumer = ConsumerData(
        group_name=GROUP,
        consume_type="CONSUME_PASSIVELY",
        message_model="CLUSTERING",
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        subscription_data_set=[wanted],
    )
    beat = HeartbeatData(client_id="clock-client", consumer_data_set=[consumer])
    peer.send(Command(RequestCode.HEART_BEAT, 1, body=beat.encode()))
    while (answer := peer.receive()).opaque != 1:
        pass  # the broker tells the group that it has a new member
    assert answer.code == ResponseCode.SUCCESS, answer


def _check(broker: FakedBroker, peer: Peer, number: int) -> None:
    """Sends, syncs, tables, offsets, delays and long polls, each as soon as it should be."""
    begun = time.monotonic()
    sent = peer.ask(send_command(TOPIC, b"%d" % number))
    assert sent.code == ResponseCode.SUCCESS, sent
    assert peer.ask(send_command(f"{TOPIC}-{number}")).code == ResponseCode.SUCCESS  # a new topic, and a table's write
    wait_for("a sync of the log", lambda: broker.runtime()["remainHowManyDataToFlush"] == "0 B")

    header = headers.UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=number + 1)
    peer.ask(Command(RequestCode.UPDATE_CONSUMER_OFFSET, 2, ext=header.encode()))
    offsets = broker.folder / "store" / "config" / "consumerOffset.json"
    wait_for("a write of the offsets", lambda: offsets.exists() and f"0:{number + 1}" in offsets.read_text())

    waiting = time.monotonic()
    delayed = peer.ask(send_command(f"{TOPIC}-late-{number}", b"late", properties="DELAY\x011\x02"))
    assert delayed.code == ResponseCode.SUCCESS
    late = pull_command(f"{TOPIC}-late-{number}", 0)
    wait_for("a delayed message", lambda: broker.ask(late).code == ResponseCode.SUCCESS)
    assert 0.9 < time.monotonic() - waiting < 10

    polling = time.monotonic()
    assert peer.ask(pull_command(TOPIC, number + 1, suspend_ms=1_000)).code == ResponseCode.PULL_NOT_FOUND
    assert 0.9 < time.monotonic() - polling < 10
    assert time.monotonic() - begun < 60, json.dumps(broker.runtime())
