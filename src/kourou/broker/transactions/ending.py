"""END_TRANSACTION: a producer commits a half message, or rolls it back.

    commit ─▶ the message in its real topic ─▶ … durable … ─▶ answer        the op record follows later
    roll back ─▶ op record ─▶ … durable … ─▶ answer

A transaction ends once. If it has already ended, with this half message or a copy of it, nothing is appended, and the
answer is the same as before. A request that contradicts the first outcome is refused.

The commit is in the log before its op record, and the log becomes durable in order: if an op record survives a crash,
so does its commit. If only the commit survives, the next start finds it (`opening`). If neither survives, the producer
is asked again.

Java: EndTransactionProcessor.
"""

import logging
from typing import Final

from kourou.broker.access import Access
from kourou.broker.events import Asked, Refused, Request
from kourou.broker.message_writer import MessageWriter
from kourou.broker.meters import TRANSACTION
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.broker.transactions import half_records
from kourou.broker.transactions.counts import Counts
from kourou.broker.transactions.half_queue import CopiesUnknownError, HalfQueue, Standing
from kourou.broker.transactions.half_records import Half
from kourou.broker.transactions.ledger import Fate
from kourou.protocol import headers
from kourou.protocol.codes import ResponseCode, SysFlag
from kourou.protocol.command import Command
from kourou.protocol.headers.table import PUB
from kourou.protocol.names import shown
from kourou.store.store import Store

log = logging.getLogger(__name__)

_UNKNOWN: Final = 0
_COMMIT: Final = int(SysFlag.TRANSACTION_COMMIT)
_ROLLBACK: Final = int(SysFlag.TRANSACTION_ROLLBACK)
_FATES: Final = {_COMMIT: Fate.COMMITTED, _ROLLBACK: Fate.ROLLED_BACK}


class Ending:
    """Serves END_TRANSACTION."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        writer: MessageWriter,
        stats: Stats,
        halves: HalfQueue,
        counts: Counts,
        access: Access,
    ) -> None:
        self._access = access
        self._settings = settings
        self._store = store
        self._writer = writer
        self._stats = stats
        self._halves = halves
        self._counts = counts

    def end(self, asked: Request[headers.EndTransaction]) -> Command | None:
        """END_TRANSACTION, one-way or as a request."""
        try:
            return self._end(asked)
        except Refused as refused:
            if asked.command.is_one_way:
                log.warning("transaction not ended peer=%s: %s", asked.peer.address, shown(refused.remark))
            raise

    def _end(self, asked: Request[headers.EndTransaction]) -> Command | None:
        header = asked.header
        outcome = header.commit_or_rollback
        if outcome not in (_UNKNOWN, _COMMIT, _ROLLBACK):
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"commitOrRollback field wrong: {outcome}; 8 (commit), 12 (roll back) or 0 (unknown) is expected",
            )
        if self._settings.role is Role.SLAVE:
            raise Refused(ResponseCode.SLAVE_NOT_AVAILABLE, "a slave can't end transactions: send this to its master")
        if outcome == _UNKNOWN:
            return asked.command.answer()
        half = self._halves.half_at(header.commit_log_offset)
        if half is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        self._access.check_topic(asked, half.real_topic, PUB)
        self._check(header, half, asked.wall_ms)
        if self._halves.may_have_ended(half):
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the broker has just started or become the master, and is still reading which transactions have ended: "
                "this one is unchanged, and if it is open, the producer will be asked again",
            )
        try:
            standing = self._halves.standing(half)
        except CopiesUnknownError as error:
            remark = f"{error}: the transaction stays open, and the producer will be asked again later"
            raise Refused(ResponseCode.SERVICE_NOT_AVAILABLE, remark) from None
        if standing.end is not None:
            self._repeat(half, standing.end, _FATES[outcome])
        elif outcome == _COMMIT:
            self._commit(half, standing, asked)
        else:
            self._roll_back(half, standing, asked)
        if outcome == _ROLLBACK and not asked.command.is_one_way and not self._halves.write_ops(asked.now_ms):
            raise Refused(  # a success would promise that the rollback is durable
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the transaction is rolled back, but this is not recorded on disk yet: "
                f"{self._halves.ops_problem or 'the broker has just started'}. Try again later; after a crash of the "
                "broker the producer would be asked",
            )
        self._writer.answer(asked.peer, asked.command, asked.command.answer(), asked.now_ms)
        return None

    def _check(self, header: headers.EndTransaction, half: Half, wall_ms: int) -> None:
        """Raises Refused if the request does not match the half message, or is too late."""
        timeout_ms = self._settings.transaction_timeout_ms
        immunity_ms = half.immunity_ms(timeout_ms)
        age_ms = wall_ms - half.record.born_ms
        if immunity_ms is not None and not header.from_transaction_check and age_ms > max(immunity_ms, timeout_ms):
            raise Refused(
                ResponseCode.ILLEGAL_OPERATION,
                f"the request came {age_ms} ms after the birth of the message, later than its "
                "CHECK_IMMUNITY_TIME_IN_SECONDS allows: the producer will be asked instead",
            )
        if half.producer_group != header.producer_group:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        if half.offset != header.tran_state_table_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        if half.record.physical_offset != header.commit_log_offset:
            raise Refused(ResponseCode.SYSTEM_ERROR, "The commit log offset wrong")

    def _repeat(self, half: Half, before: Fate, now: Fate) -> None:
        """The transaction has already ended. Raises Refused if it ended the other way."""
        if Fate.ENDED in (before, now) or before is now:
            log.info("transaction ended again, which changes nothing id=%s", shown(half.unique_key))
            return
        done, wanted = ("rolled back", "commit") if before is Fate.ROLLED_BACK else ("committed", "rollback")
        raise Refused(
            ResponseCode.SYSTEM_ERROR,
            f"the transaction of message {shown(half.unique_key)} was {done} before: the {wanted} has no effect",
        )

    def _commit(self, half: Half, standing: Standing, asked: Asked) -> None:
        made = half_records.committed(half)
        if made is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the half message has no valid topic and queue")
        if not asked.command.is_one_way:
            self._writer.check_load()
        self._halves.check_room()
        message, properties = made
        topic = message.topic
        (stored,) = self._writer.put([message], properties, asked.now_ms)
        self._halves.ended(standing, Fate.COMMITTED, stored.physical_offset + stored.size)
        self._stats.put(topic, 1, stored.size, message_type=TRANSACTION)
        self._counts.committed(topic, half.record.born_ms, asked.now_ms)

    def _roll_back(self, half: Half, standing: Standing, asked: Asked) -> None:
        self._halves.check_room()
        self._halves.ended(standing, Fate.ROLLED_BACK, half.record.physical_offset + half.record.size)
        self._counts.rolled_back(half.real_topic, asked.now_ms)
