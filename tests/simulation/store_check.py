"""Does a store hold what the model says, the whole of it and nothing else?"""

from kourou.store.store import Store

from .store_model import Model, Record

EVER = 2**50


def check(store: Store, model: Model, required: int) -> int:
    """Compare an idle store that was just opened, or all of whose records are dispatched. Where its log ends."""
    end = store.log.end
    assert end >= required, f"the log ends at {end}, and {required} bytes were safe"
    assert store.dispatched == end, f"the log ends at {end}, and readers see it up to {store.dispatched}"
    check_log(store, model)
    check_queues(store, model, end)
    check_index(store, model, end)
    return end


def check_log(store: Store, model: Model) -> None:
    """Every byte is as it was appended, the end is between two records, and nothing is behind it."""
    log, segments = store.log, store.log.segments
    assert log.end in model.ends, f"the log ends at {log.end}, amid a record"
    assert log.start <= model.gone, f"the log begins at {log.start}, and all from {model.gone} on was to stay"
    for start in segments.starts:
        stop = min(log.end, start + segments.file_size)
        found = segments.slice(start, max(stop - start, 0))
        assert found == model.image[start:stop], f"the segment at {start} differs before {stop}"
        tail = segments.file(start).buffer[max(stop - start, 0) :]
        assert not any(tail), f"something is behind {stop}, the end of the log"
    assert store.log.stored_ms == max((r.stored_ms for r in model.records if r.end <= log.end), default=0)


def check_queues(store: Store, model: Model, end: int) -> None:
    """Each record has its entry, and each entry its record."""
    expected = model.queues(end)
    first = max(store.log.start, model.gone)
    for topic, queue_id in set(store.queues.names()) | expected.keys():
        records = expected.get((topic, queue_id), [])
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            assert not any(record.offset >= first for record in records), f"queue {queue_id} of {topic} is missing"
            continue
        name = f"queue {queue_id} of {topic}"
        alive = [record for record in records if record.offset >= first]
        if not records:
            assert queue.end == 0, f"{name} has {queue.end} entries and should have none"
            continue
        assert queue.end == len(records), f"{name} ends at {queue.end} and not at {len(records)}"
        assert queue.next_offset == queue.end, f"{name} would go on at {queue.next_offset} and not at {queue.end}"
        if alive:
            assert queue.start <= _place(alive[0]), f"{name} begins at {queue.start}"
        for record in alive:
            found = queue.entry(_place(record))
            wanted = (record.offset, record.size, record.tags_code)
            assert found == wanted, f"{name} has {found} at {record.queue_offset} and not {wanted}"


def _place(record: Record) -> int:
    assert record.queue_offset is not None
    return record.queue_offset


def check_index(store: Store, model: Model, end: int) -> None:
    """Each key leads to its records, and to no others."""
    if store.index is None:
        return
    first = max(store.log.start, model.gone)
    for (topic, key), offsets in model.offsets_by_key(first, end).items():
        found = [int.from_bytes(record[28:36]) for record in store.reader.query(topic, key, 10_000, 0, EVER).records]
        found = sorted(offset for offset in found if offset >= first)
        assert found == offsets, f"key {key!r} of {topic} leads to {found} and not to {offsets}"
