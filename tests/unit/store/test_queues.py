"""Many queues: which of them are mapped, and that ten thousand need no more than a few do."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kourou.store.consume_queue import ConsumeQueue
from kourou.store.queues import CLOSED_IN_SLICE, Queues
from kourou.store.settings import StoreSettings
from kourou.testing.disk import SimulatedDisk

from .small import LOG, ROOT, SETTINGS, Small, message, new_disk

COUNT = 10_000
MAPPED_MAX = StoreSettings().mapped_queues_max
DESCRIPTORS = 1_024
FILES = 20
PROJECT = Path(__file__).parents[3]


def queues(disk: SimulatedDisk, mapped_max: int) -> Queues:
    found = Queues(disk, ROOT / "consumequeue", replace(SETTINGS, mapped_queues_max=mapped_max))
    found.load()
    return found


def put(queue: ConsumeQueue) -> None:
    queue.put(queue.queue_id * 100 + 100 * 100 * queue.end, 100, 7, queue.end)


def sync(these: Queues) -> None:
    for file in these.dirty_files():
        file.sync()
    these.let_go()


def test_idle_queues_are_unmapped_once_they_are_synced() -> None:
    these = queues(new_disk(), 4)
    for number in range(7):
        put(these.ensure("orders", number))
    assert (these.mapped_count, these.crowded) == (7, True), "all of them are to be synced"
    sync(these)
    assert (these.mapped_count, these.crowded) == (4, False)
    assert [queue.is_mapped for queue in these.opened()] == [False] * 3 + [True] * 4
    for number in range(7):
        assert these.ensure("orders", number).entry(0) == (number * 100, 100, 7)
        assert these.mapped_count <= 5


def test_one_that_is_used_stays() -> None:
    these = queues(new_disk(), 4)
    for number in range(8):
        put(these.ensure("orders", number))
        sync(these)
        these.ensure("orders", 0).entry(0)
    assert these.ensure("orders", 0).is_mapped
    assert not these.ensure("orders", 1).is_mapped


def test_twice_the_bound_is_the_end_and_a_sync_maps_them_again() -> None:
    """Nothing is lost by it: the next sync makes all of them safe."""
    disk = new_disk()
    these = queues(disk, 4)
    for round_ in range(3):
        for number in range(30):
            put(these.ensure("orders", number))
            assert these.mapped_count <= 8
        assert these.ensure("orders", 3).end == round_ + 1
    sync(these)
    assert these.mapped_count <= 4
    for image in disk.crash_images(5):
        found = queues(image, 4)
        for number in range(30):
            assert found.ensure("orders", number).end == 3


def test_a_store_that_is_crowded_syncs_sooner() -> None:
    small = Small()
    small.store.queues._mapped_max = 4
    small.work()
    small.send(*(message(b"x", queue_id=number) for number in range(7)))
    assert small.store.queues.crowded
    small.work(100)
    assert small.store.queues.mapped_count == 4
    assert [small.bodies(queue_id=number) for number in range(7)] == [[b"x"]] * 7


def test_a_new_queue_waits_for_no_disk_and_is_safe_before_the_checkpoint() -> None:
    small = Small()
    small.settle()
    small.disk.history.clear()
    small.send(message(b"1"), message(b"2", "payments"))
    assert "sync" not in {call for call, _ in small.disk.history}
    small.disk.history.clear()
    small.settle()
    calls = list(small.disk.history)
    new = [ROOT / "consumequeue" / topic / "0" for topic in ("orders", "payments")]
    checkpoint = calls.index(("replace", ROOT / "checkpoint"))
    for folder in new:
        assert ("sync_folder", folder) in calls[:checkpoint]
    for seed in range(10):
        small.disk.random = Random(seed)
        assert small.again(small.disk.crash()).bodies("payments") == [b"2"]


def test_a_new_queue_with_two_files_is_never_without_the_first() -> None:
    small = Small()
    small.settle()
    small.disk.history.clear()
    small.fill(SETTINGS.queue_file_entries + 1)
    made = small.disk.files(ROOT / "consumequeue" / "orders" / "0")
    assert len(made) == 2
    for seed in range(20):
        small.disk.random = Random(seed)
        small.again(small.disk.crash())  # a gap would be refused


def test_what_a_killed_process_made_lazily_is_made_safe_by_the_next() -> None:
    small = Small()
    small.settle()
    small.send(message(b"1"))
    other = small.again(small.disk.kill())
    for seed in range(10):
        other.disk.random = Random(seed)
        assert other.again(other.disk.crash()).bodies() == [b"1"]


def test_removed_queues_do_not_count() -> None:
    small = Small()
    small.send(*(message(b"x", queue_id=number) for number in range(7)))
    assert small.store.queues.mapped_count == 7
    small.store.remove_topic("orders")
    assert small.store.queues.mapped_count == 0


PROGRAM = f"""
import os, resource, sys
from dataclasses import replace
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS}))
from kourou.store.store import Store
from tests.unit.store.small import BEGIN_MS, HOST, SETTINGS, file_time, message
settings = replace(SETTINGS, commit_log_file_size=4 << 20, index_slots=5_000, index_entries=20_000)
def open_store():
    return Store.open(Path(sys.argv[1]), settings, store_host=HOST, now_ms=BEGIN_MS, file_time=file_time)
def look(store):
    mapped = sum("consumequeue" in line for line in open("/proc/self/maps"))
    assert mapped <= 2 * {MAPPED_MAX}, mapped
    assert store.queues.mapped_count <= 2 * {MAPPED_MAX}
    assert len(os.listdir("/proc/self/fd")) <= {FILES}, os.listdir("/proc/self/fd")
def read(store):
    for number in range({COUNT}):
        found = store.reader.get(f"topic-{{number // 100}}", number % 100, 0, 8)
        assert len(found.records) == 1, (number, found)
    look(store)
store = open_store()
for number in range({COUNT}):
    store.append([message(b"%d" % number, f"topic-{{number // 100}}", number % 100)], BEGIN_MS)
    store.dispatch()
look(store)
read(store)
store.flush(BEGIN_MS)
assert store.queues.mapped_count <= {MAPPED_MAX}
store.abandon()  # as a crash: the next start walks over all of it
store = open_store()
read(store)
store.close(BEGIN_MS)
print("done")
"""


@pytest.mark.slow
def test_ten_thousand_queues_with_a_thousand_descriptors(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), *sys.path])}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=PROJECT)
    assert done.stdout == "done\n", done.stderr[-2000:]


def test_a_queue_that_let_go_by_itself_does_not_lose_its_view_while_it_is_written() -> None:
    """`put` writes where the view says: unmapped in between, it would write into nowhere."""
    these = queues(new_disk(), 1)
    for queue_id in range(2):
        put(these.ensure("orders", queue_id))
    first = these.ensure("orders", 0)
    first.release(unsynced=True)  # as recovery does
    put(first)
    assert first.end == 2
    assert first.entry(1) == (10_000, 100, 7)


def test_queues_of_a_removed_topic_are_closed_in_slices() -> None:
    these = queues(SimulatedDisk(Random(1)), 4 * CLOSED_IN_SLICE)
    for queue_id in range(CLOSED_IN_SLICE + 2):
        put(these.ensure("wide", queue_id))
    assert these.remove_topic("wide") == CLOSED_IN_SLICE + 2
    assert these.get("wide", 0) is None
    put(these.ensure("wide", 0))
    assert these.mapped_count == 3
    these.close_forgotten()
    assert these.mapped_count == 1
    assert [queue.end for queue in these.opened()] == [1]


def test_a_topic_that_is_not_utf8_does_not_prevent_a_clean_stop() -> None:
    """A damaged record may have one."""
    small = Small()
    small.send(message(b"one"), message(b"two", "gone\ufffd"))
    small.settle()
    small.close()
    segment = LOG / f"{0:020}"
    content = small.disk.peek(segment) or b""
    small.disk.install(segment, content.replace("gone\ufffd".encode(), b"gone\xac\xac\xac"))
    small.disk.remove_folder(ROOT / "consumequeue")
    again = small.again()
    assert again.bodies() == [b"one"]
    again.close()
    assert again.disk.peek(ROOT / "abort") is None
    assert again.again().bodies() == [b"one"]
