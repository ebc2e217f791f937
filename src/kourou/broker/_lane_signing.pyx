"""Signatures in the lane: HMAC-SHA1 over the fields of a request in the order of their names, and its body.

signing.py says the same in plain Python, and defines it. What depends on the secret alone, two of the blocks, is made
once for each connection and access key. SHA-1 runs on the processor's own instructions where it has them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memcpy, memset

from kourou.broker._lane_scan cimport SIGNED_FIELDS_MAX, Request
from kourou.protocol.scan cimport Text, equals, unescape

import hashlib

cdef enum:
    BLOCK = 64
    DIGEST = 20
    BASE64 = 28  # letters of a signature
    SHORT = 16

cdef extern from *:
    """
    #include <string.h>

    static uint32_t kourou_big_endian(const uint8_t* p) {
        return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    }

    #define KOUROU_ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))

    static void kourou_sha1_plain(uint32_t* h, const uint8_t* p, size_t count) {
        for (; count; count--, p += 64) {
            uint32_t w[80], a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
            int i;
            for (i = 0; i < 16; i++) w[i] = kourou_big_endian(p + 4 * i);
            for (; i < 80; i++) w[i] = KOUROU_ROTATE(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
            for (i = 0; i < 80; i++) {
                uint32_t f, k, x;
                if (i < 20) { f = (b & c) | (~b & d); k = 0x5A827999; }
                else if (i < 40) { f = b ^ c ^ d; k = 0x6ED9EBA1; }
                else if (i < 60) { f = (b & c) | (b & d) | (c & d); k = 0x8F1BBCDC; }
                else { f = b ^ c ^ d; k = 0xCA62C1D6; }
                x = KOUROU_ROTATE(a, 5) + f + e + k + w[i];
                e = d; d = c; c = KOUROU_ROTATE(b, 30); b = a; a = x;
            }
            h[0] += a; h[1] += b; h[2] += c; h[3] += d; h[4] += e;
        }
    }

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    /* Four rounds: w[i] is made of the four before it, `e` of the state before the last four rounds. */
    #define KOUROU_ROUNDS(i, constant) \\
        if (i >= 4) w[(i) & 3] = _mm_sha1msg2_epu32(_mm_xor_si128( \\
            _mm_sha1msg1_epu32(w[(i) & 3], w[((i) + 1) & 3]), w[((i) + 2) & 3]), w[((i) + 3) & 3]); \\
        e = (i) ? _mm_sha1nexte_epu32(before, w[(i) & 3]) : _mm_add_epi32(before, w[0]); \\
        before = state; \\
        state = _mm_sha1rnds4_epu32(state, e, constant);
    #define KOUROU_5_ROUNDS(i, constant) KOUROU_ROUNDS(i, constant) KOUROU_ROUNDS(i + 1, constant) \\
        KOUROU_ROUNDS(i + 2, constant) KOUROU_ROUNDS(i + 3, constant) KOUROU_ROUNDS(i + 4, constant)

    __attribute__((target("sha,sse4.1,ssse3")))
    static void kourou_sha1_fast(uint32_t* h, const uint8_t* p, size_t count) {
        const __m128i order = _mm_set_epi64x(0x0001020304050607LL, 0x08090a0b0c0d0e0fLL);
        __m128i state = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i*)h), 0x1B);
        __m128i last = _mm_set_epi32((int)h[4], 0, 0, 0);
        for (; count; count--, p += 64) {
            const __m128i state_0 = state, last_0 = last;
            __m128i w[4], e, before = last;
            int i;
            for (i = 0; i < 4; i++) w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i*)(p + 16 * i)), order);
            KOUROU_5_ROUNDS(0, 0)
            KOUROU_5_ROUNDS(5, 1)
            KOUROU_5_ROUNDS(10, 2)
            KOUROU_5_ROUNDS(15, 3)
            last = _mm_sha1nexte_epu32(before, last_0);
            state = _mm_add_epi32(state, state_0);
        }
        _mm_storeu_si128((__m128i*)h, _mm_shuffle_epi32(state, 0x1B));
        h[4] = (uint32_t)_mm_extract_epi32(last, 3);
    }

    static int kourou_has_sha(void) {
        unsigned int a, b, c, d;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & (1u << 19)) || !(c & (1u << 9))) return 0;
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 29));
    }
    #else
    #define kourou_sha1_fast kourou_sha1_plain
    static int kourou_has_sha(void) { return 0; }
    #endif

    static int kourou_sha1_is_fast = 0;

    static void kourou_sha1_blocks(uint32_t* h, const uint8_t* p, size_t count) {
        if (kourou_sha1_is_fast) kourou_sha1_fast(h, p, count);
        else kourou_sha1_plain(h, p, count);
    }

    static void kourou_sha1_begin(kourou_sha1* sha) {
        static const uint32_t first[5] = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
        memcpy(sha->h, first, sizeof first);
        sha->size = 0;
    }

    static void kourou_sha1_add(kourou_sha1* sha, const uint8_t* p, size_t size) {
        size_t held = sha->size & 63, room = 64 - held;
        sha->size += size;
        if (held) {
            if (size < room) { memcpy(sha->block + held, p, size); return; }
            memcpy(sha->block + held, p, room);
            kourou_sha1_blocks(sha->h, sha->block, 1);
            p += room;
            size -= room;
        }
        kourou_sha1_blocks(sha->h, p, size >> 6);
        memcpy(sha->block, p + (size & ~(size_t)63), size & 63);
    }

    static void kourou_sha1_end(kourou_sha1* sha, uint8_t* digest) {
        size_t held = sha->size & 63;
        uint64_t bits = sha->size << 3;
        int i;
        sha->block[held++] = 0x80;
        if (held > 56) {
            memset(sha->block + held, 0, 64 - held);
            kourou_sha1_blocks(sha->h, sha->block, 1);
            held = 0;
        }
        memset(sha->block + held, 0, 56 - held);
        for (i = 0; i < 8; i++) sha->block[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
        kourou_sha1_blocks(sha->h, sha->block, 1);
        for (i = 0; i < 20; i++) digest[i] = (uint8_t)(sha->h[i >> 2] >> (24 - 8 * (i & 3)));
    }
    """
    bint kourou_sha1_is_fast
    bint kourou_has_sha() noexcept nogil
    void kourou_sha1_begin(kourou_sha1* sha) noexcept nogil
    void kourou_sha1_add(kourou_sha1* sha, const uint8_t* p, size_t size) noexcept nogil
    void kourou_sha1_end(kourou_sha1* sha, uint8_t* digest) noexcept nogil


@cython.final
cdef class Signer:
    """A secret, prepared, with the sends and pulls that its owner may make on one connection."""

    def __init__(self, bytes secret not None, set sends not None, set pulls not None):
        cdef uint8_t pad[BLOCK]
        cdef bytes key = secret if len(secret) <= BLOCK else hashlib.sha1(secret).digest()
        cdef const uint8_t* p = <const uint8_t*>PyBytes_AS_STRING(key)
        cdef Py_ssize_t i, size = PyBytes_GET_SIZE(key)
        for i in range(BLOCK):
            pad[i] = (p[i] if i < size else 0) ^ 0x36
        kourou_sha1_begin(&self._inner)
        kourou_sha1_add(&self._inner, pad, BLOCK)
        for i in range(BLOCK):
            pad[i] ^= 0x36 ^ 0x5C
        kourou_sha1_begin(&self._outer)
        kourou_sha1_add(&self._outer, pad, BLOCK)
        memset(pad, 0, BLOCK)
        self.sends = sends
        self.pulls = pulls

    cdef bint has_signed(self, Request* request, uint8_t* scratch) noexcept nogil:
        """Was this request, which was scanned with its fields, signed with the secret? False: the general path decides.

        `scratch` has room for all values.
        """
        cdef int order[SIGNED_FIELDS_MAX]
        cdef int count = request.field_count, i, k, field, differs
        cdef kourou_sha1 sha = self._inner
        cdef uint8_t digest[DIGEST]
        cdef Text* value
        cdef Text* given = NULL
        cdef uint8_t* p = scratch
        cdef Py_ssize_t size
        for i in range(count):
            field = i
            k = i
            while k > 0:  # few are out of order: Java's maps have fields of one letter in their order
                differs = _compare(&request.names[field], &request.names[order[k - 1]])
                if differs == 0:
                    return False  # a field twice
                if differs > 0:
                    break
                order[k] = order[k - 1]
                k -= 1
            order[k] = field
        for i in range(count):
            field = order[i]
            value = &request.values[field]
            if equals(request.names[field].at, request.names[field].size, b"Signature", 9):
                given = value
            elif request.escaped and equals(request.names[field].at, request.names[field].size, b"i", 1):
                size = unescape(value.at, value.at + value.size, p)
                if size < 0:
                    return False
                p += size
            elif value.size <= SHORT:  # most are, and a call takes longer
                for size in range(value.size):
                    p[size] = value.at[size]
                p += value.size
            else:
                memcpy(p, value.at, value.size)
                p += value.size
        if given == NULL or given.size != BASE64:
            return False
        kourou_sha1_add(&sha, scratch, p - scratch)
        kourou_sha1_add(&sha, request.body, request.body_size)
        kourou_sha1_end(&sha, digest)
        sha = self._outer
        kourou_sha1_add(&sha, digest, DIGEST)
        kourou_sha1_end(&sha, digest)
        return _is_base64_of(given.at, digest)

    def signs(self, bytes text not None, bytes signature not None):
        """Is this the signature of a text, in base64? For tests: the lane has fields."""
        cdef kourou_sha1 sha = self._inner
        cdef uint8_t digest[DIGEST]
        cdef Py_ssize_t at, size = PyBytes_GET_SIZE(text)
        for at in range(0, size, 37):
            kourou_sha1_add(&sha, <const uint8_t*>PyBytes_AS_STRING(text) + at, min(37, size - at))
        kourou_sha1_end(&sha, digest)
        sha = self._outer
        kourou_sha1_add(&sha, digest, DIGEST)
        kourou_sha1_end(&sha, digest)
        return len(signature) == BASE64 and _is_base64_of(<const uint8_t*>PyBytes_AS_STRING(signature), digest)


cdef inline int _compare(Text* one, Text* other) noexcept nogil:
    cdef Py_ssize_t size = one.size if one.size < other.size else other.size
    cdef int found = <int>one.at[0] - <int>other.at[0] if size else 0
    if found == 0:
        found = memcmp(one.at, other.at, size)
    if found != 0:
        return found
    return 0 if one.size == other.size else (-1 if one.size < other.size else 1)


cdef bint _is_base64_of(const uint8_t* given, const uint8_t* digest) noexcept nogil:
    """Compares all letters even if one differs, so that the duration reveals nothing."""
    cdef const char* letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    cdef int i, bits
    cdef uint8_t differs = 0
    for i in range(7):
        bits = digest[3 * i] << 16 | digest[3 * i + 1] << 8 | (digest[3 * i + 2] if i < 6 else 0)
        differs |= given[4 * i] ^ <uint8_t>letters[bits >> 18]
        differs |= given[4 * i + 1] ^ <uint8_t>letters[bits >> 12 & 63]
        differs |= given[4 * i + 2] ^ <uint8_t>letters[bits >> 6 & 63]
        differs |= given[4 * i + 3] ^ (<uint8_t>letters[bits & 63] if i < 6 else c'=')
    return differs == 0


def use_fast_sha1(bint wanted):
    """Use the processor's SHA instructions if it has them. Returns whether they are used. For tests."""
    global kourou_sha1_is_fast
    kourou_sha1_is_fast = wanted and kourou_has_sha()
    return bool(kourou_sha1_is_fast)


use_fast_sha1(True)
