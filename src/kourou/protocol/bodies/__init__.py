"""JSON bodies as values: routes, registrations, heartbeats, settings, statistics.

One struct per shape, under the name that Java gives it:

    base.py         what all bodies share
    topics.py       topics, queues, topic tables, static mappings
    routes.py       routes, clusters, registrations of brokers
    clients.py      heartbeats, connections, subscriptions, locks, assignments, acknowledgements
    groups.py       settings of consumer groups
    filters.py      SQL filters of consumers, as stored in a file
    consumption.py  offsets and statistics of topics and consumers
    cluster.py      replication, users and access rules, lite topics
    raft.py         the state of Raft groups

Attributes are snake_case here and camelCase on the wire; defaults are Java's. A field that is nullable in Java is None
here and is omitted when written; every other field is written even if it has its default, because clients in other
languages expect it. Unknown fields are ignored.

Bodies are immutable values, compared by content. `msgspec.structs.replace` makes a changed copy.
"""

from kourou.protocol.bodies.base import *  # noqa: F403
from kourou.protocol.bodies.clients import *  # noqa: F403
from kourou.protocol.bodies.cluster import *  # noqa: F403
from kourou.protocol.bodies.consumption import *  # noqa: F403
from kourou.protocol.bodies.filters import *  # noqa: F403
from kourou.protocol.bodies.groups import *  # noqa: F403
from kourou.protocol.bodies.raft import *  # noqa: F403
from kourou.protocol.bodies.routes import *  # noqa: F403
from kourou.protocol.bodies.topics import *  # noqa: F403
