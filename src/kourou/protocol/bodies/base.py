"""The base class of all bodies: encoding, decoding, and which fields are written."""

from typing import Any, Self, dataclass_transform

import msgspec
from msgspec import field

from kourou.protocol import fastjson


def always(default: Any, /, name: str | None = None) -> Any:
    """A default that is written to the wire; msgspec omits only values that equal a default it can see.

    A type means "call it without arguments": `dict` is a new dict. `name` is the key on the wire if it is not the
    camelCase of the attribute.
    """
    if isinstance(default, type):
        return field(default_factory=lambda: default(), name=name)
    return field(default_factory=lambda: default, name=name)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Body(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all JSON bodies. Not tracked by the garbage collector, because bodies are trees."""

    @classmethod
    def decode(
        cls, data: bytes, *, untyped_max: int | None = None, dialect_max: int | None = None, trusted: bool = False
    ) -> Self:
        """Decode a body. Raises BodyError. The options are those of `fastjson.decode`."""
        return fastjson.decode(data, cls, untyped_max=untyped_max, dialect_max=dialect_max, trusted=trusted)

    def encode(self, *, standard: bool = False) -> bytes:
        """JSON in fastjson's dialect or, with `standard`, as RFC 8259 defines it."""
        return fastjson.encode(self, standard=standard)
