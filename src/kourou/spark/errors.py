"""What reaches a user of the data sources, in one line."""

from kourou.protocol.errors import KourouError


class SparkError(KourouError):
    """A data source could not do what it was asked for."""


class OptionError(SparkError):
    """An option that is missing, unknown, or makes no sense."""


class DataLossError(SparkError):
    """Messages that were to be read are gone, or stored bytes are no records."""


class UnreachableError(SparkError):
    """No name server or broker answered, however often it was asked."""

    retriable = True
