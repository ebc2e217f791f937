"""What can go wrong with a connection, rather than with a request."""

from kourou.protocol.errors import KourouError


class TransportError(KourouError):
    """The request may not have reached the peer, or its answer not us."""

    retriable = True


class ConnectFailedError(TransportError):
    """No connection to this address: nobody listens, the name does not resolve, TLS does not agree."""


class ConnectionLostError(TransportError):
    """The connection ended while an answer was due, or before the request could be sent."""


class RequestTimedOutError(TransportError):
    """No answer in time. The peer may still act on the request."""


class TooManyRequestsError(TransportError):
    """So many requests await their answer on this connection already that another one would not help."""
