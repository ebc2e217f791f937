"""Makes text safe to display on a terminal.

Names, tags, remarks and bodies come from brokers, producers and files. A terminal acts on some characters: an escape
sequence moves the cursor, hides a line or changes the title of the window. These functions replace every character that
Unicode does not call printable: control characters (C0, C1 and DEL), bidirectional controls, surrogates and others.
The command line and the pipelines pass all their output through one of them.
"""

import json

LINE_ENDS_AND_TABS = "\n\t"


def printable(text: str, *, keep: str = "") -> str:
    """The text with all other characters as escapes, such as \\x1b, except those in `keep`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in text)


def printable_lines(text: str) -> str:
    """The same for several lines: line ends and tabs are kept."""
    return printable(text, keep=LINE_ENDS_AND_TABS)


def printable_json(text: str) -> str:
    """A line of JSON in which characters are escaped that JSON allows, such as DEL and C1. The value is the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\\u007f" if c == "\x7f" else json.dumps(c)[1:-1] for c in text)


__all__ = ["printable", "printable_json", "printable_lines"]
