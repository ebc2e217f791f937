"""One simulated life of a store: a seed decides about messages, the order of jobs, and failures of the disk.

    run ──▶ store ──▶ ObservedDisk ── before and after every boundary ──▶ images of a power cut here
                                                                            └▶ opened, checked, used, crashed again

The run goes on over crashes, kills and clean stops of its own. At each boundary of the disk, before and after its
effect, the disk that a power cut would leave is opened and held against the model; nothing of it touches the run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from kourou.store.durability import FLUSHED, Token
from kourou.store.errors import IllegalMessageError
from kourou.store.jobs import Job, RewriteLog, SyncLog
from kourou.store.settings import FlushMode, StoreSettings
from kourou.store.store import Store
from kourou.testing.disk import SimulatedCrash, SimulatedDisk
from kourou.testing.disk_parts import Change, Inode

from .store_check import check
from .store_messages import V4, V6, Messages
from .store_model import Model

ROOT = Path("/store")
BEGIN_MS = 1_700_000_000_000
REPLICAS = "replicas"


def file_time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y%m%d%H%M%S%f")[:17]


def take_over_numbers(store: Store, model: Model) -> None:
    """A queue all of whose records may be gone goes on where the store says, which has perhaps forgotten it."""
    for name, records in model.queues(model.end).items():
        if not any(map(model.must_stay, records.values())):
            queue = store.queues.get(*name)
            model.renumber(name, 0 if queue is None else queue.next_offset)


class ObservedDisk(SimulatedDisk):
    """Reports every boundary to a listener, immediately before its effect and after it."""

    on_boundary: Callable[[bool], None] | None = None

    @contextmanager
    def _change(self, call: Change, path: Path, synced: Inode | None = None) -> Iterator[int]:
        if self.on_boundary is not None:
            self.on_boundary(False)
        with super()._change(call, path, synced) as late:
            yield late
        if self.on_boundary is not None:
            self.on_boundary(True)

    def image(self, seed: object) -> SimulatedDisk:
        """The possible disks after a power failure now; the same for the same seed, without an effect on this one."""
        mine, self.random = self.random, Random(str(seed))
        try:
            return self.crash()
        finally:
            self.random = mine

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """No faults for a while, and no listener."""
        kept = self._faults, self._chances, self.read_only, self.capacity, self.on_boundary
        self._faults, self._chances, self.read_only, self.capacity, self.on_boundary = [], {}, False, None, None
        try:
            yield
        finally:
            self._faults, self._chances, self.read_only, self.capacity, self.on_boundary = kept

    @classmethod
    def after(cls, disk: SimulatedDisk) -> "ObservedDisk":
        """The successor of a disk, observed."""
        observed = cls(disk.random)
        observed.__dict__.update({name: value for name, value in disk.__dict__.items() if name != "on_boundary"})
        return observed


@dataclass(slots=True)
class Run:
    """A life in progress."""

    seed: int
    images: int = 1  # of each side of each boundary
    steps: int = 60
    trace: list[str] = field(default_factory=list)
    boundaries: int = 0
    checked: int = 0
    random: Random = field(init=False)
    settings: StoreSettings = field(init=False)
    replicated: bool = field(init=False)  # senders and consumers wait for replicas, too
    host: bytes = field(init=False)
    model: Model = field(init=False)
    messages: Messages = field(init=False)
    disk: ObservedDisk = field(init=False)
    store: Store = field(init=False)
    now_ms: int = BEGIN_MS
    waiting: list[Job] = field(default_factory=list)  # jobs that no worker has run yet
    done: list[Job] = field(default_factory=list)  # jobs that were run and not given back
    tokens: dict[int, int] = field(default_factory=dict)  # who waits for which offset
    asked: int = 0  # tokens so far

    def __post_init__(self) -> None:
        self.random = random = Random(f"store {self.seed}")
        self.settings = StoreSettings(
            commit_log_file_size=random.choice((4096, 8192, 16384)),
            queue_file_entries=random.choice((10, 50)),
            mapped_queues_max=random.choice((1, 4096)),
            index_slots=random.choice((4, 16)),
            index_entries=random.choice((16, 64)),
            max_body_size=3000,
            record_crc=random.random() < 0.4,
            flush_mode=random.choice((FlushMode.SYNC, FlushMode.ASYNC)),
            flush_interval_ms=10,
            flush_least_pages=random.choice((0, 1)),
            queue_flush_interval_ms=random.choice((0, 20)),
            queue_flush_least_pages=0,
            reserved_hours=1,
            delete_when="04",
            read_uncommitted=random.random() < 0.3,
        )
        self.replicated = random.random() < 0.3
        self.host = V6 if random.random() < 0.3 else V4
        self.model = Model(self.settings.commit_log_file_size, self.host, self.settings.record_crc)
        self.messages = Messages(random, self.settings.commit_log_file_size)
        self.disk = ObservedDisk(random)
        # A half-written sector may change fields that only a CRC over the whole record covers.
        self.disk.tears = self.settings.record_crc

    def run(self) -> None:
        """The whole life."""
        self.observe()
        self.open()
        for _ in range(self.steps):
            self.step()
        self.close()
        self.open()

    # ── The life ──────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        random = self.random
        self.now_ms += random.choice((0, 0, 0, 1, 30, 30, 700, 4000))
        self.disk.now_ms = self.now_ms
        choices = self.choices()
        action: Callable[[], None] = getattr(self, random.choices(list(choices), list(choices.values()))[0])
        action()

    def choices(self) -> dict[str, int]:
        """What may happen next, and how often it does."""
        return {
            "append": 30,
            "dispatch": 12,
            "ask_for_jobs": 14,
            "run_job": 14,
            "give_back": 14,
            "flush": 2,
            "read": 3,
            "replicate": 6,
            "tell_late": 2,
            "write_back": 3,
            "expire": 2,
            "remove_topic": 1,
            "truncate": 1,
            "restart": 2,
            "kill": 2,
            "crash": 2,
        }

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms - BEGIN_MS} {text}")

    def open(self) -> None:
        self.note("open")
        self.store = self.open_on(self.disk)
        with self.disk.at_rest():
            check(self.store, self.model, self.model.safe)
        self.model.cut(self.store.log.end)
        self.model.safe = self.store.log.end
        take_over_numbers(self.store, self.model)
        if self.replicated:
            self.store.durability.require(REPLICAS, self.store.log.end, timeout_ms=3_000)
        self.note(f"opened at {self.store.log.end} {self.store.report}")

    def open_on(self, disk: SimulatedDisk) -> Store:
        return Store.open(ROOT, self.settings, store_host=self.host, now_ms=self.now_ms, file_time=file_time, disk=disk)

    def append(self) -> None:
        random, store, model = self.random, self.store, self.model
        if random.random() < 0.03:
            self.append_too_large()
            return
        messages = self.messages.some(random.choice((1, 1, 1, 2, 5)), model.room)
        together = len(messages) > 1 and random.random() < 0.5
        self.note(f"append {len(messages)} together={together} at {store.log.end}")
        expected = model.append(messages, self.now_ms, together=together)
        try:
            appended = store.append(messages, self.now_ms, together=together)
        except IllegalMessageError:
            assert together, "a batch that fits no segment"
            model.cut(store.log.end)
            return
        assert [a.physical_offset for a in appended] == [r.offset for r in expected]
        assert [a.queue_offset for a in appended] == [r.queue_offset or 0 for r in expected]
        assert store.log.end == model.end
        if random.random() < 0.5:
            self.asked += 1
            token = self.asked
            if store.durability.wait(store.log.end, token, self.now_ms):
                self.may_be_answered(store.log.end)
            else:
                self.tokens[token] = store.log.end

    def may_be_answered(self, end: int) -> None:
        durability = self.store.durability
        if self.settings.flush_mode is FlushMode.SYNC:
            assert durability.flushed >= end, "answered before the flush"
        assert durability.confirmed is None or durability.confirmed >= end, "answered before the replicas have it"
        assert durability.answerable_to >= end

    def append_too_large(self) -> None:
        before = self.store.log.end
        try:
            self.store.append([self.messages.too_large()], self.now_ms)
        except IllegalMessageError:
            assert self.store.log.end == before
        else:
            raise AssertionError("a message larger than a segment was taken")

    def dispatch(self) -> None:
        self.note("dispatch")
        self.store.dispatch()
        durability, visible = self.store.durability, self.store.dispatched
        if not self.settings.read_uncommitted:
            if self.settings.flush_mode is FlushMode.SYNC:
                assert visible <= self.model.safe, "readers see what is not flushed"
            assert durability.confirmed is None or visible <= durability.confirmed, "readers see what no replica has"

    def ask_for_jobs(self) -> None:
        jobs = self.store.jobs(self.now_ms)
        self.model.gone = max(self.model.gone, self.store.log.start)
        self.note(f"jobs {[type(job).__name__ for job in jobs]}")
        self.waiting += jobs

    def run_job(self) -> None:
        if self.waiting:
            job = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.note(f"run {type(job).__name__}")
            job.run()
            self.done.append(job)

    def give_back(self) -> None:
        if self.done:
            job = self.done.pop(self.random.randrange(len(self.done)))
            self.note(f"finished {type(job).__name__}")
            self.answered(self.store.finished(job, self.now_ms))

    def answered(self, tokens: list[Token]) -> None:
        self.model.safe = max(self.model.safe, self.store.durability.flushed)
        for token in tokens:
            assert isinstance(token, int)
            self.may_be_answered(self.tokens.pop(token))

    def replicate(self) -> None:
        """Replicas have some more."""
        confirmed = self.store.durability.confirmed
        if confirmed is not None:
            end = self.random.choice((self.store.log.end, self.random.randint(confirmed, self.store.log.end)))
            self.note(f"replicas have {end}")
            self.answered(self.store.durability.reached(REPLICAS, end))

    def tell_late(self) -> None:
        for token, missing in self.store.durability.late(self.now_ms):
            assert isinstance(token, int)
            end, durability = self.tokens.pop(token), self.store.durability
            reached = durability.flushed if missing == FLUSHED else durability.confirmed
            assert reached is not None and reached < end, f"late for {missing}, which is there"

    def forget_replicas(self) -> None:
        """Everything is visible, and no sender waits for replicas."""
        if self.store.durability.confirmed is not None:
            self.answered(self.store.durability.drop(REPLICAS))
            self.store.dispatch()

    def flush(self) -> None:
        if any(isinstance(job, SyncLog | RewriteLog) for job in self.waiting + self.done):
            return
        self.note("flush")
        self.answered(self.store.flush(self.now_ms))
        assert self.model.safe == self.store.log.end
        visible_to = self.store.durability.visible_to  # replicas may have a part of a record
        assert self.store.dispatched >= max((end for end in self.model.ends if end <= visible_to), default=0)

    def expire(self) -> None:
        """Everything is old by now, and may go."""
        self.note("expire")
        self.now_ms += 2 * 3_600_000
        self.store.remove_expired()

    def remove_topic(self) -> None:
        """Its queues are removed, and begin again with the next message, unless old ones are still to come."""
        topic = self.messages.one().topic
        self.note(f"remove {topic}")
        self.model.remove_topic(topic)
        try:
            self.store.remove_topic(topic)
            self.store.keep_removed()
            self.model.was_removed(topic)
        finally:
            self.go_on_with_queues(topic)

    def go_on_with_queues(self, topic: str) -> None:
        for name in self.model.removed:
            if name[0] == topic:
                self.model.renumber(name, self.store.queues.ensure(*name).next_offset)

    def truncate(self) -> None:
        """Back to where some record ended. A crash amid that may leave more, and nothing else."""
        if any(isinstance(job, SyncLog | RewriteLog) for job in self.waiting + self.done):
            return
        ends = [end for end in self.model.ends if end >= max(self.store.log.start, self.model.gone)]
        if not ends:
            return
        end = self.random.choice(ends[-8:] if self.random.random() < 0.8 else ends)
        self.note(f"truncate at {end}")
        self.model.safe = min(self.model.safe, end)
        lost = {token for token, upto in self.tokens.items() if upto > end}
        self.answered(self.store.truncate(end, self.now_ms))
        self.model.cut(end)
        self.model.safe = end
        self.were_cut(lost)
        self.forget_replicas()
        with self.disk.at_rest():
            check(self.store, self.model, end)
        take_over_numbers(self.store, self.model)

    def were_cut(self, lost: set[int]) -> None:
        cut = set(self.store.durability.take_cut())
        assert cut == lost, f"{cut} are told that their messages are lost, and {lost} are"
        self.tokens = {token: upto for token, upto in self.tokens.items() if token not in lost}

    def write_back(self) -> None:
        self.note("write back")
        self.disk.write_back(self.random.choice((0.1, 0.5, 0.9)))

    def read(self) -> None:
        names = list(self.model.queues(self.model.end))
        if not names:
            return
        topic, queue_id = self.random.choice(names)
        places = self.model.queues(self.visible_end()).get((topic, queue_id), {})
        queue = self.store.queues.get(topic, queue_id)
        start = queue.start if queue is not None else 0
        records = [record for place, record in sorted(places.items()) if place >= start]
        if not all(map(self.model.must_stay, records)):
            return
        offset = self.random.randint(0, len(records) + 1)
        found = self.store.reader.get(topic, queue_id, start + offset, 32)
        wanted = [bytes(self.model.image[record.offset : record.end]) for record in records[offset:]]
        self.was_read([bytes(record) for record in found.records], wanted)

    def visible_end(self) -> int:
        return self.store.dispatched

    def was_read(self, found: list[bytes], wanted: list[bytes]) -> None:
        assert found == wanted[: len(found)]
        assert found or not wanted

    # ── Its ends ──────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        self.note("close")
        for job in self.waiting:
            job.run()
        for job in self.done + self.waiting:
            self.answered(self.store.finished(job, self.now_ms))
        self.waiting, self.done = [], []
        self.store.close(self.now_ms)
        self.closed()
        self.model.safe = self.model.end
        self.tokens.clear()

    def closed(self) -> None:
        assert self.store.log.end == self.model.end

    def restart(self) -> None:
        self.close()
        self.open()

    def kill(self) -> None:
        """The process ends, the system goes on: nothing that was appended may be missing."""
        self.note("kill")
        self.end_by(self.disk.kill)
        whole = self.model.end
        self.open()
        assert self.store.log.end == whole, f"killed at {whole}, and the log ends at {self.store.log.end}"

    def crash(self) -> None:
        self.note("crash")
        self.end_by(self.disk.crash)
        self.open()

    def end_by(self, what: Callable[[], SimulatedDisk]) -> None:
        self.waiting, self.done = [], []
        self.tokens.clear()
        self.disk = ObservedDisk.after(what())
        self.observe()

    # ── Crashes at every boundary ─────────────────────────────────────────────────────────────────────────────────

    def observe(self) -> None:
        if self.images:
            self.disk.on_boundary = self.at_boundary

    def at_boundary(self, after: bool) -> None:
        self.boundaries += not after
        for number in range(self.images):
            name = f"{self.seed} {self.boundaries} {after} {number}"
            try:
                self.check_image(self.disk.image(name), Random(name))
            except Exception as error:
                side = "after" if after else "before"
                error.add_note(
                    f"a crash {side} boundary {self.boundaries}, image {number}: {list(self.disk.history)[-1:]}"
                )
                raise

    def check_image(self, disk: SimulatedDisk, random: Random) -> None:
        """Open the disk after a power failure, perhaps with another one during recovery, and use it for a while."""
        self.checked += 1
        for _ in range(random.choice((0, 0, 1, 2))):
            disk.crash_at, disk.crash_after = disk.calls + random.randint(1, 12), random.random() < 0.5
            with suppress(SimulatedCrash):
                self.open_on(disk)
            disk = disk.crash()
        disk.crash_at = None
        store = self.open_on(disk)
        end = check(store, self.model, self.model.safe)
        if random.random() < 0.3:
            self.go_on(store, disk, random, end)

    def go_on(self, store: Store, disk: SimulatedDisk, random: Random, end: int) -> None:
        model = self.model.copy()
        model.cut(end)
        model.safe = end
        take_over_numbers(store, model)
        messages = Messages(random, model.file_size)
        for _ in range(random.randint(1, 4)):
            some = messages.some(random.randint(1, 3), model.room)
            model.append(some, self.now_ms, together=False)
            store.append(some, self.now_ms)
        fate = random.randrange(3)
        if fate == 0:
            store.flush(self.now_ms)
            model.safe = model.end
        elif fate == 1:
            store.close(self.now_ms)
            model.safe = model.end
        store = self.open_on(disk.crash() if random.random() < 0.5 else disk.kill())
        check(store, model, model.safe)
