"""The requests of the name server's benchmark, in the form in which a real 5.5.0 broker and client send them.

All are made before the clock starts. A registration of 10,000 topics has 1.8 MB, so a handful of them is sent again and
again; each differs from the one before, which is all that a name server compares it with.
"""

import random
import zlib
from collections.abc import Iterable, Sequence

from kourou.protocol.codes import RequestCode
from kourou.protocol.command import Command, encode

BROKER = "broker-a"
CLUSTER = "BenchCluster"
STARTED_MS = 1_700_000_000_000
USUAL_QUEUES = 8


def topic_names(count: int) -> list[str]:
    """In no order, as they come out of a Java map."""
    names = [f"OrderEvents-{number:05d}" for number in range(count)]
    random.Random(count).shuffle(names)
    return names


def route_query(topic: str) -> bytes:
    return _request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})


def empty_registration() -> bytes:
    """What must come first: a name server refuses a single topic of a broker that it does not know."""
    return _registration(_wrapper([], counter=0, mapping_ms=0))


def unchanged_registrations(topics: Sequence[str], count: int) -> list[bytes]:
    """What a broker of 5.x sends every 30 s while nothing changes.

    Its topics and their version stay, but `mappingDataVersion` bears the time of sending, and with it the CRC changes.
    """
    table = [_topic(name, USUAL_QUEUES) for name in topics]
    return [_registration(_wrapper(table, counter=1, mapping_ms=30_000 * n)) for n in range(count)]


def repeated_registration(topics: Sequence[str]) -> bytes:
    """What a broker of 4.9, which knows no mappings, sends every 30 s while nothing changes: the same bytes."""
    return _registration(_wrapper([_topic(name, USUAL_QUEUES) for name in topics], counter=1, mapping_ms=None))


def changed_registrations(topics: Sequence[str], at_most: int) -> list[bytes]:
    """What a broker sends after a change: another version of its topics, and one topic has other queues than before.

    That holds from each to the next and from the last to the first: half of them add a queue to a topic each, the other
    half take these queues away again.
    """
    table = [_topic(name, USUAL_QUEUES) for name in topics]
    half = min(at_most // 2, len(topics))
    frames: list[bytes] = []
    for n in range(2 * half):
        at = n % half * len(topics) // half
        table[at] = _topic(topics[at], USUAL_QUEUES + (n < half))
        frames.append(_registration(_wrapper(table, counter=2 + n, mapping_ms=30_000 * n)))
    return frames


def add_write_permission() -> bytes:
    """Touches every topic of the broker, so that no route which was made before can be used again."""
    return _request(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": BROKER})


def _topic(name: str, queues: int) -> bytes:
    """An entry of `topicConfigTable`; its keys are in Java's order, which is the alphabet's."""
    return (
        b'"%b":{"attributes":{},"order":false,"perm":6,"readQueueNums":%d,"topicFilterType":"SINGLE_TAG",'
        b'"topicName":"%b","topicSysFlag":0,"writeQueueNums":%d}'
    ) % (name.encode(), queues, name.encode(), queues)


def _wrapper(table: Iterable[bytes], counter: int, mapping_ms: int | None) -> bytes:
    parts = [b'"dataVersion":%b' % _version(counter, counter)]
    if mapping_ms is not None:
        parts.append(b'"mappingDataVersion":%b' % _version(0, mapping_ms))
    parts.append(b'"topicConfigTable":{%b}' % b",".join(table))
    if mapping_ms is not None:
        parts.append(b'"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{}')
    return b"{%b}" % b",".join(parts)


def _version(counter: int, ms: int) -> bytes:
    return b'{"counter":%d,"stateVersion":0,"timestamp":%d}' % (counter, STARTED_MS + ms)


def _registration(wrapper: bytes) -> bytes:
    body = b'{"filterServerList":[],"topicConfigSerializeWrapper":%b}' % wrapper
    fields = {
        "brokerId": "0",
        "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        "clusterName": CLUSTER,
        "brokerAddr": "127.0.0.1:10911",
        "enableActingMaster": "false",
        "haServerAddr": "127.0.0.1:10912",
        "compressed": "false",
        "brokerName": BROKER,
    }
    return _request(RequestCode.REGISTER_BROKER, fields, body)


def _request(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    return encode(Command(code, 1, language="JAVA", ext=fields, body=body))
