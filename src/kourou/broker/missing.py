"""Features of Apache's broker that are not here yet, although properties that would turn them on are known.

The properties are accepted, so that a broker.conf of Apache's works, and shown as they were given. So a refusal must
not blame them: it says that the feature is missing.
"""

from collections.abc import Mapping
from typing import Final

TIMERS: Final = "timerWheelEnable"

_FEATURES: Final = {
    TIMERS: ("true", "timers, for delays other than the delay levels,"),
    "recallMessageEnable": ("true", "recalling messages"),
    "enableLmq": ("true", "light message queues"),
    "enableMultiDispatch": ("true", "one message in several queues"),
}
"""By the property: the value that turns it on, and what it is."""


def refusal(key: str) -> str:
    """Why a request for the feature of this property is refused."""
    return f"{_FEATURES[key][1]} are not in this broker yet, whatever {key} says"


def without_effect(given: Mapping[str, str]) -> list[str]:
    """What to tell whoever turned such a feature on, a sentence for each property."""
    return [
        f"{key}={given[key].strip()} has no effect: {name.rstrip(',')} are not in this broker yet"
        for key, (value, name) in _FEATURES.items()
        if given.get(key, "").strip().lower() == value
    ]
