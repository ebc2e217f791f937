"""Detects records that lost a part in a crash which their CRC does not cover."""

from kourou.protocol.record import RECORD_CRC_SIZE, CorruptRecordError, Scanner, check_record_crc

SECTOR = 512
_CRC_NAME = b"__CRC32#\x01"


def is_torn(buffer: memoryview, scanner: Scanner, *, sealed: bool = False) -> bool:
    """True if a crash lost part of a record whose body is valid.

    Sectors are written completely or not at all, and unwritten sectors are zero. A lost sector with sizes in it leaves
    no record, and one with a part of the body leaves a record that does not match its CRC. What remains are topic and
    properties, which contain no zeros: a record of Kourou whose properties do ends with a CRC over the whole record.
    Other brokers write zeros without it, if a client sends them. So a zero without that CRC counts as a lost part if
    it is where such a part begins or ends: at a sector boundary, or at the end of the record.

    For disks that may tear sectors, `enabledAppendPropCRC` gives every record such a CRC: then they are `sealed`, and
    the CRC decides. Otherwise a CRC proves nothing, because a client can send a property of that name.
    """
    start, end = scanner.topic_at, scanner.next_at
    region = bytes(buffer[start:end])
    sealed = sealed and region[-RECORD_CRC_SIZE:].startswith(_CRC_NAME)
    if not sealed and 0 not in region[: scanner.topic_size] and 0 not in region[scanner.topic_size + 2 :]:
        return False
    try:
        check_record_crc(buffer, scanner.at)
        return False
    except CorruptRecordError:
        edges = range(start + SECTOR - start % SECTOR, end, SECTOR)
        return sealed or buffer[end - 1] == 0 or any(buffer[edge - 1] == 0 or buffer[edge] == 0 for edge in edges)
