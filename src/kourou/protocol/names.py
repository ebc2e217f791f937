"""Names that peers gave, as a log line may have them."""

from typing import Final

SHOWN_MAX: Final = 128
"""Characters of a name in a log line. Apache allows 127 for a topic and 255 for a group."""


def shown(name: object) -> str:
    """The text of `name` on one line and not too long: what doesn't print is escaped, and the end is cut off.

    A name may hold line breaks that would forge a line of the log, terminal codes, or a megabyte of anything.
    """
    text = str(name)
    cut = text[:SHOWN_MAX]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= SHOWN_MAX else f"{cut}… ({len(text)} characters)"
