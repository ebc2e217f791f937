"""Which messages of a queue a pull gets: by tag, or by an expression over their properties.

By tag, entries of the queue are compared, and records are not read. By expression, the bit map of a message decides
whether it may pass, if there is one (`consumer_filters.py`), and then the properties of its record. A pull over
messages that do not match stops after some of them and returns where to continue, so that it does not block the loop.

Java: PullMessageProcessor, ExpressionMessageFilter, ExpressionForRetryMessageFilter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kourou.broker import names, subscriptions
from kourou.broker.consumer_filters import ConsumerFilter, ConsumerFilters
from kourou.broker.events import Refused
from kourou.broker.settings import BrokerSettings
from kourou.broker.sql92 import STEPS_MAX, Expression, ExpressionError
from kourou.protocol.bodies import SubscriptionData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.properties import Property
from kourou.protocol.record import CorruptRecordError, decode_record
from kourou.store.consume_queue_ext import Unit

PULL_STEPS_MAX: Final = 10_000
"""Steps of all evaluations of one pull: some milliseconds."""

RECORD_STEPS: Final = 10
"""Steps that reading a record counts for, beside those of the expression."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """The interface for `Reader.get`."""

    accepts: Callable[[int], bool] | None = None  # the hash of the tags
    accepts_unit: Callable[[Unit], bool] | None = None
    accepts_record: Callable[[memoryview], bool] | None = None
    scan_max: int | None = None  # entries that one read looks at
    registered: ConsumerFilter | None = None  # whose expression it evaluates


ALL: Final = MessageFilter()


class Filtering:
    """Makes the filters of pulls."""

    def __init__(self, settings: BrokerSettings, filters: ConsumerFilters) -> None:
        self._settings = settings
        self._filters = filters

    def of_pull(
        self, subscription: SubscriptionData, group: str, sub_version: int, *, is_inline: bool
    ) -> MessageFilter:
        """The filter of a pull; `is_inline`: the pull has the subscription with it. Raises Refused."""
        if subscriptions.is_by_tag(subscription.expression_type):
            return by_tag(subscription)
        topic = subscription.topic or ""
        if is_inline:
            return self._by_expression(self._compile_inline(subscription), topic, None)
        found = self._registered(topic, group, subscription, sub_version)
        self.check_enabled(subscription)
        expression = self._filters.expression_of(found)
        if expression is None:
            raise self._not_registered(subscription)
        return self._by_expression(expression, topic, found)

    def renewed(self, wanted: MessageFilter) -> MessageFilter:
        """The filter of a pull that has waited: the group may have registered another expression meanwhile."""
        old = wanted.registered
        if old is None:
            return wanted
        found = self._filters.get(old.topic, old.group)
        if found is None or found is old:
            return wanted
        expression = self._filters.expression_of(found)
        return wanted if expression is None else self._by_expression(expression, found.topic, found)

    def check_config(self, subscription: SubscriptionData) -> None:
        """CHECK_CLIENT_CONFIG. Raises Refused."""
        if not subscriptions.is_by_tag(subscription.expression_type):
            self._compile_inline(subscription, "")

    def check_enabled(self, subscription: SubscriptionData) -> None:
        """Raises Refused."""
        if not self._settings.property_filter:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}: "
                "set enablePropertyFilter=true",
            )

    def _compile_inline(
        self, subscription: SubscriptionData, what: str = "parse the consumer's subscription failed: "
    ) -> Expression:
        self.check_enabled(subscription)
        try:
            return self._filters.compile(subscription.sub_string, subscription.expression_type)
        except ExpressionError as error:
            raise Refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"{what}{error}") from None

    def _registered(self, topic: str, group: str, subscription: SubscriptionData, sub_version: int) -> ConsumerFilter:
        found = self._filters.get(topic, group)
        if found is None:
            raise self._not_registered(subscription)
        if found.version < sub_version:
            raise Refused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        return found

    def _not_registered(self, subscription: SubscriptionData) -> Refused:
        try:
            self._filters.compile(subscription.sub_string, subscription.expression_type)
            reason = self._filters.fullness or "the next heartbeat will register it"
        except ExpressionError as error:
            reason = str(error)
        return Refused(
            ResponseCode.FILTER_DATA_NOT_EXIST,
            f"The broker's consumer filter data is not exist!Your expression may be wrong! {reason}",
        )

    def _by_expression(self, expression: Expression, topic: str, found: ConsumerFilter | None) -> MessageFilter:
        if self._settings.filter_retries and topic.startswith(names.RETRY_PREFIX):
            group = topic.removeprefix(names.RETRY_PREFIX)
            return MessageFilter(None, None, self._by_origin(group), _scan_max(STEPS_MAX), found)
        accepts_unit = None if found is None else found.may_pass
        return MessageFilter(None, accepts_unit, _passes(expression), _scan_max(expression.steps), found)

    def _by_origin(self, group: str) -> Callable[[memoryview], bool]:
        """A message of a retry topic is filtered as one of the topic that it comes from."""

        def accepts(record: memoryview) -> bool:
            properties = _properties(record)
            found = self._filters.get(properties.get(Property.RETRY_TOPIC, ""), group)
            expression = None if found is None else self._filters.expression_of(found)
            return expression is None or expression.matches(properties)

        return accepts


def by_tag(subscription: SubscriptionData) -> MessageFilter:
    codes = subscriptions.codes(subscription)
    return ALL if codes is None else MessageFilter(codes.__contains__)


def _scan_max(steps: int) -> int:
    return max(PULL_STEPS_MAX // (RECORD_STEPS + steps), 1)


def _passes(expression: Expression) -> Callable[[memoryview], bool]:
    return lambda record: expression.matches(_properties(record))


def _properties(record: memoryview) -> dict[str, str]:
    try:
        return decode_record(record).properties
    except CorruptRecordError:
        return {}
