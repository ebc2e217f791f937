"""Errors of the client itself: raised before a request is sent, or because no server could be asked.

A broker's refusal is a `kourou.protocol.errors.RefusedError`, a broken connection a `kourou.net.errors.TransportError`.
All of them are `KourouError`s; `retriable` says whether another attempt may succeed.
"""

from kourou.protocol.errors import KourouError


class ClientError(KourouError):
    """Base class of the client's own errors."""


class NoNameServerError(ClientError):
    """No name server answers. The text has the addresses that were tried, with the error of each."""

    retriable = True


class NotANameServerError(NoNameServerError):
    """The server at this address is not a name server, but most often a broker."""

    retriable = False

    def __init__(self, addresses: str) -> None:
        super().__init__(
            f"{addresses} is not a name server: it refuses a name server's requests, as a broker does. "
            "Give the address of the name server (port 9876 by default), not that of a broker (10911)"
        )


class NoRouteError(ClientError):
    """The name server knows no broker that serves the topic."""

    retriable = True

    def __init__(self, topic: str, name_servers: str, hint: str = "") -> None:
        super().__init__(
            f"no route to topic {topic!r} at {name_servers}: "
            + (hint or "create the topic, or let brokers create topics on the first send (autoCreateTopicEnable=true)")
        )
        self.topic = topic


class NoBrokerError(ClientError):
    """The route has a broker group, but no member of it that can serve the request."""

    retriable = True


class ClosedError(ClientError):
    """The client, producer or consumer is closed, or not started yet."""


class InvalidNameError(ClientError):
    """A topic or group name that brokers refuse."""


class InvalidMessageError(ClientError):
    """A message that brokers refuse: empty, too large, or with parts that do not go together."""


class InvalidExpressionError(ClientError):
    """A filter expression that no broker understands."""


class GroupInUseError(ClientError):
    """This client already has a consumer of this group. A group shares its queues among clients, not within one."""


class NoReplyError(ClientError):
    """No consumer replied to a request in time."""

    retriable = True


class TransactionFailedError(ClientError):
    """A half message was not stored as durably as the broker promises; the transaction is rolled back."""
