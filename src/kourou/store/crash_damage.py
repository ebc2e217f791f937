"""Records of which a crash has lost a part that their CRC does not cover."""

from kourou.protocol.record import RECORD_CRC_SIZE, CorruptRecordError, Scanner, check_record_crc

SECTOR = 512
_CRC_NAME = b"__CRC32#\x01"


def is_torn(buffer: memoryview, scanner: Scanner, *, sealed: bool = False) -> bool:
    """Did a crash lose part of a record whose body holds?

    Sectors are written whole or not at all, and what was never written is zero. A lost sector with sizes in it leaves
    no record, and one with a part of the body leaves one that does not fit its CRC. What remains are the topic and the
    properties, which contain no zeros: a record of ours whose properties do ends in a CRC over all of it. Other brokers
    write zeros without it, if a client sends some. So a zero without that CRC is a part that is missing if it stands
    where such a part begins or ends: at the edge of a sector, or at the end of the record.

    Where a disk may tear sectors, too, `enabledAppendPropCRC` gives such a CRC to every record: they are `sealed`, and
    where one is, it decides. Otherwise it proves nothing, for a client can send a property of that name.
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
