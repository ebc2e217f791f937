"""Traces in the form of OpenTelemetry: a span for each send and each processing, joined by W3C's trace context.

A producer puts `traceparent` and `tracestate` into the properties of a message; the span in which a consumer processes
it is a child of the span that sent it. Attributes have the names of OpenTelemetry's conventions for messaging. Without
the package opentelemetry-api (the extra `otel`) no spans are made; without an SDK they cost little.

These are not RocketMQ's own traces (tracing.py), which brokers and mqadmin know.
"""

from collections.abc import Container, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from kourou._version import __version__

if TYPE_CHECKING:
    from kourou.client.delivery import Delivery
    from kourou.client.outgoing import Message
    from kourou.client.results import SendResult

TRACE_PARENT, TRACE_STATE = "traceparent", "tracestate"


@cache
def _api() -> Any:
    """The tracing part of opentelemetry-api, and its propagator; None: it is not installed."""
    try:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except ImportError:
        return None
    return trace, TraceContextTextMapPropagator()


class Sending:
    """The span of one send."""

    __slots__ = ("_span", "_trace", "properties")

    def __init__(self, trace: Any, span: Any, properties: dict[str, str]) -> None:
        self._trace = trace
        self._span = span
        self.properties = properties  # for the message

    def sent(self, broker: str, queue_id: int, result: "SendResult | None" = None) -> None:
        """The message is stored, or was sent without waiting."""
        self._span.set_attribute("messaging.destination.partition.id", f"{broker}:{queue_id}")
        if result is not None:
            self._span.set_attribute("messaging.message.id", result.message_id)
        self._span.end()

    def failed(self, error: BaseException) -> None:
        _fail(self._trace, self._span, error)
        self._span.end()


def sending(topic: str, message: "Message", group: str, client_id: str) -> Sending | None:
    """Begin the span of a send; None if it is not traced. Call `sent` or `failed` of it."""
    api = _api()
    if api is None:
        return None
    trace, propagator = api
    attributes: dict[str, Any] = {
        **_common("send", topic, client_id),
        "messaging.rocketmq.client_group": group,
    }
    if isinstance(message.body, Sized):  # `Producer.draft` refuses any other type
        attributes["messaging.message.body.size"] = len(message.body)
    if message.tag:
        attributes["messaging.rocketmq.message.tag"] = message.tag
    if message.keys and isinstance(message.keys, Sequence):
        keys = [message.keys] if isinstance(message.keys, str) else list(message.keys)
        attributes["messaging.rocketmq.message.keys"] = keys
    span = _tracer(trace).start_span(f"send {topic}", kind=trace.SpanKind.PRODUCER, attributes=attributes)
    carrier: dict[str, str] = {}
    # A message may carry the context that its sender chose.
    if not isinstance(message.properties, Container) or TRACE_PARENT not in message.properties:
        propagator.inject(carrier, context=trace.set_span_in_context(span))
    return Sending(trace, span, {name: value for name, value in carrier.items() if value})


def processing(
    deliveries: "Sequence[Delivery]", group: str | None = None, client_id: str = ""
) -> AbstractContextManager[None]:
    """The span in which messages are processed, which is the current one in this context."""
    api = _api()
    if api is None or not deliveries:
        return nullcontext()
    trace, propagator = api
    return _processing(trace, propagator, deliveries, group, client_id)


@contextmanager
def _processing(
    trace: Any, propagator: Any, deliveries: "Sequence[Delivery]", group: str | None, client_id: str
) -> Iterator[None]:
    first = deliveries[0]
    attributes: dict[str, Any] = _common("process", first.topic, client_id)
    if group:
        attributes["messaging.consumer.group.name"] = group
    context, links = None, []
    if len(deliveries) == 1:
        context = _context(propagator, first)
        attributes |= {
            "messaging.message.id": first.message_id,
            "messaging.message.body.size": len(first.record.body),
            "messaging.destination.partition.id": f"{first.queue.broker_name}:{first.queue.queue_id}",
        }
        if first.tag:
            attributes["messaging.rocketmq.message.tag"] = first.tag
        if first.keys:
            attributes["messaging.rocketmq.message.keys"] = first.keys
    else:
        attributes["messaging.batch.message_count"] = len(deliveries)
        senders = [trace.get_current_span(_context(propagator, one)).get_span_context() for one in deliveries]
        links = [trace.Link(sender) for sender in senders if sender.is_valid]
    with _tracer(trace).start_as_current_span(
        f"process {first.topic}",
        context=context,
        kind=trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except BaseException as error:
            _fail(trace, span, error)
            raise


def _context(propagator: Any, delivery: "Delivery") -> Any:
    """The context in the properties of a message; an invalid one is ignored."""
    return propagator.extract({name: delivery.properties.get(name, "") for name in (TRACE_PARENT, TRACE_STATE)})


def _common(operation: str, topic: str, client_id: str) -> dict[str, Any]:
    found = {
        "messaging.system": "rocketmq",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }
    return {**found, "messaging.client.id": client_id} if client_id else found


def _tracer(trace: Any) -> Any:
    return trace.get_tracer("kourou", __version__)


def _fail(trace: Any, span: Any, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(trace.StatusCode.ERROR, str(error))
