"""Java's integers as annotated types, with their ranges."""

from typing import Annotated

from msgspec import Meta

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's `int`."""

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's `long`."""
