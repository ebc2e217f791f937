"""Figures for Prometheus alone: messages by type, their sizes, and how long requests take.

    a message is stored ─▶ Stats.put ─▶ Traffic of its topic and type      always; the lane adds its own when asked
    a request comes ─▶ Meters.asked ─▶ … ─▶ its answer leaves ─▶ Meters.answered       only if metrics are served

The lane counts in C, and hands its counts over when a page of metrics is written (`FastLane.hand_over`). A latency is
the time from the read that brought the request to the moment when the machine hands out its answer.

Java: BrokerMetricsManager, RemotingMetricsManager.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from kourou.broker.events import Effect, Outbox, Peer, Reply, ReplyParts
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.properties import Property

if TYPE_CHECKING:
    from kourou.broker.message_writer import MessageWriter, PendingFrames

NORMAL: Final = "normal"
FIFO: Final = "fifo"
DELAY: Final = "delay"
TRANSACTION: Final = "transaction"
MESSAGE_TYPES: Final = (NORMAL, FIFO, DELAY, TRANSACTION)
"""In the order in which the lane counts them."""

SIZE_BOUNDS: Final = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
LATENCY_BOUNDS_MS: Final = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
CREATION_BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)

LATENCIES_MAX: Final = 2_000
"""Pairs of a request and an outcome that are counted apart; others count as request code `other`."""

ASKED_MAX: Final = 10_000
"""Unanswered requests of one connection that are timed; the latency of others is not counted."""

_SEND = int(RequestCode.SEND_MESSAGE_V2)
_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_ONE_WAY = int(CommandFlag.ONE_WAY)
_REQUEST_NAMES: Final = {int(code): code.name.lower() for code in RequestCode}
_RESPONSE_NAMES: Final = {int(code): code.name.lower() for code in ResponseCode}
_PULLS: Final = frozenset((int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)))
_CREATE_TOPIC: Final = frozenset(
    (int(RequestCode.UPDATE_AND_CREATE_TOPIC), int(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST))
)
_CREATE_GROUP: Final = frozenset(
    (int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP), int(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST))
)
_DELAYS: Final = (
    Property.DELAY_LEVEL,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_SEC,
    Property.TIMER_DELAY_MS,
    Property.START_DELIVER_TIME,
)


def message_type(properties: Mapping[str, str]) -> str:
    """The type of a message, as Apache's metrics name it."""
    if properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if Property.SHARDING_KEY in properties:
        return FIFO
    return DELAY if any(name in properties for name in _DELAYS) else NORMAL


@dataclass(slots=True)
class Histogram:
    """Numbers of observations up to each bound, and their sum."""

    bounds: Sequence[int]
    buckets: list[int] = field(init=False)
    total: int = 0

    def __post_init__(self) -> None:
        self.buckets = [0] * (len(self.bounds) + 1)

    def add(self, value: int, count: int = 1) -> None:
        self.buckets[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def add_all(self, buckets: Sequence[int], total: int) -> None:
        """The observations of another histogram with the same bounds."""
        self.buckets = [mine + more for mine, more in zip(self.buckets, buckets, strict=True)]
        self.total += total

    def cumulative(self) -> list[tuple[str, int]]:
        """The cumulative counts, in the form of Prometheus."""
        bounds = [*(str(float(bound)) for bound in self.bounds), "+Inf"]
        return list(zip(bounds, accumulate(self.buckets), strict=True))


@dataclass(slots=True)
class Traffic:
    """Messages of one type that a topic got. A batch is one observation of its average size, as with Apache."""

    messages: int = 0
    size: int = 0
    sizes: Histogram = field(default_factory=lambda: Histogram(SIZE_BOUNDS))

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.size += size
        self.sizes.add(size // messages)

    def add_all(self, messages: int, size: int, buckets: Sequence[int], total: int) -> None:
        self.messages += messages
        self.size += size
        self.sizes.add_all(buckets, total)


class Rpc(NamedTuple):
    """Requests whose latencies are one histogram."""

    request: str
    response: str
    is_long_polling: bool
    result: str


class Meters:
    """The latencies of one broker. Nothing is timed while it is not on."""

    def __init__(self, clock_ns: Callable[[], int], is_system: Callable[[str], bool]) -> None:
        self._clock_ns = clock_ns
        self._is_system = is_system
        self.is_on = False
        self.latencies: dict[Rpc, Histogram] = {}
        self.topic_creations: dict[tuple[str, bool], Histogram] = {}  # by outcome, and whether it is a system topic
        self.group_creations: dict[str, Histogram] = {}  # by outcome
        self._turn = 0  # counts the hand-outs of effects: a pull that is answered in a later one has waited

    def start(self, outbox: Outbox, writer: "MessageWriter") -> None:
        """Metrics are served: time requests from now on."""
        self.is_on = True
        outbox.on_answers, writer.on_held = self.answered, self.held_left

    def now_ns(self) -> int:
        """The time; 0 while nothing is timed."""
        return (self._clock_ns() or 1) if self.is_on else 0

    def ms_since(self, ns: int) -> int:
        return max(self._clock_ns() - ns, 0) // 1_000_000

    # ── Requests on the general path ──────────────────────────────────────────────────────────────────────────────

    def asked(self, peer: Peer, command: Command) -> None:
        """A request comes."""
        if command.flag & _ONE_WAY or len(peer.asked) >= ASKED_MAX:
            return
        about = (command.ext or {}).get("topic", "") if command.code in _CREATE_TOPIC else ""
        peer.asked[command.opaque] = command.code, self._clock_ns(), self._turn, about

    def served_one_way(self, code: int, response: int, since_ns: int) -> None:
        """A one-way request was served."""
        rpc = Rpc(request_name(code), response_name(response), False, "oneway")
        self.add(rpc, self.ms_since(since_ns), 1)

    def answered(self, effects: Sequence[Effect]) -> None:
        """The machine returns these effects."""
        now_ns = 0
        for effect in effects:
            if isinstance(effect, Reply | ReplyParts) and effect.peer.asked:
                asked = effect.peer.asked.pop(effect.command.opaque, None)
                if asked is not None:
                    now_ns = now_ns or self._clock_ns()
                    code, since_ns, turn, about = asked
                    ms = max(now_ns - since_ns, 0) // 1_000_000
                    self._answered(code, effect.command.code, ms, about, code in _PULLS and turn != self._turn)
        self._turn += 1

    def _answered(self, code: int, response: int, ms: int, about: str, is_long_polling: bool) -> None:
        self.add(Rpc(request_name(code), response_name(response), is_long_polling, "success"), ms, 1)
        outcome = "success" if response == ResponseCode.SUCCESS else "failure"
        if code in _CREATE_TOPIC:
            key = outcome, self._is_system(about)
            self.topic_creations.setdefault(key, Histogram(CREATION_BOUNDS_MS)).add(ms)
        elif code in _CREATE_GROUP:
            self.group_creations.setdefault(outcome, Histogram(CREATION_BOUNDS_MS)).add(ms)

    def held_left(self, held: "PendingFrames", response: int) -> None:
        """Answers of the lane are sent: their messages are durable, or late."""
        ms, name = self.ms_since(held.since_ns), response_name(response)
        for code, count in ((_SEND, held.count - held.batches), (_BATCH, held.batches)):
            if count:
                self.add(Rpc(request_name(code), name, False, "success"), ms, count)

    # ── Counting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, rpc: Rpc, ms: int, count: int) -> None:
        self._of(rpc).add(ms, count)

    def add_all(self, rpc: Rpc, buckets: Sequence[int], total_ms: int) -> None:
        """Add the counts of the lane."""
        self._of(rpc).add_all(buckets, total_ms)

    def _of(self, rpc: Rpc) -> Histogram:
        found = self.latencies.get(rpc)
        if found is None:
            if len(self.latencies) >= LATENCIES_MAX:
                rpc = rpc._replace(request="other", response="other")
            found = self.latencies.setdefault(rpc, Histogram(LATENCY_BOUNDS_MS))
        return found


def request_name(code: int) -> str:
    return _REQUEST_NAMES.get(code) or str(code)


def response_name(code: int) -> str:
    return _RESPONSE_NAMES.get(code) or str(code)
