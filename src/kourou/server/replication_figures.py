"""The figures of a broker's role and replication for Prometheus.

kourou_broker_role                1, with the label `role`
kourou_replicas_in_sync           brokers in sync, including the master (master)
kourou_replicas_needed            brokers that must have a message before its sender is answered (master)
kourou_slave_lag_bytes, _seconds  for each connected slave: unacknowledged bytes, and for how long (master)
kourou_slave_in_sync              for each connected slave (master)
kourou_ha_refused_total           connections to the HA port that were refused
kourou_replication_lag_bytes      bytes that this broker is known to be behind its master (slave)
kourou_replication_lag_seconds    age of the last copied message while it is behind; without a master, the time since
                                  the master was last heard (slave)
kourou_replication_connected      1 while it follows a master (slave)

A member of a Raft group has these instead of those of masters and slaves:

kourou_raft_term                  the term of the group, as this member knows it
kourou_raft_has_leader            1 while this member knows the leader
kourou_raft_commit_lag_bytes      bytes of its log that are not committed
kourou_raft_elections_total       elections that this member has won
kourou_raft_connected             for each other member: 1 while there is a connection to it
"""

from collections.abc import Iterator

from kourou.broker.machine import Broker
from kourou.broker.raft_group import RaftGroup
from kourou.replication.follower import Follower
from kourou.replication.master import Master
from kourou.server.figures import Figure


def replication_figures(broker: Broker, now_ms: int) -> Iterator[Figure]:
    replication = broker.replication
    yield Figure("kourou_broker_role", "The role of this broker.", [((broker.settings.role.value,), 1)], ("role",))
    text = "Connections to the HA port that were refused."
    yield Figure("kourou_ha_refused_total", text, [((), replication.refused)], kind="counter")
    if broker.raft_group is not None:
        yield from _of_group(broker.raft_group)
        return
    if replication.master is not None:
        needed = replication.needed
        yield Figure("kourou_replicas_in_sync", "Brokers in sync, including this one.", [((), replication.in_sync)])
        yield Figure("kourou_replicas_needed", "Brokers that must have a message before its answer.", [((), needed)])
        yield from _of_master(replication.master, broker.store.log.end, now_ms)
    if replication.follower is not None:
        yield from _of_slave(broker, replication.follower, now_ms)


def _of_group(group: RaftGroup) -> Iterator[Figure]:
    node, connected = group.raft.node, group.transport.connected
    yield Figure("kourou_raft_term", "The term of the Raft group.", [((), node.term)])
    yield Figure("kourou_raft_has_leader", "1 while this member knows the leader.", [((), float(bool(group.leader)))])
    yield Figure("kourou_raft_commit_lag_bytes", "Bytes of the log that are not committed.", [((), group.commit_lag)])
    yield Figure("kourou_raft_elections_total", "Elections won.", [((), group.elections)], kind="counter")
    rows = [((peer,), float(peer in connected)) for peer in node.peers]
    yield Figure("kourou_raft_connected", "1 while there is a connection to a member.", rows, ("member",))


def _of_master(master: Master, end: int, now_ms: int) -> Iterator[Figure]:
    slaves = [(slave, (slave.link.address,)) for slave in master.slaves.values() if slave.has_asked]
    label = ("slave",)
    behind = [(name, float(max(end - slave.acknowledged, 0))) for slave, name in slaves]
    yield Figure("kourou_slave_lag_bytes", "Bytes of the log that a slave has not acknowledged.", behind, label)
    seconds = [(name, master.lag_ms(slave, now_ms) / 1000) for slave, name in slaves]
    yield Figure("kourou_slave_lag_seconds", "For how long a slave has been behind.", seconds, label)
    in_sync = [(name, float(master.is_in_sync(slave))) for slave, name in slaves]
    yield Figure("kourou_slave_in_sync", "1 if a slave is in sync.", in_sync, label)


def _of_slave(broker: Broker, follower: Follower, now_ms: int) -> Iterator[Figure]:
    text = "Bytes of the log that this broker is known to be behind its master."
    yield Figure("kourou_replication_lag_bytes", text, [((), follower.behind)])
    lag_ms = 0
    if not follower.is_following:
        lag_ms = now_ms - follower.heard_ms if follower.heard_ms else 0
    elif follower.behind:
        lag_ms = max(broker.store.clock.at(now_ms) - broker.store.log.stored_ms, 0)
    yield Figure("kourou_replication_lag_seconds", "For how long this broker has been behind.", [((), lag_ms / 1000)])
    connected = float(follower.is_following)
    yield Figure("kourou_replication_connected", "1 while this broker follows a master.", [((), connected)])
