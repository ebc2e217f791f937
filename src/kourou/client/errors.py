"""What can go wrong on the client's side, before a broker was asked or when none could be.

A broker's refusal is a `kourou.protocol.errors.RefusedError`, a broken connection a `kourou.net.errors.TransportError`.
All of them are `KourouError`s and say whether trying again may help (`retriable`).
"""

from kourou.protocol.errors import KourouError


class ClientError(KourouError):
    """The client could not do what it was asked for."""


class NoNameServerError(ClientError):
    """No name server answers. The text has the addresses that were tried, and what each said."""

    retriable = True


class NotANameServerError(NoNameServerError):
    """What answers at the address is no name server: most often it is a broker."""

    retriable = False

    def __init__(self, addresses: str) -> None:
        super().__init__(
            f"{addresses} is no name server: it does not know the requests of one, as a broker would not. "
            "Give the address of the name server (port 9876 by default), not that of a broker (10911)"
        )


class NoRouteError(ClientError):
    """No broker serves the topic, as far as the name server knows."""

    retriable = True

    def __init__(self, topic: str, name_servers: str, hint: str = "") -> None:
        super().__init__(
            f"no route to topic {topic!r} at {name_servers}: "
            + (hint or "create the topic, or let brokers create topics on the first send (autoCreateTopicEnable=true)")
        )
        self.topic = topic


class NoBrokerError(ClientError):
    """The route names a broker group, but no member of it that could serve the request."""

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
    """This client has a consumer of this group already. Its queues are shared among clients, not within one."""


class NoReplyError(ClientError):
    """Nobody replied to a request in time."""

    retriable = True


class TransactionFailedError(ClientError):
    """A half message could not be stored safely; the transaction is rolled back."""
