"""The message store: Apache's files, kept so that a crash or a failing disk costs as little as can be.

    disk.py           the disk port, and the real disk (kourou.testing has the simulated one)
    segments.py       equal-sized files as one long address range
    commit_log.py     every message of every topic, one after the other
    records.py        where the records of a log begin
    consume_queue.py  20-byte entries: where a queue's n-th message lies (queue_entries.py reads them from files)
    extensions.py     what filters know about a queue's messages, if that is wanted
    index.py          message key -> offsets, in files (index_file.py)
    dispatch.py       commit log -> consume queues and index
    removed.py        topics that were removed, and must not come back with the log
    durability.py     how far the log is durable: what may be acknowledged, and what consumers may see
    flush.py          when files are synced; log_sync.py and queue_sync.py do it
    backoff.py        when work that failed is tried again, and what the log says about it
    wall_clock.py     the time of day, for what is stored and shown
    recovery.py       what is true after a stop or a crash
    queue_repair.py   damaged queue entries are made again from the log, while the store is open
    index_repair.py   the same for the index; log_walk.py reads the log for both
    truncation.py     back to an earlier end, for replicas
    retention.py      which files may go, and when
    metadata.py       topics, groups and offsets on disk
    paths.py          where the files of a store are
    store.py          opens, recovers and closes the above, in order
    lane_port.pyx     append, dispatch and read as the broker's compiled lane does them
    offline.py        the files of a store that is not open; verify.py and verify_index.py check them

The commit log alone decides; queues and index can be rebuilt from it. One thread owns a store; other threads only sync
files and prepare segments, through the jobs that the store hands out.
"""
