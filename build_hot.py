"""The compiled modules, nothing else.

A `.py` here is plain Python with a `.pxd` of C types beside it and runs uncompiled as well. A `.pyx` is a scanner
over raw memory whose plain twin is another module: it is only ever an addition.
"""

HOT_MODULES: dict[str, str] = {
    "kourou.broker._lane": "src/kourou/broker/_lane.pyx",
    "kourou.protocol._wire": "src/kourou/protocol/_wire.pyx",
    "kourou.protocol.record": "src/kourou/protocol/record.py",
    "kourou.spark._parcels": "src/kourou/spark/_parcels.pyx",
    "kourou.spark._rows": "src/kourou/spark/_rows.pyx",
    "kourou.store.appending": "src/kourou/store/appending.py",
    "kourou.store.commit_log": "src/kourou/store/commit_log.py",
    "kourou.store.consume_queue": "src/kourou/store/consume_queue.py",
    "kourou.store.dispatch": "src/kourou/store/dispatch.py",
    "kourou.store.index": "src/kourou/store/index.py",
    "kourou.store.index_file": "src/kourou/store/index_file.py",
    "kourou.store.queue_entries": "src/kourou/store/queue_entries.py",
    "kourou.store.verify_index": "src/kourou/store/verify_index.py",
    "kourou.store.verify_log": "src/kourou/store/verify_log.py",
}

DIRECTIVES: dict[str, object] = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}
