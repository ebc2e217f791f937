"""Features of Apache's broker that are not here yet, although properties that would turn them on are known.

The properties are accepted, so that a broker.conf of Apache's works, and shown as they were given.
"""

from collections.abc import Mapping
from typing import Final

_FEATURES: Final = {
    "enableLmq": ("true", "light message queues"),
    "enableMultiDispatch": ("true", "one message in several queues"),
}
"""By property: the value that turns the feature on, and the name of the feature."""


def without_effect(given: Mapping[str, str]) -> list[str]:
    """The warning for each property that turns such a feature on."""
    return [
        f"{key}={given[key].strip()} has no effect: {name.rstrip(',')} are not in this broker yet"
        for key, (value, name) in _FEATURES.items()
        if given.get(key, "").strip().lower() == value
    ]
