"""JSON bodies of requests, read within limits.

Reading a body is one call that can't be interrupted, so its duration is limited in advance: by its size and by the
number of its objects. The limits are properties, and each refusal names its own.

    ordinary JSON                              maxJsonBodySize, maxJsonBodyObjects
    with null members or numbers in quotes     maxLooseBodySize: it is first decoded to untyped values
    fastjson's dialect                         maxDialectBodySize: numbers and objects as keys, references
"""

from typing import TypeVar

from kourou.broker.access import Access
from kourou.broker.events import Asked, Refused
from kourou.broker.settings import BrokerSettings
from kourou.protocol import fastjson
from kourou.protocol.codes import ResponseCode
from kourou.turns import Slices, at_once

B = TypeVar("B")


class RequestBodies:
    """Reads the bodies of all requests of one broker."""

    def __init__(self, settings: BrokerSettings, access: Access) -> None:
        self._settings = settings
        self._access = access

    def read(self, wanted: type[B], asked: Asked) -> B:
        """The body of a request. Raises BodyError; Refused, also if the peer has no right to the resources in it."""
        return at_once(self.read_in_slices(wanted, asked))

    def read_in_slices(self, wanted: type[B], asked: Asked) -> Slices[B]:
        """The same for a body that may have many names."""
        body = self._decode(wanted, asked.command.body)
        yield from self._access.check_body(asked, body)
        return body

    def _decode(self, wanted: type[B], body: bytes) -> B:
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
    """The refusal of a request that exceeds a limit; it names the property that sets the limit."""
    return Refused(ResponseCode.INVALID_PARAMETER, f"{what}, the limit is {limit} ({name})")
