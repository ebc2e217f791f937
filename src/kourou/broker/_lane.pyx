"""The compiled lane of the broker: usual sends, commits and pulls, from the bytes of a read to those of its answers.

    read ─▶ _lane_scan   frame, header, fields
         ─▶ _lane_signing  with access control: is it signed by a user with grants on this connection?
         ─▶ _lane_sends  a send: what the topic allows, the record in the log
         ─▶ _lane_ends   a commit of a half message
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
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport uint8_t

from kourou.broker._lane_answers cimport Answers
from kourou.broker._lane_ends cimport Ends
from kourou.broker._lane_pulls cimport Pulls
from kourou.broker._lane_scan cimport (
    END_TRANSACTION,
    M_BATCH,
    PULL,
    SEND_BATCH,
    SEND_V2,
    Request,
    maybe_bool,
    scan_frame,
)
from kourou.broker._lane_sends cimport Sends
from kourou.broker._lane_signing cimport Signer
from kourou.protocol.scan cimport Text, equals
from kourou.store.lane_port cimport AppendPort, ReadPort

from kourou.broker.meters import LATENCY_BOUNDS_MS, Rpc, request_name

cdef enum:
    SCRATCH_SIZE = 65536  # a header has no more
    RPCS = 6  # the entries of `_rpcs`
    BUCKETS_MAX = 16

cdef int _buckets = len(LATENCY_BOUNDS_MS) + 1
cdef list _rpcs = [
    Rpc(request_name(code), "success", False, result)
    for code, result in (
        (SEND_V2, "success"),
        (SEND_BATCH, "success"),
        (PULL, "success"),
        (SEND_V2, "oneway"),
        (SEND_BATCH, "oneway"),
        (END_TRANSACTION, "oneway"),
    )
]


@cython.final
cdef class FastLane:
    """See the module's text, and lane.py."""

    cdef AppendPort _port
    cdef Answers _answers
    cdef Sends _sends
    cdef Ends _ends
    cdef Pulls _pulls
    cdef Py_ssize_t _answers_max
    cdef object _access
    cdef bint _is_guarded  # access control is on, as of `_looked`
    cdef uint8_t* _scratch  # for the text of a signature
    cdef Signer _signer  # of the last signed request of the read
    cdef bytes _access_key
    cdef long long _epoch  # counts the steps of the machine
    cdef long long _looked  # the step after which the settings were read
    cdef long long[RPCS] _served  # requests that were answered, and not timed yet
    cdef long long[RPCS][BUCKETS_MAX] _latencies  # timed, and not handed over yet
    cdef long long[RPCS] _total_ms
    cdef readonly int held_batches  # of the answers that wait, how many are those of batches

    def __cinit__(self):
        self._scratch = <uint8_t*>PyMem_Malloc(SCRATCH_SIZE)
        if self._scratch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self._scratch)

    def __init__(self, settings, store, send, writer, topics, groups, clients, offsets, stats, access, transactions, *, answers_max):
        """`answers_max`: the bytes of answers after which the rest of a read is left for later."""
        self._port = AppendPort(store)
        self._answers = Answers(store.log.store_host)
        self._sends = Sends(self._port, self._answers, settings, store, send, writer, topics, stats, transactions)
        self._ends = Ends(self._port, self._sends, transactions)
        self._pulls = Pulls(ReadPort(store), self._answers, settings, topics, groups, clients, offsets, stats)
        self._access = access
        self._answers_max = answers_max
        self._epoch = 1
        assert _buckets <= BUCKETS_MAX

    def tables_may_change(self):
        """A step of the machine begins: cached topics and groups must be compared with its tables again."""
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
            self._is_guarded = self._access.rules is not None
            self._looked = self._epoch
        grants = self._access.grants_of(peer) if self._is_guarded else None
        self._answers.begin()
        self._sends.begin(peer.host, now_ms)
        self._pulls.begin()
        self._sends.granted = self._pulls.granted = None
        self._signer = None
        request.collects = self._is_guarded
        self.held_batches = 0
        try:
            while self._answers.ready.size < self._answers_max:
                size = scan_frame(base + at, end - at, &request)
                if size == 0 or (self._is_guarded and not self._knows(grants, &request)):
                    break
                if request.code == PULL:
                    served = self._pulls.serve(&request)
                elif request.code == END_TRANSACTION:
                    served = self._ends.serve(&request)
                elif request.code == SEND_BATCH or maybe_bool(&request, M_BATCH) == 1:
                    served = self._sends.serve_batch(&request)
                else:
                    served = self._sends.serve(&request)
                if not served:
                    break
                at += size
                self._count(&request)
        finally:
            self._sends.end()
            self._pulls.end()
        held_count = self._answers.held_count
        return at, self._answers.take_ready(), self._answers.take_held(), held_count, self._pulls.is_bulk

    cdef bint _knows(self, grants, Request* request) except -1:
        """Does the sender of a request have grants on this connection? If so, the lane uses its sends and pulls."""
        cdef Signer signer = self._signer
        cdef Text* key = &request.access_key
        if not request.signed:
            self._sends.granted, self._pulls.granted = grants.sends, grants.pulls
            return True
        if key.at == NULL:
            return False
        if signer is None or not equals(
            key.at, key.size, PyBytes_AS_STRING(self._access_key), PyBytes_GET_SIZE(self._access_key)
        ):
            self._access_key = PyBytes_FromStringAndSize(<const char*>key.at, key.size)
            signer = self._signer = grants.signers.get(self._access_key)
        if signer is None or not signer.has_signed(request, self._scratch):
            return False
        self._sends.granted, self._pulls.granted = signer.sends, signer.pulls
        return True

    cdef inline void _count(self, Request* request) noexcept:
        """A request was served. If its answer waits, the writer times it when the answer is sent."""
        if request.code == PULL:
            self._served[2] += 1
        elif request.flag:
            self._served[5 if request.code == END_TRANSACTION else 3 + (request.code == SEND_BATCH)] += 1
        elif not self._answers.must_wait:
            self._served[request.code == SEND_BATCH] += 1
        elif request.code == SEND_BATCH:
            self.held_batches += 1

    def took(self, long long ms):
        """Record the duration of the requests that were served since the last call."""
        cdef int i, bucket = 0
        while bucket < _buckets - 1 and ms > <long long>LATENCY_BOUNDS_MS[bucket]:
            bucket += 1
        for i in range(RPCS):
            self._latencies[i][bucket] += self._served[i]
            self._total_ms[i] += self._served[i] * ms
            self._served[i] = 0

    def hand_over(self, meters):
        """Add the counts since the last call to the statistics and to `meters`."""
        cdef int i, j
        self._sends.hand_over()
        for i in range(RPCS):
            counts = [self._latencies[i][j] for j in range(_buckets)]
            if any(counts):
                meters.add_all(_rpcs[i], counts, self._total_ms[i])
            for j in range(_buckets):
                self._latencies[i][j] = 0
            self._total_ms[i] = 0

    def dispatch(self):
        """Dispatch the appended records. False: `Store.dispatch` must do it."""
        return self._port.dispatch()
