"""A slave's end under a controller: before it follows a master, it cuts off the records that the master does not have.

    Connect ─▶ hello ─▶ welcome: the epochs of the master's log
                          │  the slave's log and epochs are made to agree with it, durably (`EpochTarget.agree`)
                          ▼
                        report ─▶ batches ─▶ whole records are appended ─▶ report

Bytes that arrive while the slave waits for the disk are kept, up to `HELD_MAX`; more bytes end the connection. If the
master is elected again, it continues with a new epoch, which is written before its first byte is appended.

Java: AutoSwitchHAClient.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from kourou.replication.epoch_frames import EpochPiece, Hello, MasterWords, Welcome, encode_hello, encode_report
from kourou.replication.follower import Follower, FollowerSettings
from kourou.replication.links import Link, TargetLog, Transfer
from kourou.replication.records import Assembler, BadCopyError

log = logging.getLogger(__name__)

HELD_MAX: Final = 4 * 1024 * 1024
"""The most bytes that are kept while the slave waits for the disk."""


class EpochTarget(TargetLog, Protocol):
    """The log of a slave under a controller."""

    @property
    def is_agreeing(self) -> bool:
        """Is `agree` still waiting for the disk?"""

    @property
    def disagreement(self) -> str | None:
        """Why the last `agree` failed; None if it did not."""

    @property
    def last_epoch(self) -> int:
        """The number of the newest epoch; 0 if the log has none."""

    def agree(self, end: int, epochs: tuple[tuple[int, int], ...]) -> None:
        """Cut the log where it differs from a log that ends at `end` and has these epochs, and adopt the epochs."""

    def confirm(self, offset: int) -> None:
        """Consumers may see the log up to this offset, or up to its end if that comes first."""


class EpochFollower(Follower):
    """One slave under a controller."""

    def __init__(
        self,
        log: EpochTarget,
        settings: FollowerSettings,
        hello: Callable[[], Hello],
        write_errors: tuple[type[Exception], ...] = (),
    ) -> None:
        """`hello` is called for each connection, since a new broker gets its id only after its start."""
        super().__init__(log, settings, write_errors)
        self._target = log
        self._hello = hello
        self._words = MasterWords()
        self._epochs: tuple[tuple[int, int], ...] = ()  # of the master
        self._unread: Iterator[Welcome | EpochPiece] = iter(())  # of the last read
        self.confirm_offset = 0  # as last sent by the master
        self._held = bytearray()  # bytes that arrived during the wait for the disk
        self._is_agreeing = False
        self._follows = False  # the log agrees with the master's

    @property
    def is_following(self) -> bool:
        return self.link is not None and self._follows

    def _greet(self, link: Link, now_ms: int) -> None:
        self._words = MasterWords()
        self._unread = iter(())
        self._held.clear()
        self._is_agreeing = self._follows = False
        self._reported = -1
        self.said_ms = now_ms
        self._effects.append(Transfer(link, encode_hello(self._hello())))

    # ── Receiving ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _read(self, data: bytes, _now_ms: int) -> None:
        if self._is_agreeing:
            if len(self._held) + len(data) > HELD_MAX:
                raise BadCopyError(f"the master sent more than {HELD_MAX} bytes before the disk was ready")
            self._held += data
            return
        self._unread = self._words.feed(data)
        self._read_on()

    def _read_on(self) -> None:
        for word in self._unread:
            if isinstance(word, Welcome):
                self._agree(word.end, word.epochs)
            else:
                self._take_piece(word)
            if self._is_agreeing:
                return
        self._target.confirm(self.confirm_offset)

    def _take_piece(self, piece: EpochPiece) -> None:
        if piece.offset < 0 and not len(piece.data) and self._log.is_empty:
            return  # one of Apache's masters with an empty log
        self._take(piece.offset, piece.data)
        self.confirm_offset = max(self.confirm_offset, piece.confirm_offset)
        if piece.epoch > self._target.last_epoch:
            if self._assembler.pending:
                raise BadCopyError(f"epoch {piece.epoch} begins at {piece.offset}, inside a record")
            before = (epoch for epoch in self._epochs if epoch[1] < piece.epoch_start)  # others never got a byte
            self._agree(max(self._log.end, piece.epoch_start), (*before, (piece.epoch, piece.epoch_start)))

    # ── Agreeing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _agree(self, end: int, epochs: tuple[tuple[int, int], ...]) -> None:
        self._epochs = epochs
        self._is_agreeing = True
        self._target.agree(end, epochs)

    def _agreed(self, now_ms: int) -> None:
        """The log and its epochs agree with the master's; or they can't, and the connection ends."""
        self._is_agreeing = False
        problem = self._target.disagreement
        if problem is not None:
            self._stop(problem, now_ms)
            return
        is_new = not self._follows
        self._follows = True
        if is_new:
            self._assembler = Assembler(self._log.end, self._log.segment_size, self._log.append)
            assert self.link is not None
            log.info("following master=%s from %d, epoch %d", self.link.address, self._log.end, self._target.last_epoch)
        self._take_held(now_ms)
        if self.link is not None and not self._is_agreeing and is_new:
            self._report(self._reportable, now_ms)

    def _take_held(self, now_ms: int) -> None:
        try:
            self._read_on()
            while self._held and not self._is_agreeing:
                held, self._held = bytes(self._held), bytearray()
                self._read(held, now_ms)
        except (BadCopyError, ValueError) as error:
            self._stop(str(error), now_ms)
        except self._write_errors as error:
            self._stop(f"the log can't be written: {error}", now_ms)

    def step(self, now_ms: int) -> None:
        if self._is_agreeing and self.link is not None and not self._target.is_agreeing:
            self._agreed(now_ms)
        super().step(now_ms)

    def _connect(self, now_ms: int) -> None:
        if not self._target.is_agreeing:
            super()._connect(now_ms)

    # ── Reporting ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _report(self, offset: int, now_ms: int) -> None:
        if self._follows:
            super()._report(offset, now_ms)
        else:
            self.said_ms = now_ms

    def _encode_report(self, offset: int) -> bytes:
        return encode_report(offset)
