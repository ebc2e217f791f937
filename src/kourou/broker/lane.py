"""The fast lane: usual sends and pulls are served from the bytes of a read, without an object per request.

    Broker.read ─▶ Lane.serve ─▶ answers                          usual requests at the head of the read
                        └▶ what is left ─▶ frames ─▶ Broker.step     the first unusual one, and all after it

The general path (`Broker.step`) serves every request and defines the behaviour. The lane is compiled (`_lane.pyx`,
which lists its parts), and the broker works without it. The lane serves

- SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE with a JSON header to a queue that is open, of a topic that exists and is
  writable, with properties that the broker only stores: no delay level, no retry, and with a unique key;
- half messages and timed messages among them, if the queues that they wait in are open;
- END_TRANSACTION that commits such a half message, one-way, as clients send it;
- PULL_MESSAGE with a JSON header, by tags, of a group that may read the topic, at an offset where messages are.

With access control, the same user must have been allowed the same on this connection before (`access.Grants`). The lane
verifies signatures. Ends of transactions are left.

It leaves every request that it can't answer with success: refusals, long polls, new topics, new segments of the log.
Such a request has changed nothing, and the general path serves it as if there were no lane. A new rule for sends or
pulls must be written in both; tests/property/test_lane.py feeds both the same bytes and compares answers, files and
counters.

`serve` appends and counts. When all reads are served, `Broker.read` dispatches what was appended and retries the long
polls on those queues, as the end of a step does.
"""

from typing import Protocol

from kourou.broker.access import Access
from kourou.broker.clients import Clients
from kourou.broker.events import Peer
from kourou.broker.groups import Groups
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import Meters
from kourou.broker.offsets import Offsets
from kourou.broker.send import Send
from kourou.broker.settings import BrokerSettings
from kourou.broker.stats import Stats
from kourou.broker.topics import Topics
from kourou.broker.transactions.service import Transactions
from kourou.store.store import Store

try:
    from kourou.broker import _lane

    IS_COMPILED = True
except ImportError:
    IS_COMPILED = False

ANSWERS_MAX = 64 * 1024
"""Bytes of answers after which the rest of a read is put off until other connections had their turn.

So a consumer that reads a backlog does not delay the others.
"""


PUBLISHED_AT_ONCE = 1024 * 1024
"""Bytes of the log that become visible in one turn. Far more may be released at once: when senders
no longer wait for slaves, or a majority of the group has reconnected."""


class Lane(Protocol):
    """The interface of the lane for the machine and its driver."""

    held_batches: int
    """Of the answers that waited at the end of the last `serve`, how many are those of batches."""

    def serve(self, peer: Peer, data: bytes, now_ms: int) -> tuple[int, bytes, bytes, int, bool]:
        """Serve requests at the head of `data`.

        Bytes used; answers; answers that wait for the disk, and how many; whether the peer reads in bulk.
        """

    def dispatch(self) -> bool:
        """Dispatch the appended records. False: call `Store.dispatch`."""

    def tables_may_change(self) -> None:
        """A step of the machine begins: settings and tables may change in it."""

    def took(self, ms: int) -> None:
        """Record the duration of the requests that were served since the last call, for the metrics."""

    def hand_over(self, meters: Meters) -> None:
        """Add the counts since the last call to the statistics and to `meters`."""


def make_lane(
    settings: BrokerSettings,
    store: Store,
    send: Send,
    writer: MessageWriter,
    topics: Topics,
    groups: Groups,
    clients: Clients,
    offsets: Offsets,
    stats: Stats,
    access: Access,
    transactions: Transactions,
) -> Lane | None:
    """The lane of a broker; None where it is not compiled."""
    if not IS_COMPILED:
        return None
    return _lane.FastLane(
        settings,
        store,
        send,
        writer,
        topics,
        groups,
        clients,
        offsets,
        stats,
        access,
        transactions,
        answers_max=ANSWERS_MAX,
    )
