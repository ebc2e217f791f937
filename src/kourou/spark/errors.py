"""The errors for users of the data sources: one line each."""

from kourou.protocol.errors import KourouError


class SparkError(KourouError):
    """A data source could not do its work."""


class OptionError(SparkError):
    """An option that is missing, unknown or invalid."""


class DataLossError(SparkError):
    """Requested messages have expired, or stored bytes are not records."""


class UnreachableError(SparkError):
    """No name server or broker answered, despite retries."""

    retriable = True
