"""Promotion, demotion, and old masters that come back: brokers without sockets."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.broker.asking import TOPIC, pull, request, send
from tests.unit.broker.test_replication import copy_log, follow, slave

from kourou.broker.events import Announced, Answered
from kourou.broker.failover import ASK_MEMBERS_MS, PROMOTION_STEP
from kourou.broker.settings import BrokerSettings, Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.replication.links import Accepted, Closed, Connect, Connected, Link, Received
from kourou.store.epochs import EpochFile, Epochs
from kourou.store.offline import LogFiles
from kourou.testing.broker import ROOT, SimulatedBroker, SimulatedClient
from kourou.turns import at_once

NAME_SERVER = "10.0.0.7:9876"
PROMOTED = 1 + PROMOTION_STEP


def promote(client: SimulatedClient, *, force: bool = False) -> Command:
    return client.ask(request(RequestCode.PROMOTE_BROKER, headers.PromoteBroker(force=force)))


def epochs(client: SimulatedClient) -> tuple[tuple[int, int], ...]:
    found = bodies.EpochEntryCache.decode(client.ask(request(RequestCode.GET_BROKER_EPOCH_CACHE)).body)
    return tuple((entry.epoch, entry.start_offset) for entry in found.epoch_list)


def group(count: int) -> tuple[SimulatedBroker, SimulatedBroker]:
    """A master with so many messages, and its slave, which has them and has lost its master."""
    master, world = SimulatedBroker(), slave()
    client = master.connect()
    for number in range(count):
        assert client.ask(send(b"%d" % number)).code == 0
    master.step(Accepted(Link("10.0.0.2:1")))
    link = follow(world)
    copy_log(master, world, link)
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    world.step(Closed(link))
    return master, world


def answer_with_epochs(world: SimulatedBroker, master: SimulatedBroker) -> None:
    """The slave asks its master, which answers."""
    (asked,) = [ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_EPOCH_CACHE]
    world.asked.clear()
    answer = master.connect().ask(Command(RequestCode.GET_BROKER_EPOCH_CACHE))
    world.step(Answered(asked.token, answer))


def told(world: SimulatedBroker, **members: str) -> None:
    """The broker registers, and a name server returns the members of the group."""
    world.step(Announced(NAME_SERVER, Command(0)))
    found = bodies.BrokerMemberGroup(broker_addrs={int(name[1:]): address for name, address in members.items()})
    body = bodies.GetBrokerMemberGroupResponseBody(broker_member_group=found).encode()
    world.step(Announced(NAME_SERVER, Command(0, body=body), None, RequestCode.GET_BROKER_MEMBER_GROUP))


def test_a_promoted_slave_begins_an_epoch_before_its_first_message() -> None:
    _, world = group(3)
    end = world.store.log.end
    client = world.connect()
    answer = promote(client)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert epochs(client) == ((1, 0), (PROMOTED, end))
    assert (client.ask(send()).ext or {})["queueOffset"] == "3"
    assert EpochFile(world.disk.crash(), ROOT / "epochFileCheckpoint").read() == Epochs(((1, 0), (PROMOTED, end)))


def test_a_promotion_is_refused_when_messages_may_be_lost() -> None:
    world = slave()
    refused = promote(world.connect())
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "has not heard from its master" in (refused.remark or "")

    master = SimulatedBroker()
    assert master.connect().ask(send()).code == 0
    link = follow(world)
    copy_log(master, world, link)
    assert "is connected" in (promote(world.connect()).remark or "")

    end = world.store.log.end
    assert master.connect().ask(send()).code == 0
    data = bytes(master.store.log.read(end, 50))
    world.step(Received(link, end.to_bytes(8) + (50).to_bytes(4) + data))
    world.step(Closed(link))
    assert f"ends at {end + 50} or later" in (promote(world.connect()).remark or "")
    assert world.settings.role is Role.SLAVE
    assert promote(world.connect(), force=True).code == 0
    assert world.settings.role is not Role.SLAVE


def test_a_controller_decides_by_itself() -> None:
    world = SimulatedBroker(settings=BrokerSettings(controller_mode=True, controllers="10.0.0.6:9878"))
    assert "electMaster" in (promote(world.connect(), force=True).remark or "")


def test_a_role_survives_a_restart_until_broker_conf_changes() -> None:
    _, world = group(1)
    configured = replace(world.settings)
    assert promote(world.connect()).code == 0
    again = SimulatedBroker(world.disk.kill(), replace(configured), now_ms=world.now_ms)
    assert (again.settings.role, again.settings.broker_id) == (Role.ASYNC_MASTER, 0)
    slave_again = replace(configured, broker_id=5)
    third = SimulatedBroker(again.disk.kill(), slave_again, now_ms=world.now_ms)
    assert (third.settings.role, third.settings.broker_id) == (Role.SLAVE, 5)


def test_a_master_over_the_store_of_a_slave_begins_an_epoch() -> None:
    _, world = group(2)
    end = world.store.log.end
    master = SimulatedBroker(world.disk.kill(), BrokerSettings(), now_ms=world.now_ms)
    assert epochs(master.connect()) == ((1, 0), (PROMOTED, end))
    same = SimulatedBroker(master.stop().disk.kill(), BrokerSettings(), now_ms=world.now_ms)
    assert same.store.history.newest >= 2


def test_a_master_that_may_have_lost_its_end_begins_an_epoch() -> None:
    """With ASYNC_FLUSH, a slave may have what its master has lost: the offsets get other messages."""
    master, _ = group(2)
    again = master.crash()
    assert again.store.history.newest == 2
    assert again.stop().store.history.newest == 2


def test_an_old_master_that_has_begun_epochs_after_crashes_gives_way_to_a_promoted_slave() -> None:
    """With equal epochs, name servers would keep the one that has registered last, and both would take messages."""
    master, world = group(2)
    for _ in range(3):
        master = master.crash()
    assert promote(world.connect()).code == 0
    assert world.machine.registration.epoch > master.machine.registration.epoch > 1
    told(master, _0="10.0.0.2:10911", _1="10.0.0.1:10911")
    answer_with_epochs(master, world)
    assert master.settings.role is Role.SLAVE


def test_an_old_master_cuts_what_the_new_one_does_not_have_and_keeps_it_aside() -> None:
    master, world = group(2)
    end = world.store.log.end
    assert master.connect().ask(send(b"only here")).code == 0
    assert promote(world.connect()).code == 0
    assert world.connect().ask(send(b"new")).code == 0
    old = master.machine
    old.roles.become(Role.SLAVE, 1, master.now_ms)
    old.replication.follow("10.0.0.2:10911", "10.0.0.2:10912", master.now_ms)
    master.tick(1)
    lost = master.store.log.end - end
    answer_with_epochs(master, world)
    assert master.store.log.end == end
    assert master.store.reader.offsets(TOPIC, 0)[1] == 2
    assert Connect("10.0.0.2:10912") in master.on_links
    assert master.store.history.all == world.store.history.all
    folder = ROOT / "kourou-cut" / f"{end}-{end + lost}" / "commitlog"
    content = master.disk.open(folder / f"{0:020}").buffer
    assert b"only here" in bytes(content[end : end + lost])


SYNC = BrokerSettings(role=Role.SYNC_MASTER, in_sync_replicas=2)


def replaced() -> tuple[SimulatedBroker, SimulatedBroker, SimulatedClient]:
    """A master that waits for its slave, the slave, which was promoted without the last message, and a consumer."""
    master, world = SimulatedBroker(settings=replace(SYNC)), slave()
    link = Link("10.0.0.2:1")
    master.step(Accepted(link), Received(link, bytes(8)))
    client = master.connect()
    client.send(send(b"0"))
    follower = follow(world)
    copy_log(master, world, follower)
    master.step(Received(link, master.store.log.end.to_bytes(8)))
    client.send(send(b"only here"))
    at_once(world.machine.topics.adopt(master.machine.topics.table, master.machine.topics.version))
    master.step(Closed(link))
    world.step(Closed(follower))
    assert promote(world.connect()).code == 0
    assert client.ask(pull()).code == ResponseCode.SUCCESS
    assert client.ask(pull(offset=1)).code == ResponseCode.PULL_NOT_FOUND
    return master, world, client


def compare(master: SimulatedBroker, world: SimulatedBroker) -> None:
    """The old master learns where the new one is, and compares its log with that one's."""
    master.machine.replication.follow("10.0.0.2:10911", "10.0.0.2:10912", master.now_ms)
    master.asked.clear()
    master.tick(1_000)
    answer_with_epochs(master, world)
    master.tick()


def test_consumers_of_an_old_master_do_not_see_what_it_is_about_to_cut() -> None:
    master, world, consumer = replaced()
    told(master, _0="10.0.0.2:10911")
    answer_with_epochs(master, world)
    assert master.settings.role is Role.SLAVE
    assert "compared its log" in (consumer.ask(pull(offset=1)).remark or "")
    compare(master, world)
    assert consumer.ask(pull()).code == ResponseCode.SUCCESS
    assert consumer.ask(pull(offset=1)).code == ResponseCode.PULL_NOT_FOUND


@pytest.mark.parametrize("by_hand", [False, True])
def test_they_do_not_see_it_after_a_restart_as_a_slave_either(*, by_hand: bool) -> None:
    master, world, _ = replaced()
    settings = replace(SYNC, role=Role.SLAVE, broker_id=1) if by_hand else replace(SYNC)
    if not by_hand:
        told(master, _0="10.0.0.2:10911")
        answer_with_epochs(master, world)
    again = SimulatedBroker(master.disk.kill(), replace(settings), now_ms=master.now_ms)
    assert again.settings.role is Role.SLAVE
    assert "compared its log" in (again.connect().ask(pull(offset=1)).remark or "")
    compare(again, world)
    third = SimulatedBroker(again.disk.kill(), replace(settings), now_ms=master.now_ms)
    assert third.connect().ask(pull()).code == ResponseCode.SUCCESS
    assert third.connect().ask(pull(offset=1)).code == ResponseCode.PULL_NOT_FOUND


def test_they_do_not_see_it_before_a_name_server_has_named_the_master() -> None:
    master, _, _ = replaced()
    again = SimulatedBroker(master.disk.kill(), replace(SYNC), now_ms=master.now_ms)
    again.machine.failover.ask_first(again.now_ms)
    consumer = again.connect()
    assert "compared its log" in (consumer.ask(pull(offset=1)).remark or "")
    told(again, _0=again.settings.address)
    assert consumer.ask(pull(offset=1)).code == ResponseCode.SUCCESS


def test_a_slave_that_agrees_cuts_nothing() -> None:
    master, world = group(2)
    end = world.store.log.end
    world.machine.replication.follow("10.0.0.1:10911", "10.0.0.1:10912", world.now_ms)
    world.tick(1_000)
    answer_with_epochs(world, master)
    assert world.store.log.end == end
    assert Connect("10.0.0.1:10912") in world.on_links


def test_a_slave_does_not_follow_a_log_of_strangers() -> None:
    master, world = group(2)
    master.store.history.adopt(Epochs(((7, 0),)))
    end = world.store.log.end
    world.on_links.clear()
    world.machine.replication.follow("10.0.0.1:10911", "10.0.0.1:10912", world.now_ms)
    world.tick(1_000)
    answer_with_epochs(world, master)
    world.tick(1)
    assert world.store.log.end == end
    assert not [effect for effect in world.on_links if isinstance(effect, Connect)]


def test_a_demotion_waits_until_a_slave_has_everything() -> None:
    master, client = SimulatedBroker(), None
    link = Link("10.0.0.2:1")
    master.step(Accepted(link), Received(link, bytes(8)))
    client = master.connect()
    assert client.ask(send()).code == 0
    (number,) = client.send(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(broker_id=3)))
    assert number not in client.answers
    assert client.ask(send()).code == ResponseCode.SYSTEM_ERROR  # no more messages
    master.step(Received(link, master.store.log.end.to_bytes(8)))
    master.tick()
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert (master.settings.role, master.settings.broker_id) == (Role.SLAVE, 3)


def test_a_demoted_broker_gets_an_id_that_no_other_has() -> None:
    """Of two slaves with the same id, name servers would know only one."""
    master, _ = group(1)
    told(master, _0=master.settings.address, _1="10.0.0.2:10911", _2="10.0.0.3:10911")
    (number,) = (client := master.connect()).send(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(force=True)))
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert (master.settings.role, master.settings.broker_id) == (Role.SLAVE, 3)


@pytest.mark.parametrize("answers", [True, False])
def test_a_demotion_asks_the_name_servers_for_an_id_that_is_free_now(answers: bool) -> None:
    """The last registration may be 30 s old, and an old master may have come back as a slave since then."""
    master, _ = group(1)
    members = {"_0": master.settings.address, "_1": "10.0.0.2:10911"}
    told(master, **members)
    link = Link("10.0.0.2:2")
    master.step(Accepted(link), Received(link, bytes(8)))
    master.step(Received(link, master.store.log.end.to_bytes(8)))
    (number,) = (client := master.connect()).send(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker()))
    assert number not in client.answers
    assert RequestCode.GET_BROKER_MEMBER_GROUP in [command.code for command in master.announced]
    if answers:
        told(master, **members, _2="10.0.0.3:10911")
        master.tick()
    else:
        master.pass_time(ASK_MEMBERS_MS)
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert (master.settings.role, master.settings.broker_id) == (Role.SLAVE, 3 if answers else 2)


def test_a_demotion_without_a_slave_is_refused_at_once() -> None:
    master = SimulatedBroker()
    client = master.connect()
    refused = client.ask(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(broker_id=3)))
    assert refused.code == ResponseCode.SYSTEM_ERROR
    assert "no slave follows" in (refused.remark or "")
    assert client.ask(send()).code == ResponseCode.SUCCESS


def test_a_demotion_with_a_late_slave_is_refused_and_the_master_goes_on() -> None:
    master = SimulatedBroker()
    client = master.connect()
    assert client.ask(send()).code == 0
    link = Link("10.0.0.2:1")
    master.step(Accepted(link), Received(link, bytes(8)))
    (number,) = client.send(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(broker_id=3)))
    assert number not in client.answers
    master.pass_time(4_000)
    assert "no slave had all messages" in (client.answers[number].remark or "")
    assert client.ask(send()).code == ResponseCode.SUCCESS
    forced = client.ask(request(RequestCode.DEMOTE_BROKER, headers.DemoteBroker(broker_id=3, force=True)))
    assert forced.code == ResponseCode.SUCCESS
    assert master.settings.role is Role.SLAVE


def test_a_master_that_is_not_the_newest_takes_no_messages_and_becomes_a_slave() -> None:
    master, world = group(2)
    assert promote(world.connect()).code == 0
    client = master.connect()
    told(master, _0="10.0.0.2:10911", _2="10.0.0.3:10911")
    assert "another broker" in (client.ask(send()).remark or "")
    answer_with_epochs(master, world)
    assert (master.settings.role, master.settings.broker_id) == (Role.SLAVE, 1)


def test_a_master_stays_one_when_the_name_servers_say_so() -> None:
    master, _ = group(2)
    told(master, _0=master.settings.address)
    assert master.connect().ask(send()).code == 0
    assert not master.asked


def test_a_master_of_a_group_asks_first_when_it_starts() -> None:
    master, _ = group(1)
    master.machine.failover.ask_first(master.now_ms)
    client = master.connect()
    assert "asks the name servers" in (client.ask(send()).remark or "")
    told(master, _0=master.settings.address)
    assert client.ask(send()).code == 0
    master.machine.failover.ask_first(master.now_ms)
    master.pass_time(6_000)  # no name server answers
    assert client.ask(send()).code == 0


def test_a_master_without_slaves_never_asks() -> None:
    world = SimulatedBroker()
    world.machine.failover.ask_first(world.now_ms)
    assert world.connect().ask(send()).code == 0
    told(world, _0="10.0.0.9:1")
    assert world.connect().ask(send()).code == 0


def test_registrations_have_the_epoch() -> None:
    _, world = group(1)
    world.machine.registration.is_on = True
    assert promote(world.connect()).code == 0
    world.tick()
    command = [found for found in world.announced if found.code == RequestCode.REGISTER_BROKER][-1]
    body = bodies.RegisterBrokerBody.decode(command.body)
    assert body.topic_config_serialize_wrapper.data_version.state_version == PROMOTED


@pytest.mark.parametrize("count", [1, 30])
def test_what_is_set_aside_is_read_as_a_store(tmp_path: Path, count: int) -> None:
    from tests.unit.store.small import HOST, file_time, message

    from kourou.store.disk import RealDisk
    from kourou.store.settings import StoreSettings
    from kourou.store.store import Store

    settings = StoreSettings(commit_log_file_size=4096, max_body_size=1000)
    store = Store.open(tmp_path, settings, store_host=HOST, now_ms=1, file_time=file_time)
    store.append([message(b"before")], 1)
    start = store.log.end
    for number in range(count):
        store.append([message(b"%d" % number + b"x" * 300)], 1)
    folder = at_once(store.history.set_aside(start))
    store.truncate(start, 1)
    store.close(1)
    found = LogFiles(RealDisk(tmp_path / "aside"), folder / "commitlog")
    bodies_ = [bytes(record.message().body) for record in found.records(found.start)]
    assert len(bodies_) == count
    assert bodies_[0] == b"0" + b"x" * 300


def registered(world: SimulatedBroker, master: str | None) -> bool:
    """Has the broker just registered? A name server tells it of this master."""
    commands, world.announced[:] = [one for one in world.announced if one.code == RequestCode.REGISTER_BROKER], []
    for _ in commands:
        ext = None if master is None else {"masterAddr": f"{master}:10911", "haServerAddr": f"{master}:10912"}
        world.step(Announced(NAME_SERVER, Command(0, ext=ext), None, RequestCode.REGISTER_BROKER))
    return bool(commands)


def test_a_slave_that_loses_its_master_soon_learns_of_a_promoted_one() -> None:
    """Otherwise senders of the new master would wait up to 30 s for their second replica."""
    master = SimulatedBroker()
    assert master.connect().ask(send()).code == 0
    world = slave(ha_master_address=None)
    world.machine.registration.is_on = True
    world.tick(1)
    assert registered(world, "10.0.0.1")
    (asked,) = [ask for ask in world.asked if ask.command.code == RequestCode.GET_BROKER_RUNTIME_INFO]
    world.step(Answered(asked.token, master.connect().ask(asked.command)))
    answer_with_epochs(world, master)
    link = Link("10.0.0.1:10912")
    world.step(Connected(link))
    world.pass_time(3_000)
    registered(world, "10.0.0.1")
    world.pass_time(10_000)
    assert not registered(world, "10.0.0.1")  # nothing has changed

    world.step(Closed(link))
    world.tick(1)
    assert registered(world, "10.0.0.1")  # the name servers do not know yet
    world.pass_time(3_000)
    assert registered(world, "10.0.0.2")
    assert world.machine.replication.master_address == "10.0.0.2:10911"


def test_a_slave_that_often_loses_its_master_registers_at_intervals() -> None:
    world = slave()
    world.machine.registration.is_on = True
    count = 0
    for _ in range(60):
        world.tick(500)
        link = Link("10.0.0.1:10912")
        world.step(Connected(link), Received(link, bytes(12)))  # a heartbeat
        world.tick(500)
        count += registered(world, None)
        world.step(Closed(link))
    assert 8 <= count <= 22
