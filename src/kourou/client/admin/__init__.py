"""Administration: what `mqadmin` does, as methods.

    mq.admin.topics     topics.py      list, create, delete, route, stats, permissions, order
    mq.admin.groups     groups.py      list, create, delete, progress, members, reset, clone
    mq.admin.messages   messages.py    by id, key, offset, time
    mq.admin.brokers    brokers.py     cluster, runtime, settings, counters, housekeeping, name servers, users

requests.py sends the requests. Every method raises RefusedError when a server refuses it, and TransportError
when it can't be reached.
"""

from kourou.client.admin.brokers import Brokers
from kourou.client.admin.groups import Groups, Progress
from kourou.client.admin.messages import Messages
from kourou.client.admin.requests import AdminRequests
from kourou.client.admin.topics import Topics
from kourou.client.session import Session


class Admin:
    """`mq.admin`: see the package's text."""

    def __init__(self, session: Session) -> None:
        requests = AdminRequests(session)
        self.topics = Topics(requests)
        self.groups = Groups(requests)
        self.messages = Messages(requests)
        self.brokers = Brokers(requests)


__all__ = ["Admin", "Brokers", "Groups", "Messages", "Progress", "Topics"]
