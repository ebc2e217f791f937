"""Checks that a store has exactly the contents of the model."""

from kourou.store.queue_entries import BLANK_SIZE
from kourou.store.store import Store

from .store_model import Model

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
        assert bytes(found) == model.image[start:stop], f"the segment at {start} differs before {stop}"
        tail = segments.file(start).buffer[max(stop - start, 0) :]
        assert bytes(tail) == bytes(len(tail)), f"something is behind {stop}, the end of the log"
    times = [record.stored_ms for record in model.records if log.start <= record.offset and record.end <= log.end]
    assert not times or log.stored_ms == max(times)


def check_queues(store: Store, model: Model, end: int) -> None:
    """Each record has its entry, and each entry its record."""
    expected = model.queues(end)
    for topic, queue_id in set(store.queues.names()) | expected.keys():
        name = f"queue {queue_id} of {topic}"
        records = expected.get((topic, queue_id), {})
        needed = {place for place, record in records.items() if model.must_stay(record)}
        queue = store.queues.get(topic, queue_id)
        if queue is None:
            assert not needed, f"{name} is missing"
            continue
        wanted_end = max(records, default=-1) + 1
        assert queue.end == wanted_end or (not needed and queue.end < wanted_end), (
            f"{name} ends at {queue.end} and not at {wanted_end}"
        )
        assert queue.next_offset == queue.end, f"{name} would go on at {queue.next_offset} and not at {queue.end}"
        assert needed <= set(range(queue.start, queue.end)), f"{name} begins at {queue.start}, too late"
        for place in range(queue.start, queue.end):
            found = queue.entry(place)
            banned = model.banned.get((topic, queue_id), 0)
            assert found[0] >= banned or found[1] == BLANK_SIZE, f"{name} has entry {place} again, which was removed"
            record = records.get(place)
            wanted = None if record is None else (record.offset, record.size, record.tags_code)
            is_blank = found[1] == BLANK_SIZE and place not in needed
            assert found == wanted or is_blank, f"{name} has {found} at {place} and not {wanted}"


def check_index(store: Store, model: Model, end: int) -> None:
    """Each key leads to its records, and to no others."""
    if store.index is None:
        return
    first = max(store.log.start, model.gone)
    for (topic, key), offsets in model.offsets_by_key(first, end).items():
        found = [int.from_bytes(record[28:36]) for record in store.reader.query(topic, key, 10_000, 0, EVER).records]
        found = sorted(offset for offset in found if offset >= first)
        assert found == offsets, f"key {key!r} of {topic} leads to {found} and not to {offsets}"
