"""The API, a module per part. Each has a tuple WAYS; `all_ways` joins them."""

from kourou.console.calls import Way
from kourou.console.routes import (
    acl,
    audit,
    brokers,
    clients,
    dead,
    events,
    groups,
    journey,
    messages,
    overview,
    session,
    topics,
    waiting,
)


def all_ways() -> tuple[Way, ...]:
    """All routes."""
    parts = (session, overview, topics, messages, groups, journey, dead, waiting, brokers, clients, acl, audit, events)
    return tuple(way for part in parts for way in part.WAYS)
