"""The message store: files in Apache's formats, written so that a crash or a failing disk loses as little as possible.

    disk.py           the disk port, and the real disk (kourou.testing has the simulated one)
    segments.py       equal-sized files as one long address range
    commit_log.py     all messages of all topics, in the order of arrival
    records.py        where the records of a log begin
    consume_queue.py  20-byte entries: the positions of a queue's messages (queue_entries.py reads them from files)
    extensions.py     the filter bit maps of a queue's messages, optional
    index.py          message key -> offsets, in files (index_file.py)
    dispatch.py       commit log -> consume queues and index
    removed.py        removed topics, which must not be dispatched from the log again
    durability.py     how far the log is durable: what may be acknowledged, and what consumers may see
    flush.py          when files are synced; log_sync.py and queue_sync.py do it
    backoff.py        when failed work is retried, and how failures are logged
    wall_clock.py     the time of day, for store times
    recovery.py       which state is valid after a stop or a crash
    queue_repair.py   rebuilds damaged queue entries from the log, while the store is open
    queue_rewrite.py  rewrites queue files from the log after a failed sync
    index_repair.py   the same for the index; log_walk.py reads the log for both
    epochs.py         which master or Raft term wrote which bytes of the log
    truncation.py     truncates the log to an earlier end, for replicas
    dledger.py        the layout of DLedger's log, which a broker refuses; convert/ converts it
    retention.py      which files may be deleted, and when
    metadata.py       topics, groups and offsets on disk
    paths.py          the paths of a store's files
    store.py          opens, recovers and closes the above, in order
    lane_port.pyx     append, dispatch and read for the broker's compiled lane
    offline.py        reads a store that is not open; verify.py and verify_index.py check it

The commit log is authoritative; queues and index can be rebuilt from it. One thread owns a store; other threads only
sync files and prepare segments, through the jobs that the store creates.
"""
