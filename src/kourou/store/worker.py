"""Threads that run a store's jobs. The owner submits them and takes them back; worker threads never touch the store."""

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from kourou.store.jobs import Job

log = logging.getLogger(__name__)

THREADS = 2
"""One thread may wait for a sync of the log while the other prepares a segment or syncs queues."""


class Worker:
    """Runs jobs. `on_done` is called in a worker thread: it must only wake the owner, which then calls `finished`."""

    def __init__(self, on_done: Callable[[], None] | None = None, threads: int = THREADS) -> None:
        self._todo: SimpleQueue[Job | None] = SimpleQueue()
        self._done: SimpleQueue[Job] = SimpleQueue()
        self._on_done = on_done
        self._threads = [
            threading.Thread(target=self._work, name=f"kourou-store-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> None:
        self._todo.put(job)

    def finished(self, *, wait: bool = False) -> list[Job]:
        """Finished jobs; with `wait`, at least one."""
        done = [self._done.get()] if wait else []
        while not self._done.empty():
            done.append(self._done.get())
        return done

    def close(self) -> list[Job]:
        """Wait for running jobs to end; returns all finished jobs that were not taken yet."""
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()
        return self.finished()

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            try:
                job.run()
            except Exception as error:  # the worker continues, and the owner gets the job back
                log.exception("a job of the store failed: %s", type(job).__name__)
                job.fail(error)
            self._done.put(job)
            if self._on_done is not None:
                self._on_done()
