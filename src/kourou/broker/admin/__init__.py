"""Administrative requests: from mqadmin and dashboards, and from slaves to their master.

    topics.py      create, change, delete and show topics       attributes.py  changes of attributes: `+key=value,-key`
    groups.py      the same for consumer groups
    offsets.py     set groups back and forward, copy and show offsets
    progress.py    the progress of topics and groups
    clients.py     connected clients
    entries.py     the entries of a consume queue
    runtime.py     the state of the broker, and its counters
    config.py      its settings, and housekeeping on request
    table.py       request code to function

Requests that only a running consumer can answer are in `kourou.broker.relays`. Codes and remarks are Apache's:
tools show them.

Java: AdminBrokerProcessor.
"""
