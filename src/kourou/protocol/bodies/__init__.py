"""JSON bodies as values: routes, registrations, heartbeats, settings, statistics.

One struct per shape, under the name that Java gives it:

    base.py         what all bodies share
    topics.py       topics, queues, tables of topics, static mappings
    routes.py       routes, clusters, registrations of brokers
    clients.py      heartbeats, connections, subscriptions, locks, assignments, acknowledgements
    groups.py       settings of consumer groups
    filters.py      filters of consumers, in their file
    consumption.py  offsets and statistics of topics and consumers
    cluster.py      replication, users and access rules, light topics

Attributes are snake_case here and camelCase on the wire; defaults are Java's. What may be null in Java is None here and
left out when written; every other field is written even when it has its default, because peers in other languages
expect it there. Unknown fields are ignored when read.

Bodies are values: frozen, compared by content. `msgspec.structs.replace` makes a changed one.
"""

from kourou.protocol.bodies.base import *  # noqa: F403
from kourou.protocol.bodies.clients import *  # noqa: F403
from kourou.protocol.bodies.cluster import *  # noqa: F403
from kourou.protocol.bodies.consumption import *  # noqa: F403
from kourou.protocol.bodies.filters import *  # noqa: F403
from kourou.protocol.bodies.groups import *  # noqa: F403
from kourou.protocol.bodies.routes import *  # noqa: F403
from kourou.protocol.bodies.topics import *  # noqa: F403
