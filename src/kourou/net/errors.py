"""Errors of connections, as opposed to errors of requests."""

from kourou.protocol.errors import KourouError


class TransportError(KourouError):
    """The request may not have reached the peer, or the answer may not have reached us."""

    retriable = True


class ConnectFailedError(TransportError):
    """The connection failed: the port is closed, the name does not resolve, or the TLS handshake failed."""


class ConnectionLostError(TransportError):
    """The connection ended while an answer was due, or before the request could be sent."""


class RequestTimedOutError(TransportError):
    """No answer in time. The peer may still act on the request."""


class TooManyRequestsError(TransportError):
    """Too many requests already await their answers on this connection."""
