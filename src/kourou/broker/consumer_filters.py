"""The filters of consumer groups, other than by tag: registered by heartbeats, kept in consumerFilter.json.

    heartbeat ─▶ register ─▶ a filter with the version of its client and the time of its birth
                                ├─▶ pulls of the group evaluate it
                                └─▶ dispatch sets its bits in the bit map of each message that passes it

Versions only grow: a heartbeat that is older than the filter does not change it. A filter whose group has lost all
members is dead, and is kept for `filterDataCleanTimeSpan`: messages that arrive meanwhile are marked for it as well.
A filter is compiled when it is registered or, if it was loaded from the file, when it is first needed.

A bit map is used for messages that were stored after the birth of a filter. So no message that was dispatched before
the filter existed may have a later store time: times of birth are stamps of the store's clock.

Java: ConsumerFilterManager, ConsumerFilterData, CommitLogDispatcherCalcBitMap.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from kourou.broker import subscriptions
from kourou.broker.bloom import Bloom, mask_of
from kourou.broker.settings import BrokerSettings
from kourou.broker.sql92 import Compiler, Expression, ExpressionError
from kourou.protocol.bodies import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
    SubscriptionData,
)
from kourou.protocol.names import shown
from kourou.protocol.record import Scanner
from kourou.store.consume_queue_ext import Unit
from kourou.store.wall_clock import WallClock

log = logging.getLogger(__name__)

SQL92: Final = "SQL92"

BIT_MAP_STEPS_MAX: Final = 128
"""Steps of all filters of a topic together. If they need more, its messages get no bit map, and pulls evaluate them."""

LOADED_DEAD_FOR_MS: Final = 30_000
CLEAN_EVERY_MS: Final = 10_000
FILTERS_INTERVAL_MS: Final = 10_000
"""How long changes gather before the file is written."""

_FILTER_SIZE: Final = 1_000
_STEP_SIZE: Final = 500
"""Bytes of memory that a filter takes, and each step of its expression; both are estimates on the safe side."""


@dataclass(slots=True, eq=False)
class ConsumerFilter:
    """The filter of a group for a topic."""

    topic: str
    group: str
    text: str
    expression_type: str
    version: int  # subVersion of the subscription
    born_ms: int
    positions: list[int]  # of its bits
    mask: int  # the same as a number
    bits: int  # in a bit map
    dead_ms: int = 0
    expression: Expression | None = None  # None: not compiled yet

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms

    @property
    def size(self) -> int:
        """Bytes of memory, roughly."""
        steps = 0 if self.expression is None else self.expression.steps
        return _FILTER_SIZE + len(self.text) + _STEP_SIZE * steps

    def may_pass(self, unit: Unit) -> bool:
        """May a message pass, by its bit map?"""
        if unit.stored_ms <= self.born_ms or len(unit.bit_map) * 8 != self.bits:
            return True
        return int.from_bytes(unit.bit_map, "little") & self.mask == self.mask

    def body(self) -> ConsumerFilterData:
        return ConsumerFilterData(
            consumer_group=self.group,
            topic=self.topic,
            expression=self.text,
            expression_type=self.expression_type,
            born_time=self.born_ms,
            dead_time=self.dead_ms,
            dead=self.is_dead,
            client_version=self.version,
            bloom_filter_data=BloomFilterData(bit_num=self.bits, bit_pos=self.positions),
        )


class ConsumerFilters:
    """All filters of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        saved: ConsumerFilterWrapper | None,
        touch: Callable[[], None],
        clock: WallClock,
        now_ms: int,
    ) -> None:
        """`touch` is called after each change, so that it is saved."""
        self._settings = settings
        self._touch = touch
        self._clock = clock
        self._compiler = Compiler()
        self._bloom = Bloom(settings.bloom_error_percent, settings.bloom_expected)
        self._by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}  # by group
        self._size = 0  # bytes of memory, roughly
        self.fullness: str | None = None  # why the last new filter was not registered, if the limit was reached
        self._clean_ms = now_ms
        if saved is not None:
            self._load(saved, clock.at(now_ms))

    def _load(self, saved: ConsumerFilterWrapper, wall_ms: int) -> None:
        bloom = self._bloom
        by_topic = saved.filter_data_by_topic.values()
        entries = [data for by_group in by_topic for data in by_group.group_filter_data.values()]
        for data in entries:
            bits = data.bloom_filter_data
            if bits is None or (bits.bit_num, len(bits.bit_pos)) != (bloom.bits, bloom.bits_per_filter):
                log.warning("the filters of consumers are registered again, because the size of bit maps has changed")
                return
        for data in entries:
            if data.topic is None or data.consumer_group is None or not data.expression:
                continue
            loaded = self._make(data.topic, data.consumer_group, data.expression, data.expression_type or "", 0)
            loaded.version, loaded.born_ms = data.client_version, data.born_time
            loaded.dead_ms = data.dead_time or max(data.born_time, wall_ms - LOADED_DEAD_FOR_MS)
            self._add(loaded)

    # ── Looking up ────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        by_group = self._by_topic.get(topic)
        return None if by_group is None else by_group.get(group)

    def compile(self, text: str | None, expression_type: str | None) -> Expression:
        """Raises ExpressionError."""
        if expression_type != SQL92:
            given = (expression_type or "")[:40]
            raise ExpressionError(f"unknown expression type {given!r}: use TAG or SQL92")
        return self._compiler.compile(text or "")

    def expression_of(self, found: ConsumerFilter) -> Expression | None:
        """The compiled expression of a filter. A filter that no longer compiles is removed."""
        if found.expression is None:
            try:
                expression = self.compile(found.text, found.expression_type)
            except ExpressionError as error:
                log.warning("filter removed group=%s topic=%s: %s", shown(found.group), shown(found.topic), error)
                self._remove(found)
                return None
            self._size -= found.size
            found.expression = expression
            self._size += found.size
        return found.expression

    # ── Heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, group: str, wanted: Iterable[SubscriptionData], now_ms: int) -> Iterator[None]:
        """A heartbeat has the subscriptions of a group. The iterator pauses after each expression."""
        topics = set()
        for subscription in wanted:
            if subscription.topic is not None and not subscriptions.is_by_tag(subscription.expression_type):
                topics.add(subscription.topic)
                self._register(group, subscription.topic, subscription, now_ms)
                yield
        for topic in self._topics_of.get(group, set()) - topics:
            self._die(self._by_topic[topic][group], now_ms)

    def _register(self, group: str, topic: str, wanted: SubscriptionData, now_ms: int) -> None:
        text, expression_type = wanted.sub_string or "", wanted.expression_type or ""
        if not text:
            return
        old = self.get(topic, group)
        if old is not None:
            if wanted.sub_version < old.version:
                return
            if wanted.sub_version == old.version or (old.text, old.expression_type) == (text, expression_type):
                self._renew(old, wanted.sub_version)
                return
        try:
            expression = self.compile(text, expression_type)
        except ExpressionError as error:
            log.warning("filter not registered group=%s topic=%s: %s", shown(group), shown(topic), error)
            if old is not None:
                self._remove(old)
            return
        new = self._make(topic, group, text, expression_type, self._clock.stamp(now_ms))
        new.version, new.expression = wanted.sub_version, expression
        if old is not None:
            self._remove(old)
        if self._has_room(new):
            self._add(new)
            self._touch()
            log.info("filter registered group=%s topic=%s: %s", shown(group), shown(topic), shown(text))

    def _renew(self, old: ConsumerFilter, version: int) -> None:
        if version != old.version or old.is_dead:
            old.version = version
            old.dead_ms = 0
            self._touch()
        self.expression_of(old)

    def _has_room(self, new: ConsumerFilter) -> bool:
        limit = self._settings.filter_memory_max
        if self._size + new.size > limit:
            for dead in [one for one in self._all() if one.is_dead]:
                self._remove(dead)
        is_room = self._size + new.size <= limit
        self.fullness = None
        if not is_room:
            self.fullness = (
                f"all filters take {self._size} bytes of memory, the limit is {limit} (maxConsumerFilterMemory)"
            )
            log.warning(
                "filter not registered group=%s topic=%s: %s", shown(new.group), shown(new.topic), self.fullness
            )
        return is_room

    def unregister(self, group: str, now_ms: int) -> None:
        """The last member of a group has left."""
        for topic in self._topics_of.get(group, ()):
            self._die(self._by_topic[topic][group], now_ms)

    def _die(self, found: ConsumerFilter, now_ms: int) -> None:
        if not found.is_dead:
            found.dead_ms = max(self._clock.at(now_ms), found.born_ms)
            self._touch()

    # ── Dispatch ──────────────────────────────────────────────────────────────────────────────────────────────────

    def bit_map_of(self, scanner: Scanner) -> bytes:
        """The bits of all filters that the record passes at which a scanner stands; empty: no bit map."""
        if not self._settings.filter_bit_map or not self._by_topic:
            return b""
        by_group = self._by_topic.get(scanner.topic.decode("utf-8", "replace"))
        if by_group is None:
            return b""
        steps = 0
        for one in by_group.values():
            if one.expression is None:
                self.expression_of(one)  # one for a message: compiling takes longer than evaluating
                return b""
            steps += one.expression.steps
        if steps > BIT_MAP_STEPS_MAX:
            return b""
        properties = scanner.message().properties
        mask = 0
        for one in by_group.values():
            if one.expression is not None and one.expression.matches(properties):
                mask |= one.mask
        return self._bloom.bit_map(mask)

    # ── The table ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _make(self, topic: str, group: str, text: str, expression_type: str, born_ms: int) -> ConsumerFilter:
        positions = self._bloom.positions(group, topic)
        mask = mask_of(positions)
        return ConsumerFilter(topic, group, text, expression_type, 0, born_ms, positions, mask, self._bloom.bits)

    def _all(self) -> Iterator[ConsumerFilter]:
        for by_group in self._by_topic.values():
            yield from by_group.values()

    def _add(self, new: ConsumerFilter) -> None:
        self._by_topic.setdefault(new.topic, {})[new.group] = new
        self._topics_of.setdefault(new.group, set()).add(new.topic)
        self._size += new.size

    def _remove(self, old: ConsumerFilter) -> None:
        by_group, topics = self._by_topic[old.topic], self._topics_of[old.group]
        del by_group[old.group]
        if not by_group:
            del self._by_topic[old.topic]
        topics.discard(old.topic)
        if not topics:
            del self._topics_of[old.group]
        self._size -= old.size
        self._touch()

    def due_ms(self, _now_ms: int) -> int | None:
        """When to call `clean` next; None: there are no filters."""
        return self._clean_ms if self._by_topic else None

    def clean(self, now_ms: int) -> None:
        """Remove filters that have been dead for long."""
        if now_ms < self._clean_ms:
            return
        self._clean_ms = now_ms + CLEAN_EVERY_MS
        before_ms = self._clock.at(now_ms) - self._settings.filter_clean_ms
        for old in [one for one in self._all() if one.is_dead and one.dead_ms <= before_ms]:
            self._remove(old)
            log.info("filter removed group=%s topic=%s: the group has no members", shown(old.group), shown(old.topic))

    def wrapper(self) -> ConsumerFilterWrapper:
        """The table as it is saved."""
        return ConsumerFilterWrapper(
            filter_data_by_topic={
                topic: FilterDataMapByTopic(
                    topic=topic, group_filter_data={group: one.body() for group, one in by_group.items()}
                )
                for topic, by_group in self._by_topic.items()
            }
        )
