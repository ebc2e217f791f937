"""The compiled modules, and how they are compiled.

A `.py` here is plain Python with a `.pxd` of C types beside it and runs uncompiled as well. A `.pyx` works on raw
memory and is an addition: another module does the same in plain Python.
"""

HOT_MODULES: dict[str, str] = {
    "kourou.broker._lane": "src/kourou/broker/_lane.pyx",
    "kourou.broker._lane_answers": "src/kourou/broker/_lane_answers.pyx",
    "kourou.broker._lane_ends": "src/kourou/broker/_lane_ends.pyx",
    "kourou.broker._lane_pulls": "src/kourou/broker/_lane_pulls.pyx",
    "kourou.broker._lane_scan": "src/kourou/broker/_lane_scan.pyx",
    "kourou.broker._lane_sends": "src/kourou/broker/_lane_sends.pyx",
    "kourou.broker._lane_signing": "src/kourou/broker/_lane_signing.pyx",
    "kourou.broker._lane_timers": "src/kourou/broker/_lane_timers.pyx",
    "kourou.protocol._wire": "src/kourou/protocol/_wire.pyx",
    "kourou.protocol.record": "src/kourou/protocol/record.py",
    "kourou.spark._columns": "src/kourou/spark/_columns.pyx",
    "kourou.spark._parcels": "src/kourou/spark/_parcels.pyx",
    "kourou.spark._rows": "src/kourou/spark/_rows.pyx",
    "kourou.store.lane_port": "src/kourou/store/lane_port.pyx",
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

SHARED_MODULE = "kourou._cython"
"""Code of Cython that would otherwise be compiled into every module: memory views and function types."""

COMPILER_OPTIONS = ["-O2", "-g0"]

DIRECTIVES: dict[str, object] = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    "embedsignature": True,
}
