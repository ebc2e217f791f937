# Pulls in the lane. See _lane_pulls.pyx.

cimport cython

from kourou.broker._lane_answers cimport Answers
from kourou.broker._lane_scan cimport Request
from kourou.store.lane_port cimport ReadPort


@cython.final
cdef class Subscriber:
    cdef str topic, group
    cdef bytes key
    cdef object topic_config, group_config
    cdef object members, subscription  # of the group; None if the pull brings its subscription
    cdef long long epoch
    cdef int queue_limit
    cdef long long* codes  # of the tags
    cdef Py_ssize_t code_count  # -1: all tags
    cdef long long sub_version, broker_id, slow_broker_id
    cdef bytes tail  # the end of the answer's fields

    cdef _want(self, wanted)


@cython.final
cdef class Pulls:
    cdef ReadPort _port
    cdef Answers _answers
    cdef object _settings, _topics, _groups, _clients, _offsets, _stats
    cdef dict _known
    cdef Subscriber _last
    cdef set granted  # topics and groups that the sender of the request may pull; None: all
    cdef bint is_bulk  # a pull in bulk was served in this read

    # What the settings say, as of `_epoch`.
    cdef long long _epoch
    cdef bint _may_pull, _slave_read

    cdef look(self, long long epoch)
    cdef begin(self)
    cdef end(self)
    cdef bint serve(self, Request* request) except -1
    cdef Subscriber _subscriber(self, Request* request, bint is_given)
    cdef bint _is_current(self, Subscriber subscriber) except -1
    cdef Subscriber _learn(self, Request* request, bytes key, bint is_given)
