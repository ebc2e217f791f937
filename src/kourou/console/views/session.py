"""The session, and the features of the brokers."""

import msgspec


class Feature(msgspec.Struct, frozen=True):
    """Whether the brokers have a feature; if not, `reason` says why."""

    on: bool | None
    reason: str = ""


class SessionInfo(msgspec.Struct, frozen=True):
    """The user of a session, and the available features."""

    signed_in: bool
    login: str
    user: str | None
    role: str | None
    read_only: bool
    version: str
    name_servers: list[str]
    refresh_ms: int
    features: dict[str, Feature]
