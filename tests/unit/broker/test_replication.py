"""What a broker does as a slave, and as a master with slaves, without sockets."""

from dataclasses import replace

from tests.unit.broker.asking import GROUP, TOPIC, pull, request, send
from tests.unit.replication.logs import batch

from kourou.broker.events import Answered
from kourou.broker.lane import PUBLISHED_AT_ONCE
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.replication.links import Accepted, Closed, Connected, HangUp, Link, Received, Transfer
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker
from kourou.turns import at_once

ADDRESS = "10.0.0.1:10912"


def slave(**settings: object) -> SimulatedBroker:
    fields = {"role": Role.SLAVE, "broker_id": 1, "ha_master_address": ADDRESS} | settings
    return SimulatedBroker(settings=BrokerSettings(**fields))  # type: ignore[arg-type]


def follow(world: SimulatedBroker) -> Link:
    link = Link(ADDRESS)
    world.step(Connected(link))
    return link


def copy_log(master: SimulatedBroker, world: SimulatedBroker, link: Link) -> None:
    """What the slave lacks, as batches of a master."""
    log, size = master.store.log, SMALL_STORE.commit_log_file_size
    while world.store.log.end < log.end:
        at = world.store.log.end
        world.step(Received(link, batch(at, bytes(log.read(at, min(log.end - at, size - at % size))))))
        assert world.store.log.end > at, "the slave took nothing"


def test_a_slave_serves_what_it_has_while_its_master_is_gone() -> None:
    master, world = SimulatedBroker(), slave()
    client = master.connect()
    for number in range(5):
        assert client.ask(send(b"%d" % number)).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    reader = world.connect()
    assert reader.ask(pull()).code == ResponseCode.SYSTEM_BUSY
    world.step(Closed(link))
    answer = reader.ask(pull())
    assert answer.code == ResponseCode.SUCCESS
    suggested = (answer.ext or {})["suggestWhichBrokerId"]
    assert suggested == "0", "Java's consumers would stay here when the master is back, and this slave refuses them"


def test_a_slave_that_may_be_read_sends_consumers_back_when_it_has_nothing_for_them() -> None:
    master, world = SimulatedBroker(), slave(slave_read=True)
    assert master.connect().ask(send()).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    reader = world.connect()
    assert reader.ask(pull()).code == ResponseCode.SUCCESS
    for offset in (1, 7):
        answer = reader.ask(pull(offset=offset, wait_ms=1_000))
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert (answer.ext or {})["suggestWhichBrokerId"] == "0"


def test_a_consumer_that_is_ahead_of_a_lonely_slave_waits() -> None:
    """The master may come back with what the consumer has seen: its offset is not set back."""
    master, world = SimulatedBroker(), slave()
    assert master.connect().ask(send()).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    world.step(Closed(link))
    answer = world.connect().ask(pull(offset=7))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert (answer.ext or {})["nextBeginOffset"] == "7"


def test_copied_messages_wake_pulls_that_wait_for_them() -> None:
    master, world = SimulatedBroker(), slave(slave_read=True)
    client = master.connect()
    assert client.ask(send()).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    world.step(Closed(link))
    reader = world.connect()
    (number,) = reader.send(pull(offset=1, wait_ms=10_000))
    assert number not in reader.answers
    assert client.ask(send(b"more")).code == 0
    world.pass_time(1_000)  # the slave connects again
    copy_log(master, world, follow(world))
    assert reader.answers[number].code == ResponseCode.SUCCESS


def test_a_backlog_without_waiting_senders_becomes_visible_in_turns() -> None:
    settings = BrokerSettings(role=Role.SYNC_MASTER, in_sync_replicas=2, auto_in_sync_replicas=True)
    settings.ha_max_gap = 7 * PUBLISHED_AT_ONCE // 2
    world = SimulatedBroker(settings=settings)
    link = Link("10.0.0.2:1")
    world.step(Accepted(link), Received(link, bytes(8)))  # a slave that never reports again
    client, count = world.connect(), 0
    while world.store.log.end < settings.ha_max_gap:
        assert world.store.dispatched == 0
        assert client.ask(send(b"x" * 30_000, properties={"WAIT": "false"})).code == 0
        count += 1
    turns = []
    while world.store.dispatched < world.store.log.end:
        before = world.store.dispatched
        world.tick(max(world.machine.wake_ms - world.now_ms, 0))
        turns.append(world.store.dispatched - before)
        assert world.machine.wake_ms <= world.now_ms + 1 or world.store.dispatched == world.store.log.end
    assert len([turn for turn in turns if turn]) == 4
    assert max(turns) <= PUBLISHED_AT_ONCE
    assert world.connect().ask(pull(offset=count - 1)).code == ResponseCode.SUCCESS


def test_a_topic_that_was_removed_and_made_again_is_the_same_on_the_slave() -> None:
    """A slave sees in the log only that the queue begins again."""
    master, world = SimulatedBroker(), slave()
    client = master.connect()
    for _ in range(5):
        assert client.ask(send()).code == 0
    link = follow(world)
    copy_log(master, world, link)
    assert client.ask(request(RequestCode.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicInBroker(topic=TOPIC))).code == 0
    for _ in range(2):
        assert client.ask(send(b"again")).code == 0
    copy_log(master, world, link)
    assert world.store.reader.offsets(TOPIC, 0) == master.store.reader.offsets(TOPIC, 0) == (0, 2)


def test_a_slave_stores_nothing_of_its_own() -> None:
    world = slave()
    client = world.connect()
    assert client.ask(send()).code == ResponseCode.SYSTEM_BUSY
    assert world.in_lane == 0
    group = bodies.SubscriptionGroupConfig(group_name=GROUP)
    refused = client.ask(request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode()))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "from slave broker" in (refused.remark or "")
    world.pass_time(60_000)
    assert world.store.log.end == 0


def test_a_master_with_sync_flush_sends_what_is_flushed() -> None:
    """Otherwise a power cut would leave slaves with records that the master has lost."""
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    world = SimulatedBroker(settings=BrokerSettings(), store_settings=sync, lazy=True)
    link = Link("10.0.0.2:1")
    world.step(Accepted(link), Received(link, bytes(8)))
    world.connect().send(send())
    assert not [effect for effect in world.on_links if isinstance(effect, Transfer)]
    world.work()
    assert [effect for effect in world.on_links if isinstance(effect, Transfer)]


def test_a_new_slave_asks_where_its_masters_log_begins() -> None:
    world = SimulatedBroker(settings=BrokerSettings(role=Role.SLAVE, broker_id=1))
    world.machine.replication.follow("10.0.0.1:10911", ADDRESS, world.now_ms)
    world.step()
    (asked,) = world.asked
    assert (asked.address, asked.command.code) == ("10.0.0.1:10911", RequestCode.GET_BROKER_RUNTIME_INFO)
    table = bodies.KVTable(table={"commitLogMinOffset": "0", "commitLogMaxOffset": "500"})
    world.asked.clear()
    world.step(Answered(asked.token, asked.command.answer(body=table.encode())))
    (asked,) = [ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_EPOCH_CACHE]
    world.step(Answered(asked.token, asked.command.answer(1, "this request only for controllerMode ")))
    link = Link(ADDRESS)
    world.step(Connected(link))
    (report,) = [effect.head for effect in world.on_links if isinstance(effect, Transfer)]
    assert int.from_bytes(report) == 1


def test_a_late_answer_of_an_old_master_does_not_make_a_new_slave_follow_it() -> None:
    world = slave(ha_master_address=None)
    follow_by_name(world, "10.0.0.1:10911", "10.0.0.1:10912")
    follow_by_name(world, "10.0.0.7:10911", "10.0.0.7:10912")
    old, new = (ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_RUNTIME_INFO)
    table = bodies.KVTable(table={"commitLogMinOffset": "0", "commitLogMaxOffset": "500"})
    for asked in (new, old):
        world.step(Answered(asked.token, asked.command.answer(body=table.encode())))
    follower = world.machine.replication.follower
    assert follower is not None
    assert follower.master == "10.0.0.7:10912"


def follow_by_name(world: SimulatedBroker, address: str, ha_address: str) -> None:
    """A name server tells a slave of its master."""
    world.machine.replication.follow(address, ha_address, world.now_ms)
    world.step()


def test_a_slave_is_not_followed() -> None:
    world, link = slave(), Link("10.0.0.9:1")
    world.step(Accepted(link))
    assert [effect.link for effect in world.on_links if isinstance(effect, HangUp)] == [link]
