"""The table of requests: a class for the header of each, and `REQUESTS` with all that is known of every code.

table.py        how a header is declared, read and written
nameserver.py   what brokers, clients and admins ask a name server
"""

from kourou.protocol.headers.nameserver import *  # noqa: F403
from kourou.protocol.headers.table import *  # noqa: F403
