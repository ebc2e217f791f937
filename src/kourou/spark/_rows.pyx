"""The compiled form of rows.Rows: from records to the columns of a batch (_columns.pyx), without objects.

rows.py is the plain form and decides what is right. It also takes the records that are unusual here (`add_plainly`).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp, memcpy

from kourou.protocol.crc cimport crc32
from kourou.protocol.record cimport Scanner, bytes_at, names_of
from kourou.protocol.scan cimport int32_at, kourou_is_ascii, put_number
from kourou.spark._columns cimport Column

from kourou.protocol.compression import DECOMPRESSED_LIMIT_BYTES
from kourou.protocol.hashes import crc32 as _crc32
from kourou.spark.columns import COLUMNS, CORRUPT, arrow_schema
from kourou.spark.rows import (
    BAD_CRC,
    FAIL,
    ROWS_MAX,
    SIZE_MAX,
    added_size,
    damage_values,
    judge,
    topic_verdict,
    unpack,
    values_of,
)
from kourou.spark.selection import EVERYTHING

cdef enum:
    RECORD = 1
    FULL = 5
    STOPPED = 6
    COMPRESSED = 0x1
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    BATCH_INSIDE = 0xC0
    PROPERTIES_CHECKED = 256  # the plain form handles a record with more

cdef int64_t MS_MAX = 9223372036854775


cdef inline bint is_utf8(const unsigned char *p, Py_ssize_t size) except -1:
    if kourou_is_ascii(p, size):
        return True
    try:
        PyUnicode_DecodeUTF8(<char *> p, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef char *HEX = b"0123456789ABCDEF"


cdef inline int put_hex(Column column, const unsigned char *host, Py_ssize_t size, int64_t offset) except -1:
    """An offset id."""
    cdef char *out = column.data.more(2 * size + 16)
    cdef Py_ssize_t i
    cdef int shift
    for i in range(size):
        out[0] = HEX[host[i] >> 4]
        out[1] = HEX[host[i] & 15]
        out += 2
    for shift in range(60, -4, -4):
        out[0] = HEX[(<uint64_t> offset >> shift) & 15]
        out += 1
    return column.end_text()


cdef inline int put_host(Column column, const unsigned char *host) except -1:
    """An IPv4 address and its port. Neighbours often have the same."""
    cdef uint8_t *out
    cdef int i
    if not column.host_size or memcmp(column.host, host, 8) != 0:
        out = <uint8_t *> column.host_text
        for i in range(4):
            out = put_number(out, host[i])
            out[0] = c':' if i == 3 else c'.'
            out += 1
        out = put_number(out, int32_at(host + 4))
        memcpy(column.host, host, 8)
        column.host_size = <char *> out - column.host_text
    return column.put_text(column.host_text, column.host_size)


cdef inline int64_t us(int64_t ms) noexcept nogil:
    return (MS_MAX if ms > MS_MAX else -MS_MAX if ms < -MS_MAX else ms) * 1000


@cython.final
cdef class CompiledRows:
    cdef readonly Py_ssize_t rows, size, skipped
    cdef Py_ssize_t rows_max, size_max
    cdef tuple names
    cdef list all_columns
    cdef object schema, topic_test, broker, on_damage, tags
    cdef dict topics
    cdef bytes raw_broker, last_topic
    cdef bint last_verdict, decompressing, verify
    cdef int64_t max_body
    cdef int64_t stored_from, stored_to, offset_from, offset_to
    cdef Column topic, queue_id, queue_offset, broker_column, msg_id, unique_key, tags_column, keys, properties, body
    cdef Column born_timestamp, born_host, store_timestamp, store_host, reconsume_times, flag, sys_flag, body_crc
    cdef Column store_size, commit_log_offset, prepared_tx_offset, corrupt

    def __init__(
        self,
        columns,
        *,
        selection=EVERYTHING,
        broker=None,
        decompressing=True,
        max_body=DECOMPRESSED_LIMIT_BYTES,
        verify=False,
        on_damage=FAIL,
        rows_max=ROWS_MAX,
        size_max=SIZE_MAX,
    ):
        self.names = tuple(columns)
        self.schema = arrow_schema(columns)
        self.topic_test = selection.topic_test()
        self.tags = selection.raw_tags
        self.topics = {}
        self.broker = broker
        self.raw_broker = b"" if broker is None else broker.encode()
        self.decompressing = decompressing
        self.max_body = max_body
        self.verify = verify
        self.on_damage = on_damage
        self.rows_max = rows_max
        self.size_max = size_max
        self.stored_from, self.stored_to = selection.stored_from_ms, selection.stored_to_ms
        self.offset_from, self.offset_to = selection.offset_from, selection.offset_to
        kinds = {"string": 1, "binary": 1, "int": 4, "bigint": 8, "timestamp": 8, "map<string,string>": 2}
        found = {name: Column(name, kinds[COLUMNS.get(name, "string")]) for name in self.names}
        self.all_columns = list(found.values())
        self.topic = found.get("topic")
        self.queue_id = found.get("queue_id")
        self.queue_offset = found.get("queue_offset")
        self.broker_column = found.get("broker")
        self.msg_id = found.get("msg_id")
        self.unique_key = found.get("unique_key")
        self.tags_column = found.get("tags")
        self.keys = found.get("keys")
        self.properties = found.get("properties")
        self.body = found.get("body")
        self.born_timestamp = found.get("born_timestamp")
        self.born_host = found.get("born_host")
        self.store_timestamp = found.get("store_timestamp")
        self.store_host = found.get("store_host")
        self.reconsume_times = found.get("reconsume_times")
        self.flag = found.get("flag")
        self.sys_flag = found.get("sys_flag")
        self.body_crc = found.get("body_crc")
        self.store_size = found.get("store_size")
        self.commit_log_offset = found.get("commit_log_offset")
        self.prepared_tx_offset = found.get("prepared_tx_offset")
        self.corrupt = found.get(CORRUPT)

    def aim(self, broker, offset_from, offset_to):
        self.broker = broker
        self.raw_broker = b"" if broker is None else broker.encode()
        self.offset_from, self.offset_to = offset_from, offset_to

    def fill(self, Scanner scanner not None, Py_ssize_t stop_at):
        cdef int found
        while True:
            if self.rows >= self.rows_max or self.size >= self.size_max:
                return FULL
            if scanner.next_at >= stop_at:
                return STOPPED
            found = scanner.step()
            if found != RECORD:
                return found
            if self.wants(scanner):
                self.size += scanner.size
                if self.is_usual(scanner):
                    self.add(scanner)
                else:
                    self.add_plainly(scanner)

    cdef bint wants(self, Scanner scanner) except -1:
        if not self.stored_from <= scanner.stored_ms < self.stored_to:
            return False
        if scanner.sys_flag & BATCH_INSIDE != BATCH_INSIDE and not (
            self.offset_from <= scanner.queue_offset < self.offset_to
        ):
            return False
        if self.tags is not None:
            scanner.find_keys()
            if scanner.tags not in self.tags:
                return False
        return self.topic_test is None or self.wants_topic(scanner)

    cdef bint wants_topic(self, Scanner scanner) except -1:
        """Tested once for each topic; neighbours in the log often have the same topic."""
        cdef const unsigned char *p = bytes_at(scanner, scanner.topic_at) if scanner.topic_size else NULL
        if (
            self.last_topic is None
            or PyBytes_GET_SIZE(self.last_topic) != scanner.topic_size
            or (p != NULL and memcmp(PyBytes_AS_STRING(self.last_topic), p, scanner.topic_size))
        ):
            self.last_topic = scanner.topic
            self.last_verdict = topic_verdict(self.topics, self.topic_test, self.last_topic)
        return self.last_verdict

    cdef bint is_usual(self, Scanner scanner) except -1:
        """Can `add` handle the record? If not, `add_plainly` does."""
        cdef int sys_flag = scanner.sys_flag
        if sys_flag & (BORN_V6 | STORE_V6):
            return False
        if self.decompressing and (sys_flag & COMPRESSED or sys_flag & BATCH_INSIDE == BATCH_INSIDE):
            return False
        if self.verify and scanner.body_size:
            if crc32(bytes_at(scanner, scanner.body_at), scanner.body_size) != scanner.body_crc:
                return False
        if scanner.topic_size and not is_utf8(bytes_at(scanner, scanner.topic_at), scanner.topic_size):
            return False
        if not scanner.properties_size:
            return True
        cdef const unsigned char *p = bytes_at(scanner, scanner.properties_at)
        return is_utf8(p, scanner.properties_size) and self.names_differ(p, scanner.properties_size)

    cdef bint names_differ(self, const unsigned char *p, Py_ssize_t size) noexcept:
        """Does every property name occur once? Then the properties become a map unchanged."""
        if self.properties is None:
            return True
        cdef const unsigned char *names[PROPERTIES_CHECKED]
        cdef int32_t sizes[PROPERTIES_CHECKED]
        cdef const unsigned char *end = p + size
        cdef const unsigned char *stop
        cdef const unsigned char *mark
        cdef int count = 0, i
        cdef int32_t name_size
        while p < end:
            stop = <const unsigned char *> memchr(p, 2, end - p)
            if stop == NULL:
                stop = end
            mark = <const unsigned char *> memchr(p, 1, stop - p)
            if mark != NULL and mark > p and mark + 1 < stop:
                name_size = <int32_t> (mark - p)
                for i in range(count):
                    if sizes[i] == name_size and memcmp(names[i], p, name_size) == 0:
                        return False
                if count == PROPERTIES_CHECKED:
                    return False
                names[count] = p
                sizes[count] = name_size
                count += 1
            p = stop + 1
        return True

    cdef int add(self, Scanner scanner) except -1:
        """A usual record: IPv4 hosts, valid text, an uncompressed body."""
        cdef const unsigned char *base = bytes_at(scanner, 0)
        cdef const unsigned char *record = base + scanner.at
        if self.topic is not None:
            self.topic.put_text(base + scanner.topic_at, scanner.topic_size)
        if self.queue_id is not None:
            self.queue_id.put32(scanner.queue_id)
        if self.queue_offset is not None:
            self.queue_offset.put64(scanner.queue_offset)
        if self.broker_column is not None:
            if self.broker is None:
                self.broker_column.put_null()
            else:
                self.broker_column.put_text(PyBytes_AS_STRING(self.raw_broker), PyBytes_GET_SIZE(self.raw_broker))
        if self.msg_id is not None:
            put_hex(self.msg_id, record + 64, 8, scanner.physical_offset)
        if self.unique_key is not None or self.tags_column is not None or self.keys is not None:
            self.add_lifted(scanner)
        if self.properties is not None:
            self.add_properties(base + scanner.properties_at, scanner.properties_size)
        if self.body is not None:
            self.body.put_text(base + scanner.body_at, scanner.body_size)
        if self.born_timestamp is not None:
            self.born_timestamp.put64(us(scanner.born_ms))
        if self.born_host is not None:
            put_host(self.born_host, record + 48)
        if self.store_timestamp is not None:
            self.store_timestamp.put64(us(scanner.stored_ms))
        if self.store_host is not None:
            put_host(self.store_host, record + 64)
        if self.reconsume_times is not None:
            self.reconsume_times.put32(scanner.reconsume_times)
        if self.flag is not None:
            self.flag.put32(scanner.flag)
        if self.sys_flag is not None:
            self.sys_flag.put32(scanner.sys_flag)
        if self.body_crc is not None:
            self.body_crc.put32(scanner.body_crc)
        if self.store_size is not None:
            self.store_size.put32(scanner.size)
        if self.commit_log_offset is not None:
            self.commit_log_offset.put64(scanner.physical_offset)
        if self.prepared_tx_offset is not None:
            self.prepared_tx_offset.put64(scanner.prepared_offset)
        if self.corrupt is not None:
            self.corrupt.put_null()
        self.rows += 1
        return 0

    cdef int add_lifted(self, Scanner scanner) except -1:
        """The properties that have columns of their own."""
        cdef Py_ssize_t tags, tags_size, keys, keys_size, unique, unique_size
        tags, tags_size, keys, keys_size, unique, unique_size = names_of(scanner)
        put_found(self.tags_column, scanner, tags, tags_size)
        put_found(self.keys, scanner, keys, keys_size)
        put_found(self.unique_key, scanner, unique, unique_size)
        return 0

    cdef int add_properties(self, const unsigned char *p, Py_ssize_t size) except -1:
        cdef const unsigned char *end = p + size
        cdef const unsigned char *stop
        cdef const unsigned char *mark
        cdef Column names = self.properties.keys, values = self.properties.values
        while p < end:
            stop = <const unsigned char *> memchr(p, 2, end - p)
            if stop == NULL:
                stop = end
            mark = <const unsigned char *> memchr(p, 1, stop - p)
            if mark != NULL and mark > p and mark + 1 < stop:
                names.put_text(p, mark - p)
                values.put_text(mark + 1, stop - mark - 1)
            p = stop + 1
        self.properties.offsets.put32(<int32_t> names.rows)
        return self.properties.is_there()

    def add_plainly(self, Scanner scanner):
        message = scanner.message()
        messages, reason = unpack(message, self.decompressing, self.max_body)
        if not self.verify:
            reason = None
        elif message.body and _crc32(message.body) != message.body_crc:
            messages, reason = [message], BAD_CRC
        if reason is not None and not judge(self.on_damage, message.physical_offset, reason):
            self.skipped += 1
            return
        for one in messages:
            if self.offset_from <= <int64_t> one.queue_offset < self.offset_to:
                self.add_values(values_of(one, self.names, self.broker, reason))
        self.size += added_size(message, messages)

    cdef int add_values(self, list values) except -1:
        cdef Column column
        for column, value in zip(self.all_columns, values):
            column.put_value(value)
        self.rows += 1
        return 0

    def damage(self, offset, size, reason):
        if not judge(self.on_damage, offset, reason):
            self.skipped += 1
            return
        self.add_values(damage_values(self.names, self.broker, offset, size, reason))

    def finish(self):
        import pyarrow as pa

        cdef Column column
        arrays = [column.array(pa, field.type) for column, field in zip(self.all_columns, self.schema)]
        self.rows = self.size = 0
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


cdef int put_found(Column column, Scanner scanner, Py_ssize_t at, Py_ssize_t size) except -1:
    if column is None:
        return 0
    if not size:
        return column.put_null()
    return column.put_text(bytes_at(scanner, at), size)
