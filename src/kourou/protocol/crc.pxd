# The CRC of a body in C, for all compiled modules. Plain Python uses zlib (hashes.crc32), with the same result.
#
# A call of zlib from Python costs more than the CRC of a small body, and the zlib of most systems processes one byte
# at a time. With carry-less multiplication (PCLMULQDQ), 64 bytes are folded at a time: a long message has the same CRC
# as a shorter one with the same remainder, and each 16 bytes can be replaced by their product with a power of x, added
# to the bytes that follow that many bits later. Tables compute the CRC of the remaining 16 bytes and of a shorter tail.
# See "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009).

from libc.stdint cimport uint8_t, uint32_t


cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define KOUROU_FOLDS 1
    #else
    #define KOUROU_FOLDS 0
    #endif

    static uint32_t kourou_crc_tables[8][256];

    static void kourou_crc_fill(void) {
        for (int i = 0; i < 256; i++) {
            uint32_t crc = (uint32_t)i;
            for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xEDB88320u ^ (crc >> 1) : crc >> 1;
            kourou_crc_tables[0][i] = crc;
        }
        for (int step = 1; step < 8; step++)
            for (int i = 0; i < 256; i++) {
                uint32_t crc = kourou_crc_tables[step - 1][i];
                kourou_crc_tables[step][i] = (crc >> 8) ^ kourou_crc_tables[0][crc & 255];
            }
    }

    static inline uint32_t kourou_crc_on(uint32_t crc, const uint8_t* p, size_t size) {
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        for (; size >= 8; size -= 8, p += 8) {
            uint64_t x;
            memcpy(&x, p, 8);
            x ^= crc;
            crc = 0;
            for (int step = 0; step < 8; step++) crc ^= kourou_crc_tables[7 - step][(x >> (8 * step)) & 255];
        }
    #endif
        while (size--) crc = (crc >> 8) ^ kourou_crc_tables[0][(crc ^ *p++) & 255];
        return crc;
    }

    #if KOUROU_FOLDS
    #define KOUROU_TARGET __attribute__((target("pclmul,sse4.1")))

    KOUROU_TARGET static inline __m128i kourou_fold(__m128i x, __m128i powers, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(x, powers, 0x00), high = _mm_clmulepi64_si128(x, powers, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    /* Fold 64 bytes or more, a multiple of 16, into 16 bytes with the same CRC if computed from 0. */
    KOUROU_TARGET static void kourou_fold_all(uint32_t crc, const uint8_t* p, size_t size, uint8_t* left) {
        const __m128i by_512 = _mm_set_epi64x(0x1c6e41596LL, 0x154442bd4LL);
        const __m128i by_128 = _mm_set_epi64x(0x0ccaa009eLL, 0x1751997d0LL);
        const __m128i* q = (const __m128i*)p;
        const __m128i* end = q + size / 16;
        __m128i x[4];
        for (int i = 0; i < 4; i++) x[i] = _mm_loadu_si128(q++);
        x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)crc));
        for (; end - q >= 4; q += 4)
            for (int i = 0; i < 4; i++) x[i] = kourou_fold(x[i], by_512, _mm_loadu_si128(q + i));
        for (int i = 1; i < 4; i++) x[0] = kourou_fold(x[0], by_128, x[i]);
        while (q < end) x[0] = kourou_fold(x[0], by_128, _mm_loadu_si128(q++));
        _mm_storeu_si128((__m128i*)left, x[0]);
    }
    #endif

    static uint32_t kourou_crc32(const uint8_t* p, size_t size) {
        uint32_t crc = ~0u;
        if (!kourou_crc_tables[0][1]) kourou_crc_fill();
    #if KOUROU_FOLDS
        if (size >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
            uint8_t left[16];
            kourou_fold_all(crc, p, size & ~(size_t)15, left);
            crc = kourou_crc_on(0, left, 16);
            p += size & ~(size_t)15;
            size &= 15;
        }
    #endif
        return ~kourou_crc_on(crc, p, size);
    }
    """
    uint32_t kourou_crc32(const uint8_t* p, size_t size) noexcept nogil


cdef inline int crc32(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    """As hashes.crc32."""
    return <int>(kourou_crc32(data, size) & <uint32_t>0x7FFFFFFF)
