"""`kourou admin`: the commands of `mqadmin`, by their names and flags, for Kourou's brokers and Apache's.

    commands.py                                    how a command is declared
    topics.py static_topics.py light.py            the commands, by what they are about
    groups.py messages.py probes.py
    brokers.py replicas.py storage.py
    access.py exports.py raft.py

Each is a function over `kourou.client.admin` that returns its result; `commands.show_output` shows
all results: as a table for people, as JSON with --json.
"""

from kourou.cli.admin import (
    access,
    brokers,
    exports,
    groups,
    light,
    messages,
    probes,
    raft,
    replicas,
    static_topics,
    storage,
    topics,
)
from kourou.cli.admin.commands import app

__all__ = [
    "access",
    "app",
    "brokers",
    "exports",
    "groups",
    "light",
    "messages",
    "probes",
    "raft",
    "replicas",
    "static_topics",
    "storage",
    "topics",
]
