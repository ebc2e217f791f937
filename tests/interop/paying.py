"""A producer with transactions that is written by hand: it sends the requests of the test, and sees every question."""

import json
import time
from typing import Any, NamedTuple, Self

from tests.waiting import wait_for

from kourou.protocol.codes import RequestCode

from .wire import ONE_WAY, Answer, Connection

COMMIT, ROLLBACK = 8, 12
PATIENCE_S = 60


class Question(NamedTuple):
    """A question of a broker about a half message."""

    key: str  # the unique key of the message
    ext: dict[str, str]


class Payer:
    """Half messages, ends, and questions. Questions come on a connection of their own."""

    def __init__(self, address: str, group: str) -> None:
        self.group = group
        self.connection = Connection(address)
        self._asked = Connection(address)
        beat = {"clientID": f"hand-{group}", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
        assert self._asked.ask(RequestCode.HEART_BEAT, body=json.dumps(beat).encode()).code == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.connection.close()
        self._asked.close()

    def send(self, topic: str, key: str, born_ms: int | None = None, **more: str) -> dict[str, str]:
        """A half message for queue 1: the fields of the answer."""
        own = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": self.group, "WAIT": "true", **more}
        text = "".join(f"{name}\x01{value}\x02" for name, value in own.items())
        header = {"a": self.group, "b": topic, "c": "TBW102", "d": 4, "e": 1, "f": 4, "h": 7, "i": text, "j": 0}
        answer = self.connection.ask(
            RequestCode.SEND_MESSAGE_V2, {**header, "g": born_ms or int(time.time() * 1000)}, f"body of {key}".encode()
        )
        assert answer.code == 0, answer
        return answer.ext

    def end(self, sent: dict[str, str], outcome: int, **more: Any) -> tuple[int, str | None]:
        """END_TRANSACTION as a request, by the answer to the send."""
        header = {
            "producerGroup": self.group,
            "tranStateTableOffset": sent["queueOffset"],
            "commitLogOffset": int(sent["msgId"][16:], 16),
            "commitOrRollback": outcome,
            "msgId": sent["transactionId"],
            "fromTransactionCheck": "false",
            **more,
        }
        answer = self.connection.ask(RequestCode.END_TRANSACTION, header)
        return answer.code, answer.remark

    def reply(self, question: Question, outcome: int) -> None:
        """END_TRANSACTION one-way, as clients reply to a question."""
        header = {
            "producerGroup": self.group,
            "tranStateTableOffset": question.ext["tranStateTableOffset"],
            "commitLogOffset": question.ext["commitLogOffset"],
            "commitOrRollback": outcome,
            "msgId": question.key,
            "fromTransactionCheck": "true",
            "transactionId": question.key,
        }
        self.connection.send(RequestCode.END_TRANSACTION, header, flag=ONE_WAY)

    def questions_about(self, *keys: str, rounds: int = 1) -> dict[str, list[Question]]:
        """By key, once there are as many about each of these."""
        found: dict[str, list[Question]] = {}

        def look() -> bool:
            asked: Answer = self._asked.receive_any()
            assert asked.code == RequestCode.CHECK_TRANSACTION_STATE
            found.setdefault(asked.ext["msgId"], []).append(Question(asked.ext["msgId"], asked.ext))
            return all(len(found.get(key, ())) >= rounds for key in keys)

        wait_for(f"questions about {keys}", look, PATIENCE_S)
        return found
