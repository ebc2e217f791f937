"""The broker's status as `mqadmin brokerStatus` and dashboards display it, and its counters.

The keys are Apache's, and so are the values where they apply. There are no thread pools: their queues are the sends
that wait for the disk and the pulls that wait for messages. Values that take no measurable time here (a lock to append,
copying of records) are 0, and there are no statistics of the duration of appends.

Java: AdminBrokerProcessor.prepareRuntimeInfo, StoreStatsService, DefaultMessageStore.getRuntimeInfo.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from kourou.broker.events import Asked, Refused, Request
from kourou.broker.long_polls import LongPolls
from kourou.broker.message_writer import MessageWriter
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.broker.replication import Replication
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.protocol import bodies, headers
from kourou.protocol.codes import CURRENT_VERSION, ResponseCode
from kourou.protocol.command import Command
from kourou.store.store import Store

_UNITS: Final = "KMGTPE"
_SIZES: Final = {"litePull": "100000", "query": "20000", "ack": "100000"}  # of thread pools, which Kourou does not have


class RuntimeRequests:
    """Serves requests about the broker's state."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: Store,
        stats: Stats,
        writer: MessageWriter,
        polls: LongPolls,
        delay_offsets: Callable[[], Mapping[int, int]],
        replication: Replication,
        timer_figures: Callable[[int], dict[str, str]],
        started_ms: int,
        faults: Callable[[], int],
    ) -> None:
        """`delay_offsets` returns the progress of each delay level, `timer_figures` those of timers at a time, and
        `faults` the number of internal errors.
        """
        self._settings = settings
        self._store = store
        self._stats = stats
        self._writer = writer
        self._polls = polls
        self._delay_offsets = delay_offsets
        self._replication = replication
        self._timer_figures = timer_figures
        self._started_ms = started_ms
        self._faults = faults

    # ── Status ────────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, asked: Asked) -> Command:
        """GET_BROKER_RUNTIME_INFO."""
        table = self._traffic(asked.now_ms) | self._files() | self._waiting() | self._timer_figures(asked.now_ms)
        table |= {
            "kourouFlushLateMillis": str(self._store.flush_late_ms(asked.now_ms)),
            "kourouInternalErrors": str(self._faults()),
            "bootTimestamp": str(self._started_ms),
            "runtime": _runtime(max(asked.wall_ms - self._started_ms, 0)),
            "brokerActive": _flag(self._settings.role is not Role.SLAVE),
            "brokerVersionDesc": CURRENT_VERSION.name,
            "startAcceptSendRequestTimeStamp": str(self._settings.accept_sends_from_ms),
        }
        if self._settings.open_ports:
            table["kourouOpenPorts"] = self._settings.open_ports
        return asked.command.answer(body=bodies.KVTable(table=dict(sorted(table.items()))).encode())

    def _traffic(self, now_ms: int) -> dict[str, str]:
        stats = self._stats
        stats.catch_up(now_ms)
        puts, size = stats.puts.count, stats.puts.size
        found, missed = stats.rates(lambda second: second.found), stats.rates(lambda second: second.missed)
        return {
            "putMessageTimesTotal": str(puts or 1),
            "putMessageSizeTotal": str(size),
            "putMessageAverageSize": str(size / (puts or 1)),
            "putMessageFailedTimes": str(self._writer.failed),
            "putMessageEntireTimeMax": "0",
            "putMessageDistributeTime": "null",
            "putLatency99": "0.00",
            "putLatency999": "0.00",
            "getMessageEntireTimeMax": "0",
            "putTps": _rates(stats.rates(lambda second: second.puts)),
            "getFoundTps": _rates(found),
            "getMissTps": _rates(missed),
            "getTotalTps": " ".join(
                str((one or 0.0) + (other or 0.0)) for one, other in zip(found, missed, strict=True)
            ),
            "getTransferredTps": _rates(stats.rates(lambda second: second.got)),
            "msgPutTotalYesterdayMorning": str(stats.put_days.yesterday_morning),
            "msgPutTotalTodayMorning": str(stats.put_days.today_morning),
            "msgPutTotalTodayNow": str(stats.user_puts.count),
            "msgGetTotalYesterdayMorning": str(stats.get_days.yesterday_morning),
            "msgGetTotalTodayMorning": str(stats.get_days.today_morning),
            "msgGetTotalTodayNow": str(stats.user_gets.count),
        }

    def _files(self) -> dict[str, str]:
        store, log = self._store, self._store.log
        log_ratio = queue_ratio = -1.0
        capacity: dict[str, str] = {}
        try:
            log_ratio, queue_ratio = store.used_ratios()
            total, free = store.space()
            capacity["commitLogDirCapacity"] = f"Total : {_readable(total)}, Free : {_readable(free)}."
        except OSError:
            pass  # report the rest even if the disk can't be queried
        oldest = store.reader.message_at(log.start) if log.end > log.start else None
        return capacity | {
            "commitLogDiskRatio": _percent(log_ratio),
            f"commitLogDiskRatio_{log.segments.folder}": _percent(log_ratio),
            "consumeQueueDiskRatio": _percent(queue_ratio),
            "commitLogMinOffset": str(log.start),
            "commitLogMaxOffset": str(log.end),
            "dispatchBehindBytes": str(log.end - store.dispatched),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": _readable(log.end - self._store.durability.flushed),
            "remainTransientStoreBufferNumbs": str(2**31 - 1),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(-1 if oldest is None else oldest.stored_ms),
        }

    def _waiting(self) -> dict[str, str]:
        settings = self._settings
        table = {
            "sendThreadPoolQueueSize": str(self._writer.waiting),
            "sendThreadPoolQueueCapacity": str(settings.waiting_sends_max),
            "pullThreadPoolQueueSize": str(self._polls.waiting),
            "pullThreadPoolQueueCapacity": str(settings.held_pulls_max),
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "100000",
        }
        for pool, capacity in _SIZES.items():
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueCapacity"] = capacity
        for pool in ("send", "pull", *_SIZES):
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        for level, offset in self._delay_offsets().items():
            _, end = self._store.reader.offsets(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return table

    # ── Counters, replication ─────────────────────────────────────────────────────────────────────────────────────

    def show_counter(self, asked: Request[headers.ViewBrokerStatsData]) -> Command:
        """VIEW_BROKER_STATS_DATA: a minute, an hour and a day of one counter."""
        header = asked.header
        data = self._stats.view(header.stats_name, header.stats_key, self._settings.cluster)
        if data is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return asked.command.answer(body=data.encode())

    def show_replication(self, asked: Asked) -> Command:
        """GET_BROKER_HA_STATUS: the slaves of this broker and their progress, or its master."""
        return asked.command.answer(body=self._replication.status(self._store.clock.at).encode())

    def show_master(self, asked: Request[headers.ExchangeHAInfo]) -> Command:
        """EXCHANGE_BROKER_HA_INFO: where slaves connect to, for one of Apache's that is about to go online.

        What another broker says of itself is not believed: the name servers know the master.
        """
        settings = self._settings
        if settings.role is Role.SLAVE or asked.header.master_ha_address is not None:
            return asked.command.answer()
        found = headers.ExchangeHAInfoAnswer(
            master_ha_address=settings.ha_address,
            master_flush_offset=self._store.durability.durable_to,
            master_address=settings.address,
        )
        return asked.command.answer(ext=found.encode())


def _flag(value: bool) -> str:
    return str(value).lower()


def _percent(ratio: float) -> str:
    """Rounded up to a hundredth."""
    return str(ceil(ratio * 100) / 100)


def _rates(rates: list[float | None]) -> str:
    """Three figures; an unknown one is empty."""
    return " ".join("" if rate is None else str(rate) for rate in rates)


def _runtime(ms: int) -> str:
    minutes, seconds = divmod(ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _readable(size: int) -> str:
    """`4.9 KiB`, as Java shows sizes."""
    if size < 1024:
        return f"{size} B"
    power = min((size.bit_length() - 1) // 10, len(_UNITS))
    return f"{size / 1024**power:.1f} {_UNITS[power - 1]}iB"
