"""JSON bodies of requests, read within limits.

Reading a body is one call that can't be interrupted, so how long it may take is decided before: by its size and by how
many objects are in it. The limits are properties, and each refusal names its own.

    ordinary JSON                              maxJsonBodySize, maxJsonBodyObjects
    with null members or numbers in quotes     maxLooseBodySize: it takes a detour over untyped values
    fastjson's dialect                         maxDialectBodySize: numbers and objects as keys, references
"""

from typing import TypeVar

from kourou.broker.events import Refused
from kourou.broker.settings import BrokerSettings
from kourou.protocol import fastjson
from kourou.protocol.codes import ResponseCode

B = TypeVar("B")


class RequestBodies:
    """Reads the bodies of all requests of one broker."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings

    def read(self, wanted: type[B], body: bytes) -> B:
        """Raises Refused, BodyError."""
        settings = self._settings
        if len(body) > settings.json_size_max:
            raise too_much(f"the body has {len(body)} bytes", settings.json_size_max, "maxJsonBodySize")
        objects = body.count(b"{")
        if objects > settings.json_objects_max:
            raise too_much(f"the body has {objects} objects", settings.json_objects_max, "maxJsonBodyObjects")
        try:
            return fastjson.decode(
                body, wanted, untyped_max=settings.loose_size_max, dialect_max=settings.dialect_size_max
            )
        except fastjson.TooSlowError as error:
            name = "maxDialectBodySize" if error.is_dialect else "maxLooseBodySize"
            raise Refused(ResponseCode.INVALID_PARAMETER, f"{error} ({name})") from None


def too_much(what: str, limit: int, name: str) -> Refused:
    """The refusal of what exceeds a limit: it names the property that sets the limit."""
    return Refused(ResponseCode.INVALID_PARAMETER, f"{what}, the limit is {limit} ({name})")
