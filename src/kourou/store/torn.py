"""Records of which a crash has lost a part that their CRC does not cover."""

from kourou.protocol.record import CorruptRecordError, Scanner, check_record_crc

SECTOR = 512


def is_torn(buffer: memoryview, scanner: Scanner) -> bool:
    """Did a crash lose part of the topic or properties of a record whose body holds?

    The CRC covers the body alone, and what was never written is zero. Neither topics nor properties contain zeros: a
    record of ours whose properties do ends in a CRC over all of it. Other brokers write zeros without it, if a client
    sends some. So a zero without that CRC is a part that is missing if it stands where such a part begins or ends: at
    the edge of a sector, or at the end of the record.
    """
    start, end = scanner.topic_at, scanner.next_at
    region = bytes(buffer[start:end])
    if 0 not in region[: scanner.topic_size] and 0 not in region[scanner.topic_size + 2 :]:
        return False
    try:
        check_record_crc(buffer, scanner.at)
        return False
    except CorruptRecordError:
        edges = range(start + SECTOR - start % SECTOR, end, SECTOR)
        return buffer[end - 1] == 0 or any(buffer[edge - 1] == 0 or buffer[edge] == 0 for edge in edges)
