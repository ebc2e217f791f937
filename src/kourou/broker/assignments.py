"""The queues that a client consumes, computed by the broker: Java's push consumer with `setClientRebalance(false)`.

    QUERY_ASSIGNMENT ─▶ the mode of topic and group ─▶ the queues of the topic on all brokers, from a name server
                     ─▶ the share of the client among the members of the group

The broker answers as the client would compute it: each broker knows all members of a group, and a name server knows the
queues of all brokers. A route is used for `ROUTE_MS`; after that a request waits for a new one, and if no name server
answers, for the old one. `{}` tells a client to keep the queues that it has.

A group that pops (setConsumeMode, defaultMessageRequestMode) is refused, because this broker serves pulls only. Java's
client logs the answer and consumes nothing until the mode is PULL.

Java: QueryAssignmentProcessor, TopicRouteInfoManager.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from kourou.broker.admin import tables
from kourou.broker.clients import BROADCASTING, Clients
from kourou.broker.events import Asked, Large, Outbox, Refused
from kourou.broker.request_bodies import RequestBodies
from kourou.broker.request_modes import RequestModes
from kourou.broker.settings import BrokerSettings
from kourou.protocol import bodies, fastjson, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import BodyError
from kourou.protocol.message import MessageQueue
from kourou.protocol.names import shown
from kourou.protocol.queue_shares import SHARES
from kourou.protocol.route_limits import decode_route
from kourou.protocol.route_queues import logical_queues, queues_of, readable_counts
from kourou.turns import Slices, Turns, at_once

log = logging.getLogger(__name__)

CLUSTERING: Final = "CLUSTERING"
PULL: Final = "PULL"

ROUTE_MS: Final = 5_000
"""How long a route is used. Clients ask three times a minute, and after each change of their group."""

ASK_TIMEOUT_MS: Final = 700
"""The time of a name server for its answer: a client waits for a second."""

QUEUES_MAX: Final = 200_000
"""Queues that are kept, of all topics."""

SMALL: Final = 500
"""Queues and members together that are shared at once, in less than a millisecond."""

WAITING_MAX: Final = 1_000
"""Requests that wait for name servers."""


@dataclass(slots=True)
class _Topic:
    """The queues of a topic, and the requests that wait for them."""

    queues: tuple[MessageQueue, ...] | None = None  # None: they are not known
    found_ms: int = 0
    waiting: list[tuple[Asked, bodies.QueryAssignmentRequestBody]] = field(default_factory=list)


class Assignments:
    """Shares the queues of topics among the members of groups."""

    def __init__(
        self,
        settings: BrokerSettings,
        clients: Clients,
        modes: RequestModes,
        read: RequestBodies,
        outbox: Outbox,
        turns: Turns,
    ) -> None:
        self._settings = settings
        self._clients = clients
        self._modes = modes
        self._read = read
        self._outbox = outbox
        self._turns = turns
        self._topics: dict[str, _Topic] = {}  # the one that was asked for last is the last
        self._count = 0  # queues, of all topics
        self._waiting = 0

    def query(self, asked: Asked) -> Command | Slices[Command | Large] | None:
        """QUERY_ASSIGNMENT."""
        wanted = self._read.read(bodies.QueryAssignmentRequestBody, asked)
        topic, group = wanted.topic or "", wanted.consumer_group or ""
        if wanted.message_model not in (CLUSTERING, BROADCASTING):
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"the message model is {shown(wanted.message_model or '')}: {CLUSTERING} or {BROADCASTING} is expected",
            )
        if self._modes.mode_of(topic, group, self._settings.request_mode) != PULL:
            raise Refused(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                f"group {shown(group)} is to pop from topic {shown(topic)}, and this broker serves pulls only. Choose "
                f"pulls: mqadmin setConsumeMode -t {shown(topic)} -g {shown(group)} -m PULL",
            )
        is_known = self._clients.group(group) is not None and wanted.strategy_name in SHARES
        if wanted.message_model == CLUSTERING and self._settings.shares_queues and not is_known:
            return _unknown(asked)
        found = self._topics.pop(topic, None) or _Topic()
        self._topics[topic] = found
        if found.queues is not None and asked.now_ms - found.found_ms < ROUTE_MS:
            slices = self._assigned(asked, wanted, found.queues)
            members = self._clients.group(group)
            size = len(found.queues) + (0 if members is None else len(members.clients))
            return at_once(slices) if size <= SMALL else slices
        if self._waiting >= WAITING_MAX:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{WAITING_MAX} requests for assignments wait for name servers")
        found.waiting.append((asked, wanted))
        self._waiting += 1
        if len(found.waiting) == 1:
            self._ask(topic)
        return None

    def _ask(self, topic: str) -> None:
        command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=headers.GetRouteInfo(topic=topic).encode())
        self._outbox.ask_name_server(command, ASK_TIMEOUT_MS, partial(self._answered, topic))

    def _answered(self, topic: str, answer: Command | None, now_ms: int) -> None:
        """A name server answered, or none did."""
        found = self._topics[topic]
        self._count -= len(found.queues or ())
        waiting, found.waiting = found.waiting, []
        self._waiting -= len(waiting)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            try:
                found.queues, found.found_ms = _queues(topic, answer.body), now_ms
            except BodyError as error:
                log.warning("the route of a topic can't be decoded topic=%s: %s", shown(topic), error)
        elif answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST:
            found.queues = None
        self._count += len(found.queues or ())
        if found.queues is None:
            del self._topics[topic]
        self._forget_some()
        for asked, wanted in waiting:
            self._turns.start(asked.peer, self._answer_later(asked, wanted, found.queues))

    def _forget_some(self) -> None:
        """Those that were not asked for longest."""
        if self._count > QUEUES_MAX:
            for topic in [topic for topic, found in self._topics.items() if not found.waiting]:
                self._count -= len(self._topics.pop(topic).queues or ())
                if self._count <= QUEUES_MAX:
                    return

    def _answer_later(
        self, asked: Asked, wanted: bodies.QueryAssignmentRequestBody, queues: tuple[MessageQueue, ...] | None
    ) -> Slices[None]:
        if queues is None:
            answer = _unknown(asked)
        else:
            answer = yield from self._assigned(asked, wanted, queues)
        self._outbox.reply(asked.peer, asked.command, answer)

    def _assigned(
        self, asked: Asked, wanted: bodies.QueryAssignmentRequestBody, queues: tuple[MessageQueue, ...]
    ) -> Slices[Command]:
        """The answer with the queues of the client."""
        own: Sequence[MessageQueue] = queues
        if wanted.message_model == CLUSTERING and self._settings.shares_queues:
            group = self._clients.group(wanted.consumer_group or "")
            if group is None or not queues or not wanted.client_id:
                return _unknown(asked)
            client_ids = yield from tables.in_order(dict.fromkeys(group.client_ids()))
            own = SHARES[wanted.strategy_name or ""](wanted.client_id, queues, client_ids)
        entries = tables.Entries()
        for number, queue in enumerate(own, 1):
            entries.add(fastjson.encode(bodies.MessageQueueAssignment(message_queue=queue, mode=PULL)))
            if number % tables.ENTRIES_IN_SLICE == 0:
                yield len(entries.text)
        return asked.command.answer(body=b'{"messageQueueAssignments":[%b]}' % bytes(entries.text))


def _unknown(asked: Asked) -> Command:
    """The client keeps the queues that it has."""
    return asked.command.answer(body=b"{}")


def _queues(topic: str, body: bytes) -> tuple[MessageQueue, ...]:
    """The queues of a topic in a name server's answer, in the order in which they are shared. Raises BodyError."""
    route = decode_route(body, topic)
    return tuple(logical_queues(topic, route)) or queues_of(topic, readable_counts(route))
