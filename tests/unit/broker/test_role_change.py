"""A broker changes its role while it runs, without sockets."""

from dataclasses import replace

import msgspec
import pytest
from tests.unit.broker.asking import GROUP, TOPIC, bodies_of, ok, pull, request, send
from tests.unit.broker.test_replication import copy_log, follow, slave
from tests.unit.broker.transacting import COMMIT, ROLLBACK, Story, end, end_asked

from kourou.broker.events import Answered
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import frame, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.replication.links import Accepted, Closed, Connect, HangUp, Link, Received
from kourou.store.metadata import OffsetTable
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedBroker, SimulatedClient
from kourou.turns import at_once

NOT_AVAILABLE = ResponseCode.SERVICE_NOT_AVAILABLE
SYNC = BrokerSettings(role=Role.SYNC_MASTER, in_sync_replicas=2)


def become(world: SimulatedBroker, role: Role, broker_id: int = 0) -> None:
    """As a part of the machine does it: within a step."""
    world.machine.roles.become(role, broker_id, world.now_ms)
    world.tick()


def followed(count: int) -> tuple[SimulatedBroker, SimulatedBroker]:
    """A master with so many messages, and a slave that has them, whose master is gone."""
    master, world = SimulatedBroker(), slave()
    client = master.connect()
    for number in range(count):
        assert client.ask(send(b"%d" % number)).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    world.step(Closed(link))
    return master, world


def test_a_slave_that_becomes_master_takes_messages_where_its_queues_end() -> None:
    _, world = followed(3)
    client = world.connect()
    assert client.ask(send()).code == ResponseCode.SYSTEM_BUSY
    become(world, Role.ASYNC_MASTER)
    answer = client.ask(send(b"new"))
    assert answer.code == ResponseCode.SUCCESS
    assert (answer.ext or {})["queueOffset"] == "3"
    found = client.ask(pull(offset=3))
    assert found.code == ResponseCode.SUCCESS
    assert b"new" in found.body


def test_queue_offsets_count_records_that_are_not_dispatched_yet() -> None:
    """With SYNC_FLUSH a slave dispatches what is flushed: a record may be in the log, and in no queue."""
    master = SimulatedBroker()
    assert master.connect().ask(send()).code == 0
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    world = SimulatedBroker(settings=slave().settings, store_settings=sync, lazy=True)
    world.tick(1)
    link = follow(world)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    copy_log(master, world, link)
    assert world.store.reader.offsets(TOPIC, 0)[1] == 0
    become(world, Role.ASYNC_MASTER)
    (number,) = (client := world.connect()).send(send(b"new"))
    world.work()
    assert (client.answers[number].ext or {})["queueOffset"] == "1"


def ahead(count: int) -> SimulatedBroker:
    """A slave with the offsets of a group that has consumed more messages at the master than the slave has."""
    _, world = followed(count)
    at_once(world.machine.offsets.adopt(OffsetTable({f"{TOPIC}@{GROUP}": {0: count + 5, 1: 2}})))
    return world


def committed(world: SimulatedBroker, queue_id: int) -> str:
    header = headers.QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
    return (ok(world.connect(), request(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext or {})["offset"]


def test_a_group_gets_the_messages_that_take_the_places_of_those_that_a_new_master_lacks() -> None:
    """A slave's tables come over another connection than the log, and may be ahead of it."""
    world = ahead(3)
    become(world, Role.ASYNC_MASTER)
    assert [committed(world, queue_id) for queue_id in (0, 1)] == ["3", "0"]
    ok(world.connect(), send(b"new"))
    found = ok(world.connect(), pull(offset=int(committed(world, 0))))
    assert b"new" in found.body


def test_so_it_does_after_a_restart_as_the_master() -> None:
    """The role in broker.conf was changed while the broker was stopped cleanly."""
    world = ahead(3)
    world.settings = BrokerSettings()
    again = world.stop()
    assert again.store.report.clean
    assert again.settings.role is Role.ASYNC_MASTER
    assert committed(again, 0) == "3"


def test_offsets_of_records_that_are_not_dispatched_yet_are_kept() -> None:
    master = SimulatedBroker()
    assert master.connect().ask(send()).code == 0
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    world = SimulatedBroker(settings=slave().settings, store_settings=sync, lazy=True)
    world.tick(1)
    link = follow(world)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    at_once(world.machine.offsets.adopt(OffsetTable({f"{TOPIC}@{GROUP}": {0: 1}})))
    copy_log(master, world, link)
    become(world, Role.ASYNC_MASTER)
    assert committed(world, 0) == "1"


def test_the_name_servers_are_told_at_once() -> None:
    _, world = followed(1)
    world.machine.registration.is_on = True
    world.tick()
    world.announced.clear()
    become(world, Role.ASYNC_MASTER)
    (command,) = [found for found in world.announced if found.code == RequestCode.REGISTER_BROKER]
    assert headers.RegisterBroker.decode(command.ext).broker_id == 0
    world.announced.clear()
    become(world, Role.SLAVE, 4)
    (command,) = [found for found in world.announced if found.code == RequestCode.REGISTER_BROKER]
    assert headers.RegisterBroker.decode(command.ext).broker_id == 4


def test_a_master_that_becomes_a_slave_answers_all_waiting_senders_with_errors() -> None:
    world = SimulatedBroker(settings=replace(SYNC))
    link = Link("10.0.0.2:1")
    world.step(Accepted(link), Received(link, bytes(8)))
    client = world.connect()
    numbers = client.send(send(b"one"), send(b"two"))  # the lane holds their answers
    (held,) = client.send(pull(offset=0, wait_ms=10_000))
    assert not client.answers
    become(world, Role.SLAVE, 1)
    assert {client.answers[number].code for number in numbers} == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
    assert client.answers[held].code != ResponseCode.SUCCESS
    assert [effect for effect in world.on_links if isinstance(effect, HangUp)]
    assert client.ask(send()).code == ResponseCode.SYSTEM_BUSY
    assert world.machine.writer.waiting == 0


def test_senders_that_wait_for_the_disk_are_answered_as_well() -> None:
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    world = SimulatedBroker(store_settings=sync, lazy=True)
    client = world.connect()
    (number,) = client.send(send())
    become(world, Role.SLAVE, 1)
    assert client.answers[number].code == ResponseCode.FLUSH_DISK_TIMEOUT


def test_a_demoted_master_follows_and_may_be_promoted_again() -> None:
    world = SimulatedBroker(settings=BrokerSettings(ha_master_address="10.0.0.9:10912"))
    client = world.connect()
    assert client.ask(send()).code == 0
    become(world, Role.SLAVE, 2)
    world.tick(1)
    assert Connect("10.0.0.9:10912") in world.on_links
    become(world, Role.SYNC_MASTER)
    assert (client.ask(send()).ext or {})["queueOffset"] == "1"
    assert world.machine.replication.follower is None


def test_a_delayed_message_is_delivered_once_by_the_new_master() -> None:
    master, world = SimulatedBroker(), slave()
    delayed = send(b"later", properties={"DELAY": "1"})
    assert master.connect().ask(delayed).code == 0
    assert master.connect().ask(delayed).code == 0
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    world.step(Closed(link))
    world.pass_time(5_000)
    assert world.store.reader.offsets(TOPIC, 0)[1] == 0
    become(world, Role.ASYNC_MASTER)
    world.pass_time(2_000)
    assert world.store.reader.offsets(TOPIC, 0)[1] == 2
    become(world, Role.SLAVE, 1)
    become(world, Role.ASYNC_MASTER)
    world.pass_time(10_000)
    assert world.store.reader.offsets(TOPIC, 0)[1] == 2


def test_what_the_old_master_delivered_is_not_delivered_again() -> None:
    master, world = SimulatedBroker(), slave()
    assert master.connect().ask(send(b"later", properties={"DELAY": "1"})).code == 0
    master.pass_time(2_000)
    assert master.store.reader.offsets(TOPIC, 0)[1] == 1
    link = follow(world)
    copy_log(master, world, link)
    world.step(Closed(link))
    become(world, Role.ASYNC_MASTER)
    world.pass_time(10_000)
    assert world.store.reader.offsets(TOPIC, 0)[1] == 1


def test_a_log_that_is_cut_loses_the_rest_everywhere() -> None:
    world = SimulatedBroker()
    client = world.connect()
    assert client.ask(send(b"kept")).code == 0
    end = world.store.log.end
    assert client.ask(send(b"lost")).code == 0
    world.machine.offsets.commit("G", TOPIC, 0, 2)
    become(world, Role.SLAVE, 1)
    world.machine.roles.cut_log(end, world.now_ms)
    world.tick()
    assert world.store.log.end == end
    assert world.store.reader.offsets(TOPIC, 0) == (0, 1)
    assert world.machine.offsets.get("G", TOPIC, 0) == 1
    become(world, Role.ASYNC_MASTER)
    assert (client.ask(send(b"new")).ext or {})["queueOffset"] == "1"
    again = world.crash()
    assert again.store.reader.offsets(TOPIC, 0)[1] >= 1


def test_answers_to_an_earlier_question_do_not_count() -> None:
    """A slave that was promoted and demoted while it fetched tables begins with a new round."""
    world = SimulatedBroker(settings=BrokerSettings(role=Role.SLAVE, broker_id=1))
    world.machine.metadata_sync.follow("10.0.0.1:10911")
    world.tick()
    (asked,) = world.asked
    become(world, Role.ASYNC_MASTER)
    assert world.machine.metadata_sync.due_ms() is None
    answer = msgspec.structs.replace(asked.command.answer(), body=b"nonsense")
    world.step(Answered(asked.token, answer))
    assert world.machine.metadata_sync.due_ms() is None


# ── Transactions and timers ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
def test_transactions_that_have_ended_end_no_second_time(outcome: int) -> None:
    """Which ones have ended is read in slices, and requests are served meanwhile."""
    story = Story()
    world, client = story.world, story.producer
    sent = [story.send_half(b"%d" % number) for number in range(3)]
    for half in sent:
        ok(client, end(half, outcome))
    world.pass_time(5_000)
    delivered = story.delivered()
    assert len(delivered) == (3 if outcome == COMMIT else 0)
    open_half = story.send_half(b"open")
    become(world, Role.SLAVE, 1)
    world.machine.roles.become(Role.ASYNC_MASTER, 0, world.now_ms)  # no tick yet
    for half in sent:
        answer = client.ask(end(half, COMMIT))
        assert (answer.code, answer.remark and "asked again" in answer.remark) == (NOT_AVAILABLE, True)
        client.write(frame.encode(msgspec.structs.replace(end(half, COMMIT), flag=2)))  # one-way, as Java's clients do
    assert client.ask(end(open_half, COMMIT)).code == NOT_AVAILABLE
    new_half = story.send_half(b"new")
    assert client.ask(end(new_half, ROLLBACK)).code in (0, NOT_AVAILABLE)
    assert story.delivered() == delivered
    world.pass_time(1_000)
    for half in sent:
        client.ask(end(half, COMMIT))
    ok(client, end(open_half, COMMIT))
    assert story.delivered() == [*delivered, b"open"]


def test_transactions_whose_records_are_not_dispatched_yet_end_no_second_time() -> None:
    master = Story()
    sent = [master.send_half(b"%d" % number) for number in range(3)]
    for half in sent:
        master.commit(half)
    master.world.pass_time(5_000)
    sync = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    world = SimulatedBroker(settings=slave().settings, store_settings=sync, lazy=True)
    world.tick(1)
    link = follow(world)
    world.machine.topics.adopt(master.world.machine.topics.table, master.world.machine.topics.version)
    copy_log(master.world, world, link)
    assert world.store.dispatched == 0
    world.machine.roles.become(Role.ASYNC_MASTER, 0, world.now_ms)
    client = world.connect()
    codes = [answer_of(world, client, end(half, COMMIT)) for half in sent]
    assert all(codes)
    for _ in range(10):
        world.work()
        world.tick(1)
    for half in sent:
        client.send(end(half, COMMIT))
        world.work()
    assert bodies_of(world) == [b"0", b"1", b"2"]


def answer_of(world: SimulatedBroker, client: SimulatedClient, command: Command) -> int:
    (number,) = client.send(command)
    world.tick(0)
    return client.answers[number].code


def test_the_new_master_asks_about_open_transactions_alone() -> None:
    master = Story()
    master.commit(master.send_half(b"done"))
    master.send_half(b"open")
    master.world.pass_time(3_000)
    world = slave()
    link = follow(world)
    copy_log(master.world, world, link)
    world.machine.topics.adopt(master.world.machine.topics.table, master.world.machine.topics.version)
    world.step(Closed(link))
    become(world, Role.ASYNC_MASTER)
    story = Story(world)
    (question,) = story.next_questions()
    assert bytes(question.body).count(b"open") == 1
    ok(story.producer, end_asked(question, COMMIT))
    assert bodies_of(world) == [b"done", b"open"]


def test_a_timed_message_is_delivered_once_by_the_new_master() -> None:
    master, world = SimulatedBroker(settings=BrokerSettings(recall=True)), slave()
    client = master.connect()
    for delay_ms in (1_500, 4_500, 9_500):
        ok(client, send(b"%d" % delay_ms, properties={"TIMER_DELAY_MS": str(delay_ms)}))
    handle = (ok(client, send(b"no", properties={"TIMER_DELAY_MS": "4500", "UNIQ_KEY": "u"})).ext or {})["recallHandle"]
    recall = headers.RecallMessage(topic=TOPIC, recall_handle=handle, producer_group="producers")
    ok(client, request(RequestCode.RECALL_MESSAGE, recall))
    master.pass_time(2_000)
    assert bodies_of(master) == [b"1500"]
    link = follow(world)
    copy_log(master, world, link)
    world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version)
    world.step(Closed(link))
    world.pass_time(6_000)
    assert bodies_of(world) == [b"1500"]
    become(world, Role.ASYNC_MASTER)
    world.pass_time(1_000)
    assert bodies_of(world) == [b"1500", b"4500"]
    become(world, Role.SLAVE, 1)
    become(world, Role.ASYNC_MASTER)
    world.pass_time(10_000)
    assert bodies_of(world) == [b"1500", b"4500", b"9500"]
