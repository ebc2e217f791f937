# The lane's view of a frame: numbers and stretches of the bytes that were read, without any object.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kourou.protocol.scan cimport Text

cdef enum:
    SEND_V2 = 310
    SEND_BATCH = 320
    PULL = 11
    END_TRANSACTION = 37

# The fields of a request. Sends have names of one letter.
cdef enum:
    A_GROUP, B_TOPIC, C_DEFAULT, D_QUEUES, E_QUEUE, F_SYS_FLAG, G_BORN, H_FLAG, I_PROPERTIES, J_TIMES, K_UNIT, L_TIMES
    M_BATCH, N_BROKER
    TOPIC, GROUP, QUEUE_ID, QUEUE_OFFSET, MAX_NUMS, SYS_FLAG, COMMIT, SUSPEND, SUB_VERSION, SUBSCRIPTION, EXPRESSION
    MAX_BYTES, SOURCE
    END_GROUP, END_QUEUE_OFFSET, END_LOG_OFFSET, END_OUTCOME, END_FROM_CHECK, END_ID, END_TRANSACTION_ID
    FIELD_COUNT
    SIGNATURE  # and the other fields of a signature
    IGNORED
    UNKNOWN

    SIGNED_FIELDS_MAX = 32

cdef struct Request:
    int32_t code, opaque, flag
    uint64_t seen  # a bit for each field
    bint escaped  # the properties have escapes
    bint signed
    bint collects  # set by the caller: `names` and `values` are wanted
    Text access_key  # nowhere, if there is none
    int field_count
    Text names[SIGNED_FIELDS_MAX]
    Text values[SIGNED_FIELDS_MAX]
    Text fields[FIELD_COUNT]
    const uint8_t* body
    Py_ssize_t body_size


cdef inline bint has(Request* request, int field) noexcept nogil:
    return (request.seen >> field) & 1


cdef struct SendNumbers:
    int64_t queue_id, sys_flag, born_ms, flag, times

cdef struct PullNumbers:
    int64_t queue_id, offset, max_count, sys_flag, commit_offset, sub_version, max_size

cdef struct EndNumbers:
    int64_t queue_offset, log_offset, outcome

# What a message with certain properties is.
cdef enum Kind:
    PLAIN, HALF, TIMED_AT, TIMED_IN_MS, TIMED_IN_S

cdef struct Properties:
    const uint8_t* at
    Py_ssize_t size
    bint closed  # they end in 0x02, or are empty
    Text unique_key
    bint waits  # no property says that the answer need not wait for the disk
    Kind kind
    bint is_ordered  # it has a sharding key
    int64_t time  # of a timed message, as its property says it

# What the properties of a half message say.
cdef struct Half:
    Text group, topic
    int64_t queue_id
    Py_ssize_t kept  # bytes of the properties that the message has when it is committed


cdef Py_ssize_t scan_frame(const uint8_t* frame, Py_ssize_t size, Request* request) except -1
cdef int maybe_bool(Request* request, int field) noexcept nogil
cdef bint send_numbers(Request* request, SendNumbers* numbers) noexcept nogil
cdef bint pull_numbers(Request* request, PullNumbers* numbers) noexcept nogil
cdef bint end_numbers(Request* request, EndNumbers* numbers) noexcept nogil
cdef bint find_properties(Request* request, uint8_t* scratch, Py_ssize_t scratch_size, Properties* found) noexcept nogil
cdef bint text_number(Text* text, int64_t low, int64_t high, int64_t* value) noexcept nogil
cdef bint check_half(Text* text, Half* half) noexcept nogil
