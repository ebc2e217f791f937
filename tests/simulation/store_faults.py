"""A store's life on a disk that fails, fills up, turns read-only and forgets.

Refusals are expected, and each must be a DiskFullError or DiskFailedError that says why. Reading goes on. Whatever was
promised to be safe stays; and when the disk is well again, so is the store, without being told.
"""

import errno
import math
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import get_args

from kourou.store.errors import DiskFailedError, DiskFullError, StoreError
from kourou.store.jobs import RewriteLog
from kourou.store.settings import FlushMode
from kourou.testing.disk import SimulatedDisk
from kourou.testing.disk_parts import Call

from .store_check import check
from .store_run import Run

CALLS: tuple[Call, ...] = get_args(Call)
ERRORS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES)
WHERE = ("*", "*", "*/commitlog/*", "*/consumequeue/*", "*/index/*", "*/checkpoint")

REFUSALS = (DiskFullError, DiskFailedError)


@dataclass(slots=True)
class FaultyRun(Run):
    """As `Run`, and things go wrong."""

    evicted: bool = False  # the system has dropped what it never wrote: a kill may lose it, too
    refusals: int = 0

    def choices(self) -> dict[str, int]:
        return Run.choices(self) | {"fail": 6, "fill": 3, "read_only": 1, "evict": 2, "heal": 6, "truncate": 0}

    def run(self) -> None:
        Run.run(self)
        self.recuperate()

    # ── What befalls the disk ─────────────────────────────────────────────────────────────────────────────────────

    def fail(self) -> None:
        random = self.random
        call, code = random.choice(CALLS), random.choice(ERRORS)
        times = random.choice((1, 1, 2, 5, math.inf))
        where = random.choice(WHERE)
        late = random.random() < 0.3
        self.note(f"{call} will fail {times} times with {errno.errorcode[code]} at {where}, late={late}")
        self.disk.fail(call, code, where=where, after=random.randint(0, 3), times=times, late=late)

    def fill(self) -> None:
        room = self.random.choice((0, 0, 4096, 3 * 4096, 20_000))
        self.note(f"room for {room} bytes")
        self.disk.full_after(room)

    def read_only(self) -> None:
        self.note("read-only")
        self.disk.read_only = True

    def evict(self) -> None:
        """Only pages of files whose sync failed can be lost, and only then is it time to look at them again."""
        if self.store.log.failed is not None:
            self.note("evict")
            self.disk.evict()
            self.evicted = True
        elif self.random.random() < 0.5:
            self.note("evict queues and index")
            self.disk.evict("*/consumequeue/*")
            self.disk.evict("*/index/*")

    def heal(self) -> None:
        self.note("heal")
        self.disk.heal()
        self.disk.capacity = None

    # ── Errors that a store may raise ──────────────────────────────────────────────────────────────────────────────

    def append(self) -> None:
        before = self.store.log.end
        try:
            Run.append(self)
        except REFUSALS as refusal:
            self.refused(refusal)
            assert self.store.log.end >= before
            self.model.cut(self.store.log.end)

    def append_too_large(self) -> None:
        with suppress(*REFUSALS):
            Run.append_too_large(self)

    def dispatch(self) -> None:
        try:
            Run.dispatch(self)
        except REFUSALS as refusal:
            self.refused(refusal)

    def remove_topic(self) -> None:
        with suppress(OSError, *REFUSALS):
            Run.remove_topic(self)

    def go_on_with_queues(self, topic: str) -> None:
        with self.disk.at_rest():
            Run.go_on_with_queues(self, topic)

    def give_back(self) -> None:
        rewrites = [job for job in self.done if isinstance(job, RewriteLog)]
        Run.give_back(self)
        if rewrites and rewrites[0] not in self.done:
            self.after_rewrite()

    def after_rewrite(self) -> None:
        """Writes that the system has dropped may be lost, unless they were acknowledged as durable."""
        end = self.store.log.end
        assert end >= self.model.safe, f"rewritten, and {self.model.safe - end} safe bytes are missing"
        assert end == self.model.end or self.evicted, "rewritten, and something is missing that nobody has dropped"
        if end < self.model.end:
            self.model.cut(end)
            lost = {token for token, upto in self.tokens.items() if upto > end}
            self.were_cut(lost)
        if self.store.log.failed is None:
            self.evicted = False

    def flush(self) -> None:
        with suppress(OSError, *REFUSALS):
            Run.flush(self)
        self.model.safe = max(self.model.safe, self.store.durability.flushed)
        self.model.cut(self.store.log.end)

    def visible_end(self) -> int:
        """Where dispatch came to a halt, some queues may be ahead."""
        is_sync = self.settings.flush_mode is FlushMode.SYNC and not self.settings.read_uncommitted
        return self.model.safe if is_sync else self.model.end

    def was_read(self, found: list[bytes], wanted: list[bytes]) -> None:
        """What can't be read now is passed over, but nothing that was never appended is shown."""
        rest = iter(wanted)
        assert all(record in rest for record in found)

    def refused(self, refusal: StoreError) -> None:
        self.refusals += 1
        assert len(str(refusal)) > 20 and "/" in str(refusal), f"a refusal that says little: {refusal}"

    def close(self) -> None:
        try:
            Run.close(self)
        except (OSError, *REFUSALS) as error:
            self.note(f"not closed cleanly: {error}")
            self.waiting, self.done = [], []
            self.tokens.clear()
            self.model.safe = max(self.model.safe, self.store.durability.flushed)
            self.evicted = True

    def closed(self) -> None:
        self.after_rewrite()

    def open(self) -> None:
        try:
            Run.open(self)
        except (OSError, *REFUSALS) as error:
            self.note(f"not opened: {error}")
            self.heal()
            Run.open(self)
        self.evicted = False

    def kill(self) -> None:
        if self.evicted:
            self.note("kill, with pages dropped")
            self.end_by(self.disk.kill)
            self.heal()
            self.open()
        else:
            Run.kill(self)

    def recuperate(self) -> None:
        """The disk is well again: so must the store be, soon and by itself."""
        self.note("recuperate")
        self.heal()
        for _ in range(8):
            self.now_ms += 3_000
            self.ask_for_jobs()
            while self.waiting:
                self.run_job()
            while self.done:
                self.give_back()
        messages = [self.messages.one() for _ in range(3)]
        self.model.append(messages, self.now_ms, together=False)
        self.store.append(messages, self.now_ms)
        assert self.store.refusal is None
        assert not self.store._queue_sync.doubtful or self.store._queue_sync._names_doubtful
        self.answered(self.store.flush(self.now_ms))
        self.forget_replicas()
        self.model.safe = self.model.end
        check(self.store, self.model, self.model.safe)
        Run.close(self)
        Run.open(self)

    def check_image(self, disk: SimulatedDisk, random: Random) -> None:
        disk.capacity = None
        Run.check_image(self, disk, random)
