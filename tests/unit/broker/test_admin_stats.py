"""What a broker counts, and the status that it shows."""

from dataclasses import replace

import pytest
from tests.unit.broker.asking import GROUP, TOPIC, ok, pull, request, send

from kourou.broker import stats as stats_module
from kourou.broker.settings import BrokerSettings, Role
from kourou.broker.stats import DAY_MS, HOUR_MS, Stats
from kourou.protocol import bodies, headers
from kourou.protocol.bodies import BrokerStatsData, BrokerStatsItem
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.store.settings import FlushMode
from kourou.testing.broker import BEGIN_MS, SMALL_STORE, SimulatedBroker
from kourou.turns import at_once

CLUSTER = "DefaultCluster"


def view(name: str, key: str) -> Command:
    return request(RequestCode.VIEW_BROKER_STATS_DATA, headers.ViewBrokerStatsData(stats_name=name, stats_key=key))


def status(world: SimulatedBroker) -> dict[str, str]:
    return bodies.KVTable.decode(ok(world.connect(), request(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table


def run(stats: Stats, begin_ms: int, seconds: int, *, puts: int = 0) -> int:
    """Let time pass by seconds, with so many messages in each; what time it is then."""
    for second in range(seconds):
        if puts:
            stats.put(TOPIC, puts, 100 * puts)
        at_once(stats.step(begin_ms + 1000 * (second + 1)))
    return begin_ms + 1000 * seconds


# ── Windows ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_minute_hour_and_day() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    now_ms = run(stats, BEGIN_MS, 3 * 3600, puts=2)
    data = stats.topics[TOPIC].counts()
    assert data.stats_minute is not None
    assert data.stats_hour is not None
    assert data.stats_day is not None
    assert (data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt) == (120, 2.0, 2.0)
    assert (data.stats_hour.sum, data.stats_hour.tps) == (7200, 2.0)
    assert data.stats_day.sum == 3 * 7200
    sizes = stats.topics[TOPIC].sizes().stats_minute
    assert sizes is not None
    assert (sizes.sum, sizes.tps, sizes.avgpt) == (12_000, 200.0, 200.0)
    run(stats, now_ms, 120)
    assert stats.topics[TOPIC].counts().stats_minute == BrokerStatsItem()
    assert stats.put_rate(TOPIC) == 0.0


def test_first_sample_counts_from_nothing() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    at_once(stats.step(BEGIN_MS))
    stats.put(TOPIC, 50, 5_000)
    assert stats.topics[TOPIC].counts() == BrokerStatsData(
        stats_minute=BrokerStatsItem(), stats_hour=BrokerStatsItem(), stats_day=BrokerStatsItem()
    )
    at_once(stats.step(BEGIN_MS + 10_000))
    assert stats.put_rate(TOPIC) == 5.0


def test_pause_of_the_process_does_not_pile_up_samples() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    stats.put(TOPIC, 60, 1)
    at_once(stats.step(BEGIN_MS + 60_000))
    at_once(stats.step(BEGIN_MS + 60_100))
    at_once(stats.step(BEGIN_MS + 69_900))
    assert len(stats.topics[TOPIC].minute) == 2
    at_once(stats.step(BEGIN_MS + 70_000))
    assert len(stats.topics[TOPIC].minute) == 3


def test_rates_of_the_broker() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    assert stats.rates(lambda second: second.puts) == [None, None, None]
    now_ms = run(stats, BEGIN_MS, 10, puts=5)
    assert stats.rates(lambda second: second.puts) == [5.0, None, None]
    now_ms = run(stats, now_ms, 50)
    assert stats.rates(lambda second: second.puts) == [0.0, 50 / 60, None]
    run(stats, now_ms, 600)
    assert stats.rates(lambda second: second.puts) == [0.0, 0.0, 0.0]


def test_days() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    stats.put(TOPIC, 3, 1)
    stats.got(TOPIC, GROUP, 2, 1)
    at_once(stats.step(BEGIN_MS + DAY_MS))
    assert (stats.put_days.yesterday_morning, stats.put_days.today_morning) == (0, 3)
    stats.put(TOPIC, 4, 1)
    at_once(stats.step(BEGIN_MS + DAY_MS + 1_000))
    assert stats.put_days.today_morning == 3
    at_once(stats.step(BEGIN_MS + 2 * DAY_MS))
    assert (stats.put_days.yesterday_morning, stats.put_days.today_morning) == (3, 7)
    assert (stats.get_days.yesterday_morning, stats.get_days.today_morning) == (2, 2)


# ── Bounds ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_idle_items_are_forgotten_after_a_day() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    stats.put("idle", 1, 1)
    stats.got("idle", GROUP, 1, 1)
    for hour in range(27):
        stats.put("busy", 1, 1)
        at_once(stats.step(BEGIN_MS + hour * HOUR_MS))
    assert set(stats.topics) == {"busy"}
    assert not stats.groups
    assert stats.puts.count == 28  # the totals forget nothing


def test_so_many_items_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats_module, "ITEMS_MAX", 10)
    stats = Stats(now_ms=BEGIN_MS)
    for number in range(20):
        stats.put(f"topic-{number}", 1, 1)
        stats.got(f"topic-{number}", GROUP, 1, 1)
        stats.was_sent_back(f"topic-{number}", GROUP)
    assert len(stats.topics) + len(stats.groups) + len(stats.sent_back) == 10
    assert stats.puts.count == stats.gets.count == 20


def test_deleted_topics_and_groups_are_forgotten() -> None:
    stats = Stats(now_ms=BEGIN_MS)
    for topic in ("one", "two"):
        stats.put(topic, 1, 1)
        for group in ("a", "b"):
            stats.got(topic, group, 1, 1)
            stats.was_sent_back(topic, group)
    stats.forget_topic("one")
    assert set(stats.topics) == {"two"}
    stats.forget_group("a")
    assert set(stats.groups) == set(stats.sent_back) == {("two", "b")}


# ── Counters by request ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def world() -> SimulatedBroker:
    """Four messages sent, three of them got by a group, and ten seconds gone."""
    world = SimulatedBroker()
    client = world.connect()
    for _ in range(4):
        ok(client, send(b"x" * 100))
    ok(client, pull(max_msg_nums=3))
    world.machine.stats.was_sent_back(TOPIC, GROUP)
    world.pass_time(10_000)
    return world


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", TOPIC, 4),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}", 3),
        ("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}", 1),
        ("BROKER_PUT_NUMS", CLUSTER, 4),
        ("BROKER_GET_NUMS", CLUSTER, 3),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, 4),
    ],
)
def test_counters(world: SimulatedBroker, name: str, key: str, total: int) -> None:
    data = BrokerStatsData.decode(ok(world.connect(), view(name, key)).body)
    assert data.stats_minute is not None
    assert data.stats_minute.sum == total
    assert 0 < data.stats_minute.tps <= total


@pytest.mark.parametrize(("name", "key"), [("TOPIC_PUT_SIZE", TOPIC), ("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}")])
def test_sizes(world: SimulatedBroker, name: str, key: str) -> None:
    data = BrokerStatsData.decode(ok(world.connect(), view(name, key)).body)
    assert data.stats_minute is not None
    assert data.stats_minute.sum > 300


@pytest.mark.parametrize(
    ("name", "key"),
    [("TOPIC_PUT_NUMS", "nowhere"), ("NONSENSE", TOPIC), ("BROKER_PUT_NUMS", "OtherCluster"), ("GROUP_GET_NUMS", "@")],
)
def test_unknown_counters(world: SimulatedBroker, name: str, key: str) -> None:
    answer = world.connect().ask(view(name, key))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")


def test_own_topics_are_counted_apart(world: SimulatedBroker) -> None:
    ok(world.connect(), send(topic="BenchmarkTest"))
    assert world.machine.stats.puts.count == 5
    assert world.machine.stats.user_puts.count == 4


# ── Status ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_status(world: SimulatedBroker) -> None:
    table = status(world)
    log = world.store.log
    expected = {
        "bootTimestamp": str(BEGIN_MS),
        "runtime": "[ 0 days, 0 hours, 0 minutes, 10 seconds ]",
        "brokerVersionDesc": "V5_5_0",
        "brokerActive": "true",
        "putMessageTimesTotal": "4",
        "putMessageSizeTotal": str(log.end),
        "putMessageAverageSize": str(log.end / 4),
        "putTps": "0.4  ",
        "getFoundTps": "0.1  ",
        "getTotalTps": "0.1 0.0 0.0",
        "getTransferredTps": "0.3  ",
        "msgPutTotalTodayNow": "4",
        "msgGetTotalTodayNow": "3",
        "commitLogMinOffset": "0",
        "commitLogMaxOffset": str(log.end),
        "commitLogDiskRatio": "0.0",
        "commitLogDiskRatio_/store/commitlog": "0.0",
        "earliestMessageTimeStamp": str(BEGIN_MS),
        "dispatchBehindBytes": "0",
        "remainHowManyDataToFlush": "0 B",
        "sendThreadPoolQueueSize": "0",
        "pullThreadPoolQueueSize": "0",
    }
    assert {key: table[key] for key in expected} == expected
    assert table["commitLogDirCapacity"].startswith("Total : 1.0 TiB, Free : ")


def test_waiting_pulls_sends_and_delays() -> None:
    world = SimulatedBroker(store_settings=replace(SMALL_STORE, flush_mode=FlushMode.SYNC), lazy=True)
    client = world.connect()
    client.send(send())
    world.work()
    client.send(send(properties={"DELAY": "3"}))
    client.send(pull(topic="BenchmarkTest", wait_ms=10_000))
    client.send(request(RequestCode.GET_BROKER_RUNTIME_INFO))
    table = bodies.KVTable.decode(client.answers[4].body).table
    assert table["sendThreadPoolQueueSize"] == "1"
    assert table["pullThreadPoolQueueSize"] == "1"
    assert table["dispatchBehindBytes"] != "0"
    assert table["remainHowManyDataToFlush"].endswith(" B")
    assert table["remainHowManyDataToFlush"] != "0 B"
    world.pass_time(11_000, each=world.work)
    assert status(world)["scheduleMessageOffset_3"] == "1,1"


def test_empty_broker_has_a_status() -> None:
    table = status(SimulatedBroker())
    assert table["earliestMessageTimeStamp"] == "-1"
    assert (table["putTps"], table["getTotalTps"]) == ("  ", "0.0 0.0 0.0")


def test_missed_reads_are_counted(world: SimulatedBroker) -> None:
    world.connect().ask(pull(offset=4))
    world.pass_time(10_000)
    assert status(world)["getMissTps"].split() == ["0.1"]


def test_disk_that_cannot_be_asked(world: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> tuple[float, float]:
        raise OSError("disk gone")

    monkeypatch.setattr(world.store, "used_ratios", fail)
    table = status(world)
    assert table["commitLogDiskRatio"] == "-1.0"
    assert table["commitLogMaxOffset"] == str(world.store.log.end)


def test_failed_puts_are_counted(world: SimulatedBroker) -> None:
    assert world.connect().ask(send(b"x" * 40_000)).code == ResponseCode.MESSAGE_ILLEGAL
    assert status(world)["putMessageFailedTimes"] == "1"


def test_replication(world: SimulatedBroker) -> None:
    answer = ok(world.connect(), request(RequestCode.GET_BROKER_HA_STATUS))
    shown = bodies.HARuntimeInfo.decode(answer.body)
    assert (shown.master, shown.master_commit_log_max_offset) == (True, world.store.log.end)


def test_where_slaves_connect_to(world: SimulatedBroker) -> None:
    """A slave of Apache's with `enableSlaveActingMaster` goes online when it was told."""

    def exchange(broker: SimulatedBroker, **fields: object) -> dict[str, str] | None:
        header = headers.ExchangeHAInfo(**fields)  # type: ignore[arg-type]
        return ok(broker.connect(), request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)).ext

    told = {"masterHaAddress": "127.0.0.1:10912", "masterAddress": "127.0.0.1:10911"}
    flushed = world.store.durability.durable_to
    assert exchange(world) == told | {"masterFlushOffset": str(flushed)}
    other = {"master_ha_address": "10.0.0.9:1", "master_address": "10.0.0.9:2", "master_flush_offset": 5}
    assert not exchange(world, **other)
    slave = SimulatedBroker(settings=BrokerSettings(role=Role.SLAVE, broker_id=1))
    assert not exchange(slave) and not exchange(slave, **other)
    assert slave.machine.metadata_sync.master is None, "anybody can say who the master is"
