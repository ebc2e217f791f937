"""What operators ask a broker for: mostly through mqadmin and dashboards, and slaves their master.

    topics.py      make, change, delete and show topics         attributes.py  what `+key=value,-key` makes of settings
    groups.py      the same for consumer groups
    offsets.py     set groups back and forward, copy and show offsets
    progress.py    how far topics and groups are
    clients.py     who is connected
    entries.py     the entries of a consume queue
    runtime.py     how the broker is, and what it counts
    config.py      its settings, and housekeeping on request
    table.py       request code to function

What a running consumer alone can answer is in `kourou.broker.relays`. Codes and remarks are Apache's: tools show them.

Java: AdminBrokerProcessor.
"""
