"""What all bodies share: how they are written and read, and which fields are written."""

from typing import Any, Self, dataclass_transform

import msgspec
from msgspec import field

from kourou.protocol import fastjson


def always(default: Any, /, name: str | None = None) -> Any:
    """A default that is written too; msgspec leaves out only values that equal a default it can see.

    A type stands for what it makes without arguments: `dict` for a new dict. `name` is the key on the wire where it is
    not the camelCase of the attribute.
    """
    if isinstance(default, type):
        return field(default_factory=lambda: default(), name=name)
    return field(default_factory=lambda: default, name=name)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Body(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all JSON bodies. Not tracked by the garbage collector: bodies are trees."""

    @classmethod
    def decode(
        cls, data: bytes, *, untyped_max: int | None = None, dialect_max: int | None = None, trusted: bool = False
    ) -> Self:
        """The body in these bytes. Raises BodyError. The options are those of `fastjson.decode`."""
        return fastjson.decode(data, cls, untyped_max=untyped_max, dialect_max=dialect_max, trusted=trusted)

    def encode(self, *, standard: bool = False) -> bytes:
        """JSON as fastjson writes it or, with `standard`, as everyone else reads it."""
        return fastjson.encode(self, standard=standard)
