"""Administration: what `mqadmin` does, as methods.

    mq.admin.topics       topics.py        list, create, delete, route, stats, permissions, order
    mq.admin.groups       groups.py        list, create, delete, progress, members, reset, clone
    mq.admin.messages     messages.py      by id, key, offset, time
    mq.admin.brokers      brokers.py       cluster, runtime, settings, counters, housekeeping, name servers, users
    mq.admin.controllers  controllers.py   replicas and masters; containers of brokers
    mq.admin.light        light.py         light topics
    mq.admin.raft         raft.py          Raft groups of Kourou's brokers

static_plans.py decides where the queues of static topics are; requests.py sends the requests; positions.py finds out
where groups without committed offsets are; dead_letters.py sends dead letters again. Every method raises RefusedError
when a server refuses it, and TransportError when it can't be reached.
"""

from kourou.client.admin.brokers import Brokers
from kourou.client.admin.controllers import Controllers
from kourou.client.admin.groups import Groups, Progress
from kourou.client.admin.light import LightTopics
from kourou.client.admin.messages import Messages
from kourou.client.admin.raft import Raft
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
        self.controllers = Controllers(requests)
        self.light = LightTopics(requests)
        self.raft = Raft(requests)


__all__ = ["Admin", "Brokers", "Controllers", "Groups", "LightTopics", "Messages", "Progress", "Raft", "Topics"]
