# Signatures in the lane. See _lane_signing.pyx.

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from kourou.broker._lane_scan cimport Request

cdef extern from *:
    """
    #ifndef KOUROU_SHA1
    #define KOUROU_SHA1
    typedef struct {
        uint32_t h[5];
        uint64_t size;      /* bytes that were added */
        uint8_t block[64];  /* the last of them, which do not fill a block yet */
    } kourou_sha1;
    #endif
    """
    ctypedef struct kourou_sha1:
        uint32_t h[5]
        uint64_t size
        uint8_t block[64]


@cython.final
cdef class Signer:
    cdef kourou_sha1 _inner, _outer  # HMAC after its two pads, which are the secret's
    cdef set sends, pulls  # what the connection was allowed under this access key

    cdef bint has_signed(self, Request* request, uint8_t* scratch) noexcept nogil
