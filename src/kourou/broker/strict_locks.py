"""Locks on queues that a majority of the broker group has to grant (lockInStrictMode).

    LOCK_BATCH_MQ ─▶ this broker grants some queues ─▶ the other members are asked for those (onlyThisBroker)
                  ─▶ the client has the queues that totalReplicas / 2 + 1 brokers grant

So a member that becomes the master knows the locks, and grants a queue to no other client before its lock has expired.
Otherwise locks are lost with the master, and two consumers may have the same queue for a while.

The other members are those that the name servers know. They are asked for them after each registration and, as long as
clients want locks, every second. An answer leaves when a majority has decided, or all members have answered, or after
`ANSWER_MS`: clients wait for a second.

Java: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ.
"""

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kourou.broker.events import Announced, Asked, Outbox, Refused
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError, ProtocolError
from kourou.protocol.message import MessageQueue

log = logging.getLogger(__name__)

ANSWER_MS: Final = 500
"""How long the members of the group have for their answers."""

MEMBERS_MS: Final = 1_000
"""The maximum age of the list of members when a client asks for locks."""

ASK_TIMEOUT_MS: Final = 3_000

WAITING_MAX: Final = 1_000
"""Requests for locks that wait for members."""

IN_FLIGHT_MAX: Final = 32
"""Requests to one member that have no answer yet; further ones wait here."""


@dataclass(slots=True, eq=False)
class _Ballot:
    """A request for locks that waits for the members of the group."""

    asked: Asked
    question: bytes
    votes: dict[MessageQueue, int]  # by queue: how many brokers grant it, this one among them
    left: int  # members that have not answered
    until_ms: int
    is_done: bool = False


@dataclass(slots=True, eq=False)
class _Member:
    """Another broker of the group."""

    address: str
    in_flight: int = 0
    waiting: deque[_Ballot] = field(default_factory=deque)


class StrictLocks:
    """Asks the other members of the group."""

    def __init__(self, settings: BrokerSettings, outbox: Outbox) -> None:
        self._settings = settings
        self._outbox = outbox
        self._known: dict[str, frozenset[str]] = {}  # addresses of other members, by name server
        self._members: dict[str, _Member] = {}  # by address
        self._sought_ms: int | None = None  # when name servers were asked last
        self._ballots: deque[_Ballot] = deque()  # in the order of their deadlines
        self._too_few = -1  # the number of other members when it was last logged

    @property
    def quorum(self) -> int:
        """How many brokers have to grant a lock, this one among them."""
        return self._settings.replicas_total // 2 + 1 if self._settings.strict_locks else 1

    # ── The group ─────────────────────────────────────────────────────────────────────────────────────────────────

    def announced(self, event: Announced) -> None:
        """A name server answered."""
        if self.quorum <= 1 or event.answer is None or event.answer.code != ResponseCode.SUCCESS:
            return
        if event.code == RequestCode.REGISTER_BROKER:
            self._seek()
        elif event.code == RequestCode.GET_BROKER_MEMBER_GROUP:
            try:
                group = bodies.GetBrokerMemberGroupResponseBody.decode(event.answer.body).broker_member_group
            except BodyError as error:
                log.warning("members of the group not understood name_server=%s: %s", event.address, error)
                return
            addresses = frozenset() if group is None else frozenset(group.broker_addrs.values())
            self._known[event.address] = addresses - {self._settings.address}
            self._know(frozenset[str]().union(*self._known.values()))

    def _know(self, addresses: Iterable[str]) -> None:
        self._members = {address: self._members.get(address) or _Member(address) for address in sorted(addresses)}

    def _seek(self) -> None:
        header = headers.GetBrokerMemberGroup(cluster_name=self._settings.cluster, broker_name=self._settings.name)
        command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, ext=header.encode())
        self._outbox.announce(command, ASK_TIMEOUT_MS)

    def _seek_if_old(self, now_ms: int) -> None:
        if self._sought_ms is None or now_ms - self._sought_ms >= MEMBERS_MS:
            self._sought_ms = now_ms
            self._seek()

    # ── Locks ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def lock(self, body: bodies.LockBatchRequestBody, got: list[MessageQueue], asked: Asked) -> Command | None:
        """The answer to a request for locks, of which this broker grants `got`. None: members are asked first."""
        if body.only_this_broker or self.quorum <= 1 or not got:
            return _answer(asked, got)
        self._seek_if_old(asked.now_ms)
        if not self._are_enough():
            return _answer(asked, [])
        if len(self._ballots) >= WAITING_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests for locks wait for the broker group")
        question = bodies.LockBatchRequestBody(
            consumer_group=body.consumer_group, client_id=body.client_id, only_this_broker=True, mq_set=got
        )
        until_ms = asked.now_ms + ANSWER_MS
        votes = dict.fromkeys(got, 1)
        ballot = _Ballot(asked, question.encode(), votes, len(self._members), until_ms)
        self._ballots.append(ballot)
        for member in self._members.values():
            if member.in_flight < IN_FLIGHT_MAX:
                self._ask(member, ballot)
            else:
                member.waiting.append(ballot)
        return None

    def _are_enough(self) -> bool:
        """Are there enough brokers to grant a lock?"""
        others = len(self._members)
        if others + 1 >= self.quorum:
            self._too_few = -1
            return True
        if self._too_few != others:
            self._too_few = others
            log.warning(
                "queues are not locked: %d brokers of the group have to agree (lockInStrictMode, totalReplicas=%d), "
                "and the name servers know %d others",
                self.quorum,
                self._settings.replicas_total,
                others,
            )
        return False

    def _ask(self, member: _Member, ballot: _Ballot) -> None:
        member.in_flight += 1
        command = Command(RequestCode.LOCK_BATCH_MQ, body=ballot.question)
        self._outbox.ask_broker(member.address, command, ANSWER_MS, partial(self._voted, member, ballot))

    def _voted(self, member: _Member, ballot: _Ballot, answer: Command | None, _now_ms: int) -> None:
        """A member answered, or did not."""
        member.in_flight -= 1
        while member.waiting and member.in_flight < IN_FLIGHT_MAX:
            following = member.waiting.popleft()
            if not following.is_done:
                self._ask(member, following)
        if ballot.is_done:
            return
        ballot.left -= 1
        for queue in _granted(answer):
            if queue in ballot.votes:
                ballot.votes[queue] += 1
        if not ballot.left or min(ballot.votes.values()) >= self.quorum:
            self._finish(ballot)
            self._ballots.remove(ballot)

    def _finish(self, ballot: _Ballot) -> None:
        ballot.is_done = True
        quorum = self.quorum
        locked = [queue for queue, votes in ballot.votes.items() if votes >= quorum]
        self._outbox.reply(ballot.asked.peer, ballot.asked.command, _answer(ballot.asked, locked))

    def unlock(self, body: bodies.UnlockBatchRequestBody) -> None:
        """Queues were released here: tell the other members. If a member does not get this, its lock expires."""
        if body.only_this_broker or self.quorum <= 1:
            return
        question = bodies.UnlockBatchRequestBody(
            consumer_group=body.consumer_group, client_id=body.client_id, only_this_broker=True, mq_set=body.mq_set
        ).encode()
        for member in self._members.values():
            if member.in_flight < IN_FLIGHT_MAX:
                member.in_flight += 1
                command = Command(RequestCode.UNLOCK_BATCH_MQ, body=question)
                self._outbox.ask_broker(member.address, command, ANSWER_MS, partial(self._told, member))

    def _told(self, member: _Member, _answer: Command | None, _now_ms: int) -> None:
        member.in_flight -= 1

    # ── Deadlines ─────────────────────────────────────────────────────────────────────────────────────────────────

    def due_ms(self, _now_ms: int) -> int | None:
        """When the time of the members is over; None: no request waits for them."""
        return self._ballots[0].until_ms if self._ballots else None

    def step(self, now_ms: int) -> None:
        """Answer the requests whose time is over, with the locks that were granted so far."""
        while self._ballots and self._ballots[0].until_ms <= now_ms:
            self._finish(self._ballots.popleft())


def _answer(asked: Asked, locked: list[MessageQueue]) -> Command:
    return asked.command.answer(body=bodies.LockBatchResponseBody(locked=locked).encode())


def _granted(answer: Command | None) -> set[MessageQueue]:
    """The queues that a member grants."""
    if answer is None or answer.code != ResponseCode.SUCCESS:
        return set()
    try:
        return set(bodies.LockBatchResponseBody.decode(answer.body).locked)
    except ProtocolError as error:
        log.warning("the answer of a broker of the group is not understood: %s", error)
        return set()
