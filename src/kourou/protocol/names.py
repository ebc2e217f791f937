"""Makes names from peers fit for log lines."""

from typing import Final

SHOWN_MAX: Final = 128
"""The length of a name in a log line. Apache allows 127 characters for a topic and 255 for a group."""


def shown(name: object) -> str:
    """The name on one line, truncated, with unprintable characters escaped.

    A name from a peer may contain line breaks that forge log lines, terminal codes, or a megabyte of text.
    """
    text = str(name)
    cut = text[:SHOWN_MAX]
    if not cut.isprintable():
        cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)
    return cut if len(text) <= SHOWN_MAX else f"{cut}… ({len(text)} characters)"
