"""Trace records, of new and old clients, and of those that write something else."""

from kourou.protocol.traces import decode_traces, encode_trace


def fields(text: str) -> list[str]:
    return text.split()


PUB = fields("Pub 1700000000000 DefaultRegion producers orders ID tag key 127.0.0.1:10911 5 12 0 OFFSET-ID true")


def test_all_kinds() -> None:
    records = [
        PUB,
        fields("SubBefore 1700000000001 DefaultRegion billing REQUEST ID 0 key"),
        fields("SubAfter REQUEST ID 7 false key 4 1700000000009 billing"),
        fields("EndTransaction 1700000000002 DefaultRegion tx orders ID tag key host 2 TID COMMIT_MESSAGE false"),
        fields("Recall 1700000000003 DefaultRegion producers orders ID true"),
    ]
    found = decode_traces("".join(encode_trace(*record) for record in records).encode())
    assert [trace.kind for trace in found] == [record[0] for record in records]
    assert {trace.message_id for trace in found} == {"ID"}
    pub, before, after, end, recall = found
    assert (pub.group, pub.topic, pub.time_ms, pub.cost_ms, pub.is_success) == (
        *("producers", "orders"),
        *(1700000000000, 12, True),
    )
    assert (before.group, before.request_id, before.keys) == ("billing", "REQUEST", "key")
    assert (after.group, after.request_id, after.cost_ms, after.is_success) == ("billing", "REQUEST", 7, False)
    assert (end.transaction_state, end.group) == ("COMMIT_MESSAGE", "tx")
    assert recall.is_success


def test_records_of_older_clients() -> None:
    without_offset_id = [*PUB[:12], "true"]
    with_host = [*PUB, "127.0.0.1"]
    short_after = fields("SubAfter REQUEST ID 7 true key 0")
    body = "".join(encode_trace(*record) for record in (without_offset_id, with_host, short_after)).encode()
    first, second, after = decode_traces(body)
    assert first.is_success and second.is_success
    assert (after.time_ms, after.group, after.is_success) == (None, None, True)


def test_null_is_none() -> None:
    (found,) = decode_traces(encode_trace(*[*PUB[:7], "null", *PUB[8:]]).encode())
    assert found.keys is None


def test_records_that_are_not_valid_are_left_out() -> None:
    broken = [PUB[:9], ["Pub", "x", *PUB[2:]], ["Other", "1"], [""], [*PUB[:10], "9" * 30, *PUB[11:]]]
    body = "".join(encode_trace(*record) for record in (*broken, PUB)).encode() + b"\xff\x01\x02Pub"
    assert [trace.message_id for trace in decode_traces(body)] == ["ID"]


def test_a_separator_inside_a_field_is_left_out() -> None:
    assert encode_trace("a\x01b", "c\x02") == "ab\x01c\x02"
