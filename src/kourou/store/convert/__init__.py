"""`kourou store convert`: a store in DLedger's layout becomes a plain one, and the other way round.

    source.py       the log that is read, in either layout, and which of its records count
    target.py       the log that is written, and where the next record goes
    offset_map.py   old log offset -> new log offset
    references.py   what refers to log offsets beside the log: timers, delays, queues of old messages
    progress.py     what is durable of an unfinished conversion
    check.py        compares the new log with the old one
    conversion.py   the order of all this

    source ─▶ record ─▶ its log offset, and the one of a half message or original, are replaced ─▶ target
       └ offset map ◀───┘                                        every 64 MiB: sync, then progress

The source is never changed. The target has `kourou-converting.json`, and a file in commitlog/ that makes any broker
refuse it, until it is complete and compared. A conversion that was killed continues from its progress.
"""
