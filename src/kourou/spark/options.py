"""Options of a reader or writer: found by name, checked, with a one-line error for each mistake.

Spark gives all options as text, and their names in any case.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from kourou.spark.errors import OptionError

_SIZE: Final = re.compile(r"(\d+)\s*(?:([kmg])i?b?|b)?", re.IGNORECASE)
_TIME_DIGITS: Final = 15  # of a time in milliseconds: a larger number would be microseconds, or invalid
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


KAFKA: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "namesrv, the addresses of name servers",
    "subscribe": "topics",
    "subscribepattern": "topicPattern",
    "startingoffsetsbytimestamp": 'startingTimestamp, by topic: {"orders": 1714564800000}',
    "endingoffsetsbytimestamp": 'endingTimestamp, by topic: {"orders": 1714564800000}',
    "startingoffsetsbytimestampstrategy": "nothing: a read after the last message starts at the end",
    "kafka.group.id": "group",
    "groupidprefix": "group",
    "includeheaders": "nothing: properties is always a column",
    "kafkaconsumer.polltimeoutms": "requestTimeout",
    "fetchoffset.numretries": "retryTimeout, a duration",
    "fetchoffset.retryintervalms": "retryTimeout, a duration",
    "kafka.security.protocol": "tls, and accessKey with secretKey",
    "kafka.sasl.jaas.config": "accessKey with secretKey",
    "kafka.sasl.mechanism": "accessKey with secretKey",
    "kafka.ssl.truststore.location": "tlsTrust, a file of certificates",
    "kafka.ssl.keystore.location": "tlsCert and tlsKey",
}
"""Options of Spark's Kafka source and sink, in lower case, and what to use instead."""


def _hint(name: str, names: Mapping[str, str]) -> str:
    """A hint for an unknown option; `names` are the known ones, by their names in lower case."""
    if name in KAFKA:
        return f"this is an option of the Kafka source; use {KAFKA[name]}"
    if name.startswith("kafka."):
        return f"this is an option of the Kafka source; the options are {', '.join(sorted(names.values()))}"
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {names[near[0]]}?" if near else f"there are {', '.join(sorted(names.values()))}"


def _time_ms(text: str) -> int | None:
    if text.isascii() and text.isdigit() and len(text) <= _TIME_DIGITS:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def canonical(given: Mapping[str, str], known: Iterable[str]) -> dict[str, str]:
    """The options by their usual names. Spark takes names in any case; unknown ones stay as they are."""
    names = {name.lower(): name for name in known}
    return {names.get(name.lower(), name): value for name, value in given.items()}


class Options:
    """The options that a user gave for one data source."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str]) -> None:
        """Raises OptionError for an unknown option."""
        names = {name.lower(): name for name in known}
        self._given: dict[str, str] = {}
        for name, value in given.items():
            found = names.get(name.lower())
            if found is None:
                raise OptionError(f"no option {name}: {_hint(name.lower(), names)}")
            self._given[found] = value

    def text(self, name: str, default: str | None = None) -> str | None:
        """The text, None if it is empty or not given."""
        return self._given.get(name, "").strip() or default

    def needed(self, name: str, example: str) -> str:
        """Raises OptionError without it."""
        found = self.text(name)
        if found is None:
            raise OptionError(f'option {name} is missing: .option("{name}", "{example}")')
        return found

    def names(self, name: str) -> list[str] | None:
        """Names, separated by commas."""
        found = self.text(name)
        return None if found is None else [part for part in re.split(r"[,\s]+", found) if part]

    def flag(self, name: str, default: bool) -> bool:
        found = self.text(name)
        if found is None:
            return default
        if found.lower() not in ("true", "false"):
            raise OptionError(f"option {name} must be true or false, not {found!r}")
        return found.lower() == "true"

    def number(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        found = self.text(name)
        if found is None:
            return default
        if not (found.isascii() and found.isdigit()) or int(found) < least:
            raise OptionError(f"option {name} must be a number of at least {least}, not {found!r}")
        return int(found)

    def size(self, name: str, default: int | None = None, least: int = 1) -> int | None:
        """Bytes: 1000, 64k, 128m, 2g."""
        found = self.text(name)
        if found is None:
            return default
        match = _SIZE.fullmatch(found)
        if match is None:
            raise OptionError(f"option {name} must be a size such as 64m, not {found!r}")
        size = int(match[1]) * _UNITS[(match[2] or "").lower()]
        if size < least:
            raise OptionError(f"option {name} must be at least {least} bytes, not {found!r}")
        return size

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        found = (self.text(name) or default).lower()
        if found not in choices:
            raise OptionError(f"option {name} must be one of {', '.join(choices)}, not {found!r}")
        return found

    def time_ms(self, name: str) -> int | None:
        """Milliseconds since 1970, or a date and time; without a zone, it is UTC."""
        found = self.text(name)
        if found is None:
            return None
        time_ms = _time_ms(found)
        if time_ms is None:
            raise OptionError(
                f"option {name} must be milliseconds since 1970 or a time such as 2024-05-01T12:00:00Z, not {found!r}"
            )
        return time_ms

    def times_ms(self, name: str) -> dict[str, int]:
        """Times by topic, as JSON; each a number or a text."""
        text = self.text(name) or "{}"
        try:
            given = json.loads(text)
        except ValueError as error:
            raise OptionError(f"option {name} is not valid JSON: {error}") from None
        found = {topic: None if isinstance(one, bool | float) else _time_ms(str(one)) for topic, one in given.items()}
        wrong = next((topic for topic, one in found.items() if one is None), None)
        if wrong is not None or not found:
            example = '{"orders": "2024-05-01T12:00:00Z", "payments": 1714564800000}'
            hint = "; times are by topic, not by queue" if wrong and isinstance(given[wrong], dict) else ""
            raise OptionError(f"option {name} must look like {example}, not like {text[:80]!r}{hint}")
        return {topic: one for topic, one in found.items() if one is not None}

    @staticmethod
    def is_time(text: str) -> bool:
        return _time_ms(text) is not None

    def pattern(self, name: str) -> str | None:
        """A regular expression."""
        found = self.text(name)
        if found is not None:
            try:
                re.compile(found)
            except re.error as error:
                raise OptionError(f"option {name} is not a valid regular expression: {error}") from None
        return found

    def exclusive(self, *names: str) -> None:
        """Raises OptionError if more than one of these is given."""
        given = [name for name in names if self.text(name) is not None]
        if len(given) > 1:
            raise OptionError(f"options {' and '.join(given)} can't be combined")
