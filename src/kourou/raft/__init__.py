"""A group of brokers that elects its leader and acknowledges by majority: Raft over the plain commit log.

A position is a byte offset of the commit log, a term is an epoch with a start offset (kourou.store.epochs), and members
send each other records exactly as they are stored. So the store of a member is the same as that of any other broker.

    machine.py    the machine of one member: events in, effects out; roles, votes, terms
    events.py     events and effects, and the rules for a driver
    follower.py   copies the leader's log
    candidate.py  asks for votes; decides whether to grant one
    leader.py     sends the log, advances the commit offset
    progress.py   how much of the log a follower has
    lease.py      reads that are never stale
    handover.py   transfers the leadership to another member
    members.py    the members of the group; change.py changes them
    log.py        what the machine knows about the log
    outbox.py     effects in their order: jobs first, then what refers to them
    quorum.py     arithmetic of majorities
    messages.py   messages between members; wire.py encodes them
    transport.py  connections between members, and the identity of the other end
    storage.py    the store of a member, and its files of term, vote, members and epochs

Pure: no clock, no network, and the disk only through the store. The simulation in tests/simulation runs groups of it
through lost, late and repeated messages, partitions, crashes and changes of members.

Java: DLedger, which this replaces, and whose layout and messages it does not use.
"""
