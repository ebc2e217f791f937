"""The compiled lane of the broker: usual sends and pulls, from the bytes of one read to the bytes of all answers.

    read ─▶ _lane_scan   frame, header, fields
         ─▶ _lane_sends  a send: what the topic allows, the record in the log
         ─▶ _lane_pulls  a pull: what the group may read, its records
         ─▶ _lane_answers
              └ the first unusual request, and all after it, take the general path, unchanged and in order

lane.py says which requests the lane serves. A request that it leaves has changed nothing here: each function looks at
everything first and writes at the end. So the lane and the general path can only differ where the lane serves
something, and tests/property/test_lane.py compares the two there.

The store is reached through store/lane_port.pyx alone. What the lane knows of topics and groups is compared with the
tables of the machine after each step (`tables_may_change`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from kourou.broker._lane_answers cimport Answers
from kourou.broker._lane_pulls cimport Pulls
from kourou.broker._lane_scan cimport M_BATCH, PULL, SEND_BATCH, Request, maybe_bool, scan_frame
from kourou.broker._lane_sends cimport Sends
from kourou.store.lane_port cimport AppendPort, ReadPort


@cython.final
cdef class FastLane:
    """See the module's text, and lane.py."""

    cdef AppendPort _port
    cdef Answers _answers
    cdef Sends _sends
    cdef Pulls _pulls
    cdef Py_ssize_t _answers_max
    cdef long long _epoch  # counts the steps of the machine
    cdef long long _looked  # the step after which the settings were looked at

    def __init__(self, settings, store, send, writer, topics, groups, clients, offsets, stats, *, answers_max):
        """`answers_max`: a read is served no further once its answers have as many bytes."""
        self._port = AppendPort(store)
        self._answers = Answers(store.log.store_host)
        self._sends = Sends(self._port, self._answers, settings, store, send, writer, topics, stats)
        self._pulls = Pulls(ReadPort(store), self._answers, settings, topics, groups, clients, offsets, stats)
        self._answers_max = answers_max
        self._epoch = 1

    def tables_may_change(self):
        """A step of the machine begins: what is known must be compared with its tables again."""
        self._epoch += 1

    def serve(self, peer, bytes data not None, long long now_ms):
        """Serve the frames at the head of `data`, up to the first one that is unusual or not complete.

        Returns the bytes used; the answers; answers that wait for the disk, and how many; whether the peer reads in
        bulk.
        """
        cdef const uint8_t* base = <const uint8_t*>PyBytes_AS_STRING(data)
        cdef Py_ssize_t end = PyBytes_GET_SIZE(data), at = 0, size
        cdef Request request
        cdef bint served
        if self._looked != self._epoch:
            self._sends.look(self._epoch)
            self._pulls.look(self._epoch)
            self._looked = self._epoch
        self._answers.begin()
        self._sends.begin(peer.host, now_ms)
        self._pulls.begin()
        try:
            while self._answers.ready.size < self._answers_max:
                size = scan_frame(base + at, end - at, &request)
                if size == 0:
                    break
                if request.code == PULL:
                    served = self._pulls.serve(&request)
                elif request.code == SEND_BATCH or maybe_bool(&request, M_BATCH) == 1:
                    served = self._sends.serve_batch(&request)
                else:
                    served = self._sends.serve(&request)
                if not served:
                    break
                at += size
        finally:
            self._sends.end()
            self._pulls.end()
        held_count = self._answers.held_count
        return at, self._answers.take_ready(), self._answers.take_held(), held_count, self._pulls.is_bulk

    def dispatch(self):
        """Make what was appended visible. False: `Store.dispatch` must do it."""
        return self._port.dispatch()
