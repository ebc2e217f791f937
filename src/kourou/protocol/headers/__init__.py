"""The table of requests: a class for the header of each, and `REQUESTS` with all that is known of every code.

table.py        how a header is declared, read and written
client.py       between clients and brokers
nameserver.py   from clients, admins and brokers to name servers
admin.py        from admins to brokers, and from slaves to masters
controller.py   from brokers and admins to controllers
"""

from kourou.protocol.headers.admin import *  # noqa: F403
from kourou.protocol.headers.client import *  # noqa: F403
from kourou.protocol.headers.controller import *  # noqa: F403
from kourou.protocol.headers.nameserver import *  # noqa: F403
from kourou.protocol.headers.table import *  # noqa: F403
