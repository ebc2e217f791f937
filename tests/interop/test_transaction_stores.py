"""A store with open transactions goes from Apache's broker to ours and back: each is asked about, and ends once."""

from pathlib import Path

import pytest
from tests.waiting import wait_equal

from kourou.protocol.codes import RequestCode

from .paying import COMMIT, PATIENCE_S, ROLLBACK, Payer
from .servers import ApacheStage, KourouRun
from .wire import Connection
from .worlds import needed

pytestmark = pytest.mark.interop

TOPIC, GROUP = "payments", "payers"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SETTINGS = (
    "transactionCheckInterval=1000",
    "transactionTimeOut=500",
    "transactionOpBatchInterval=200",
    "transactionCheckMax=10000",  # a check a second: on a loaded machine, the default of 15 discards open transactions
)


def key(word: str) -> str:
    return word.rjust(32, "0")


def end_of(address: str, topic: str, queue: int) -> int:
    with Connection(address) as connection:
        ext = {"topic": topic, "queueId": queue, "committed": "true"}
        return int(connection.ask(RequestCode.GET_MAX_OFFSET, ext).ext["offset"])


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_open_transactions_change_brokers(how: str, tmp_path: Path) -> None:
    with needed():
        apache = ApacheStage(tmp_path / "apache", *SETTINGS)
    ours: KourouRun | None = None
    try:
        # Apache's broker: one of each kind, and questions, so that there are copies.
        with Payer(apache.address, GROUP) as payer:
            committed, rolled_back = payer.send(TOPIC, key("C1")), payer.send(TOPIC, key("R1"))
            first, _ = payer.send(TOPIC, key("A1")), payer.send(TOPIC, key("A2"))
            immune = payer.send(TOPIC, key("I1"), CHECK_IMMUNITY_TIME_IN_SECONDS="3600")
            assert (payer.end(committed, COMMIT)[0], payer.end(rolled_back, ROLLBACK)[0]) == (0, 0)
            late = payer.send(TOPIC, key("L1"))
            payer.questions_about(key("A1"), key("A2"), key("L1"))
            assert payer.end(late, COMMIT)[0] == 0  # Apache's broker goes on asking about the copy
            wait_equal(lambda: end_of(apache.address, OP_TOPIC, 0) > 0, True, PATIENCE_S)
            wait_equal(lambda: end_of(apache.address, TOPIC, 1), 2, PATIENCE_S)
        getattr(apache, how)()

        # Kourou's continues: no producer is asked about an ended transaction, and an end by an older copy counts once.
        (tmp_path / "kourou").mkdir()
        (tmp_path / "kourou" / "store").symlink_to(apache.broker.home / "store")
        ours = KourouRun(tmp_path / "kourou", *SETTINGS)
        with Payer(ours.address, GROUP) as payer:
            asked = payer.questions_about(key("A1"), key("A2"), rounds=2)
            assert asked.keys() == {key("A1"), key("A2")}
            assert payer.end(first, COMMIT)[0] == 0
            for question in asked[key("A1")]:
                payer.reply(question, COMMIT)
            assert payer.end(committed, COMMIT)[0] == 0  # again
            payer.send(TOPIC, key("B1"))
            assert payer.end(payer.send(TOPIC, key("B2")), COMMIT)[0] == 0
            assert payer.questions_about(key("A2"), key("B1")).keys() == {key("A2"), key("B1")}
            assert end_of(ours.address, TOPIC, 1) == 4
        getattr(ours, how)()

        # And back.
        apache.restart()
        with Payer(apache.address, GROUP) as payer:
            asked = payer.questions_about(key("A2"), key("B1"), rounds=2)
            assert asked.keys() == {key("A2"), key("B1")}
            for questions in asked.values():
                payer.reply(questions[-1], COMMIT)
            assert payer.end(immune, COMMIT)[0] == 0
            wait_equal(lambda: end_of(apache.address, TOPIC, 1), 7, PATIENCE_S)
    finally:
        apache.kill_all()
        if ours is not None:
            ours.kill()
