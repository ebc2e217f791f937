"""The table of requests: a header class for each, and `REQUESTS`, which has an entry for every request code.

table.py         how headers are declared, decoded and encoded
client.py        from clients about themselves and their groups, and from brokers to clients
sending.py       from producers to brokers
pulling.py       from consumers that pull to brokers
popping.py       from consumers that pop to brokers
light.py         from clients and admins to brokers, about lite topics
topics.py        from admins to brokers, about topics, groups and clients
consumption.py   from admins to brokers, about the offsets of groups
broker.py        from admins to brokers, about settings, counters and files
access.py        from admins to brokers, about users and access rules
replication.py   from slaves to masters
nameserver.py    from clients, admins and brokers to name servers
controller.py    from brokers and admins to controllers
raft.py          from admins to the members of Raft groups
"""

from kourou.protocol.headers.access import *  # noqa: F403
from kourou.protocol.headers.broker import *  # noqa: F403
from kourou.protocol.headers.client import *  # noqa: F403
from kourou.protocol.headers.consumption import *  # noqa: F403
from kourou.protocol.headers.controller import *  # noqa: F403
from kourou.protocol.headers.light import *  # noqa: F403
from kourou.protocol.headers.nameserver import *  # noqa: F403
from kourou.protocol.headers.popping import *  # noqa: F403
from kourou.protocol.headers.pulling import *  # noqa: F403
from kourou.protocol.headers.raft import *  # noqa: F403
from kourou.protocol.headers.replication import *  # noqa: F403
from kourou.protocol.headers.sending import *  # noqa: F403
from kourou.protocol.headers.table import *  # noqa: F403
from kourou.protocol.headers.topics import *  # noqa: F403
