"""How the broker is: its status as `mqadmin brokerStatus` and dashboards show it, and its counters one by one.

The keys are Apache's, and so is what stands behind them where there is such a thing here. There are no thread pools:
their queues are the sends that wait for the disk and the pulls that wait for messages. What takes no measurable time
(holding a lock to append, handing out records) is 0, and there is no statistic of how long puts took.

Java: AdminBrokerProcessor.prepareRuntimeInfo, StoreStatsService, DefaultMessageStore.getRuntimeInfo.
"""

from collections.abc import Callable, Mapping
from math import ceil
from typing import Final

from kourou.broker.events import Asked, Refused
from kourou.broker.long_polls import LongPolls
from kourou.broker.message_writer import MessageWriter
from kourou.broker.names import SCHEDULE_TOPIC
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import Stats
from kourou.protocol import bodies, headers
from kourou.protocol.codes import CURRENT_VERSION, ResponseCode
from kourou.protocol.command import Command
from kourou.store.store import Store

_UNITS: Final = "KMGTPE"
_SIZES: Final = {"litePull": "100000", "query": "20000", "ack": "100000"}  # of thread pools that are not there


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
        started_ms: int,
        faults: Callable[[], int],
    ) -> None:
        """`delay_offsets` gives how far each delay level is, `faults` how many internal errors there were."""
        self._settings = settings
        self._store = store
        self._stats = stats
        self._writer = writer
        self._polls = polls
        self._delay_offsets = delay_offsets
        self._started_ms = started_ms
        self._faults = faults

    # ── Status ────────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, asked: Asked) -> Command:
        """GET_BROKER_RUNTIME_INFO."""
        table = self._traffic() | self._files() | self._waiting()
        table |= {
            "kourouFlushLateMillis": str(self._store.flush_late_ms(asked.now_ms)),
            "kourouInternalErrors": str(self._faults()),
            "bootTimestamp": str(self._started_ms),
            "runtime": _runtime(max(asked.wall_ms - self._started_ms, 0)),
            "brokerActive": _flag(self._settings.role is not Role.SLAVE),
            "brokerVersionDesc": CURRENT_VERSION.name,
            "startAcceptSendRequestTimeStamp": str(self._settings.accept_sends_from_ms),
        }
        return asked.command.answer(body=bodies.KVTable(table=dict(sorted(table.items()))).encode())

    def _traffic(self) -> dict[str, str]:
        stats = self._stats
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
            pass  # a disk that can't be asked is no reason to say nothing of the rest
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
            "timerReadBehind": "0",
            "timerOffsetBehind": "0",
            "timerCongestNum": "0",
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
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

    def show_counter(self, asked: Asked) -> Command:
        """VIEW_BROKER_STATS_DATA: a minute, an hour and a day of one counter."""
        header = headers.ViewBrokerStatsData.decode(asked.command.ext)
        data = self._stats.view(header.stats_name, header.stats_key, self._settings.cluster)
        if data is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist")
        return asked.command.answer(body=data.encode())

    def show_replication(self, asked: Asked) -> Command:
        """GET_BROKER_HA_STATUS: no slave follows this broker."""
        body = bodies.HARuntimeInfo(
            master=self._settings.role is not Role.SLAVE, master_commit_log_max_offset=self._store.log.end
        )
        return asked.command.answer(body=body.encode())


def _flag(value: bool) -> str:
    return str(value).lower()


def _percent(ratio: float) -> str:
    """Rounded up to a hundredth."""
    return str(ceil(ratio * 100) / 100)


def _rates(rates: list[float | None]) -> str:
    """Three figures; nothing stands for what is not known yet."""
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
