"""`kourou store inspect`: the content of a store's files, as tables or as JSON."""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from kourou.cli.output import show, show_error, show_facts, show_json, show_table
from kourou.cli.times import iso_time as _time
from kourou.protocol.compression import decompress
from kourou.protocol.errors import BodyError
from kourou.protocol.record import Found, Scanner, StoredMessage
from kourou.store.errors import StoreError
from kourou.store.offline import StoreFiles
from kourou.store.queue_entries import BLANK_SIZE

Row = dict[str, Any]

SHOWN_BODY = 40


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options."""

    topic: str | None
    queue: int | None
    start: int | None
    count: int
    key: str | None


def inspect(root: Path, commit_log: Path | None, part: str, wanted: Wanted, *, as_json: bool) -> int:
    """The exit code."""
    try:
        files = StoreFiles.at(root, commit_log)
        if not files.is_store:
            raise StoreError(f"{root} is not a store: it has neither commitlog/ nor a checkpoint")
        rows = list(_PARTS[part](files, wanted))
    except (StoreError, OSError) as error:
        show_error(error)
        return 2
    if as_json:
        show_json(*rows)
    else:
        _show(rows)
    return 0


# ── Parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def overview(files: StoreFiles, wanted: Wanted) -> Iterator[Row]:  # noqa: ARG001
    """An overview of the store."""
    log = files.log
    names = files.queue_names()
    index = files.index_files()
    end, newest_ms = _end_of_log(files)
    first = next(log.records(log.start), None)
    yield {
        "root": str(files.paths.root),
        "last_run": "ended" if files.is_clean else "not closed: a broker is running, or did not stop cleanly",
        "segments": len(log.segments),
        "segment_size": log.file_size,
        "log_start": log.start,
        "log_end": end,
        "oldest_record": _time(first.stored_ms if first is not None else 0),
        "newest_record": _time(newest_ms),
        "topics": len({topic for topic, _ in names}),
        "queues": len(names),
        "index_files": len(index),
        "index_entries": sum(view.count - 1 for view in index),
    }


def _end_of_log(files: StoreFiles) -> tuple[int, int]:
    """The end of the log and the time of its last record, from the last segment that has a record."""
    log = files.log
    for segment in reversed(log.segments):
        scanner = log.scanner(segment.start, crc=False)
        if scanner is None or scanner.step() != Found.RECORD:
            continue
        stored_ms = scanner.stored_ms
        while scanner.step() == Found.RECORD:
            stored_ms = scanner.stored_ms
        return segment.start + scanner.at, stored_ms
    return log.start, 0


def records(files: StoreFiles, wanted: Wanted) -> Iterator[Row]:
    """Records by key, of a queue, or along the log."""
    if wanted.key is not None:
        found = _by_key(files, wanted)
    elif wanted.queue is not None:
        found = _of_queue(files, wanted)
    else:
        found = _along_the_log(files, wanted)
    return map(_record, islice(found, wanted.count))


def _along_the_log(files: StoreFiles, wanted: Wanted) -> Iterator[StoredMessage]:
    start = files.log.start if wanted.start is None else max(wanted.start, files.log.start)
    for scanner in files.log.records(start):
        if wanted.topic is None or scanner.topic == wanted.topic.encode():
            yield scanner.message()


def _of_queue(files: StoreFiles, wanted: Wanted) -> Iterator[StoredMessage]:
    assert wanted.topic is not None and wanted.queue is not None
    queue = files.queue(wanted.topic, wanted.queue)
    start = queue.live_from(files.log.start)
    for physical_offset, size, _ in queue.entries(max(start, wanted.start or 0)):
        if size != BLANK_SIZE:
            yield from _at(files, physical_offset)


def _by_key(files: StoreFiles, wanted: Wanted) -> Iterator[StoredMessage]:
    """Newest first. The index has hashes of keys, so the keys in the records are compared."""
    assert wanted.topic is not None and wanted.key is not None
    for view in reversed(files.index_files()):
        for physical_offset in view.find(wanted.topic, wanted.key):
            for message in _at(files, physical_offset):
                properties = message.properties
                keys = [*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY")]
                if message.topic == wanted.topic and wanted.key in keys:
                    yield message


def _at(files: StoreFiles, physical_offset: int) -> Iterator[StoredMessage]:
    scanner: Scanner | None = files.log.scanner(physical_offset)
    if scanner is not None and scanner.step() == Found.RECORD:
        yield scanner.message()


def _record(message: StoredMessage) -> Row:
    body = _body(message)
    row = {
        "log_offset": message.physical_offset,
        "size": message.size,
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored": _time(message.stored_ms),
        "born": _time(message.born_ms),
        "born_host": message.born_address,
        "store_host": message.store_address,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        "body_size": len(body),
    }
    try:
        return row | {"body": body.decode()}
    except UnicodeDecodeError:
        return row | {"body_base64": b64encode(body).decode()}


def _body(message: StoredMessage) -> bytes:
    """The body, decompressed if possible."""
    try:
        return decompress(message.body, message.sys_flag)
    except BodyError:
        return bytes(message.body)


def queues(files: StoreFiles, wanted: Wanted) -> Iterator[Row]:
    """The queues of one topic, or of all."""
    for topic, queue_id in files.queue_names():
        if wanted.topic not in (None, topic) or wanted.queue not in (None, queue_id):
            continue
        queue = files.queue(topic, queue_id)
        start, end = queue.live_from(files.log.start), queue.length
        yield {
            "topic": topic,
            "queue": queue_id,
            "min_offset": start,
            "max_offset": end,
            "messages": end - start,
            "oldest": _time(_stored_ms(files, queue.entry(start)) if start < end else 0),
            "newest": _time(_stored_ms(files, queue.entry(end - 1)) if start < end else 0),
            "files": len(queue.segments),
            "file_entries": queue.file_entries,
        }


def _stored_ms(files: StoreFiles, entry: tuple[int, int, int] | None) -> int:
    return next((message.stored_ms for message in _at(files, entry[0])), 0) if entry is not None else 0


def index(files: StoreFiles, wanted: Wanted) -> Iterator[Row]:
    """The files of the index, or the log offsets of a key."""
    if wanted.key is not None:
        yield from records(files, wanted)
        return
    for view in files.index_files():
        yield {
            "file": view.path.name,
            "entries": view.count - 1,
            "room_for": view.entry_limit - 1,
            "slots_used": view.slots_used,
            "slots": view.slot_count,
            "begin": _time(view.begin_ms),
            "end": _time(view.end_ms),
            "begin_log_offset": view.begin_physical,
            "end_log_offset": view.end_physical,
        }


def checkpoint(files: StoreFiles, wanted: Wanted) -> Iterator[Row]:  # noqa: ARG001
    """The values of the checkpoint."""
    found = files.checkpoint()
    if found is None:
        raise StoreError(f"{files.paths.checkpoint} does not exist")
    yield {
        "log_safe": _time(found.physical_ms),
        "queues_safe": _time(found.logical_ms),
        "index_safe": _time(found.index_ms),
        "recovery_from": _time(found.recovery_ms),
        "master_flushed_offset": found.master_flushed,
        "confirm_offset": found.confirm,
        "queues_safe_offset": found.logical_physical,
        "problem": found.problem,
    }


_PARTS = {"overview": overview, "records": records, "queues": queues, "index": index, "checkpoint": checkpoint}


# ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(rows: list[Row]) -> None:
    if not rows:
        show("nothing found")
    elif len(rows) == 1 and "log_offset" not in rows[0]:
        show_facts({name.replace("_", " "): _value(name, value) for name, value in rows[0].items()})
    else:
        shown = [_shortened(row) for row in rows]
        columns = [name.replace("_", " ") for name in shown[0]]
        show_table(columns, ([_value(name, value) for name, value in row.items()] for row in shown), fold=False)


def _shortened(row: Row) -> Row:
    """A record, cut to what fits on a line."""
    if "properties" not in row:
        return row
    properties = row["properties"]
    body: str = row["body"] if "body" in row else row["body_base64"]
    return {
        **{name: row[name] for name in ("log_offset", "size", "topic", "queue", "offset", "stored", "born_host")},
        "tags": properties.get("TAGS", ""),
        "keys": properties.get("KEYS", ""),
        "body": body if len(body) <= SHOWN_BODY else f"{body[: SHOWN_BODY - 1]}…",
    }


def _value(name: str, value: Any) -> Any:
    if value is None:
        return "-"
    if isinstance(value, int) and name in ("messages", "entries", "index_entries", "queues", "records"):
        return f"{value:,}"
    return value
