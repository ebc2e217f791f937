"""Replication of the log between a master and its slaves: the bytes on the HA port, and both ends as pure machines.

    frames.py      reports of a slave, headers of a master's batches
    links.py       connections, events, effects, and the interface to the log
    records.py     reassembles whole, valid records from batches that end anywhere
    secret.py      how two brokers prove to each other that they have the same secret
    refusals.py    a log line for each cause of refused connections
    master.py      sends the log to slaves, and knows how much of it each slave has
    follower.py    a slave's end: connects, checks, appends, reports
    epoch_frames.py, epoch_master.py, epoch_follower.py    the same for brokers under a controller: with a handshake
                   that compares epochs, so that a slave cuts off the records that its master does not have

Bytes and times go in, effects come out; there is no I/O and no clock. `kourou.broker.replication` connects the machines
to the store and the broker, and `kourou.server` to the sockets.

Java: org.apache.rocketmq.store.ha.
"""
