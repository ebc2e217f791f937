# Ends of transactions in the lane. See _lane_ends.pyx.

cimport cython

from kourou.broker._lane_scan cimport Request
from kourou.broker._lane_sends cimport SendQueue, Sends
from kourou.store.lane_port cimport AppendPort


@cython.final
cdef class Ends:
    cdef AppendPort _port
    cdef Sends _sends
    cdef object _transactions

    cdef bint serve(self, Request* request) except -1
