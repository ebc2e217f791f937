"""A group of brokers whose master a controller elects."""

from dataclasses import replace
from random import Random

import pytest
from tests.unit.broker.asking import pull, request, send
from tests.unit.broker.controlled.cluster import Cluster

from kourou.broker.settings import Role
from kourou.protocol import bodies, headers
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.record import decode_records
from kourou.store.settings import FlushMode
from kourou.testing.broker import SMALL_STORE, SimulatedClient


def started(count: int = 2, **settings: object) -> Cluster:
    cluster = Cluster(count, **settings)  # type: ignore[arg-type]
    cluster.pass_time(6_000)
    assert cluster.controller.members == set(range(1, count + 1))
    return cluster


def test_a_new_broker_gets_an_id_and_leads() -> None:
    cluster = Cluster(1)
    broker = cluster.broker(0)
    assert broker.connect().ask(send()).code != ResponseCode.SUCCESS
    assert broker.announced == []  # fenced
    cluster.pass_time(3_000)
    assert broker.settings.role is Role.SYNC_MASTER
    assert broker.settings.broker_id == 0
    assert broker.connect().ask(send()).code == ResponseCode.SUCCESS
    root = broker.store.paths.root
    assert broker.disk.read(root / "brokerIdentity") == b"DefaultCluster#group#1"
    assert broker.disk.read(root / "brokerIdentity-temp") is None
    assert broker.disk.read(root / "epochFileCheckpoint") == b"1\n1725254278\n1-0\n"
    version = broker.machine.registration.epoch
    assert version == 1


def test_an_id_is_applied_for_again_with_the_same_code_if_the_answer_is_lost() -> None:
    cluster = Cluster(1)
    cluster.pump(3)
    cluster.kill(0)
    cluster.restart(0)
    cluster.pass_time(3_000)
    assert cluster.broker(0).settings.role is Role.SYNC_MASTER
    assert cluster.controller.codes.keys() == {1}


def test_a_sender_is_answered_when_all_members_have_its_message() -> None:
    cluster = started(all_in_sync=True)
    client = cluster.broker(0).connect()
    number = client.send(send(b"one"))[0]
    assert number not in client.answers
    assert cluster.broker(0).connect().ask(pull()).code != ResponseCode.SUCCESS
    cluster.pump()
    assert client.answers[number].code == ResponseCode.SUCCESS
    assert cluster.broker(0).connect().ask(pull()).code == ResponseCode.SUCCESS


def test_a_member_that_is_lost_leaves_the_set_and_senders_go_on() -> None:
    cluster = started(all_in_sync=True)
    cluster.kill(1)
    client = cluster.broker(0).connect()
    number = client.send(send())[0]
    assert number not in client.answers
    cluster.pass_time(1_000)
    assert cluster.controller.members == {1}
    assert client.answers[number].code == ResponseCode.SUCCESS


def test_a_member_stays_while_no_controller_agrees() -> None:
    cluster = started(all_in_sync=True)
    cluster.controller.is_away = True
    cluster.kill(1)
    client = cluster.broker(0).connect()
    number = client.send(send())[0]
    cluster.pass_time(3_500)
    assert client.answers[number].code == ResponseCode.FLUSH_SLAVE_TIMEOUT
    assert cluster.broker(0).connect().ask(pull()).code != ResponseCode.SUCCESS


def test_too_few_members_refuse_messages() -> None:
    cluster = started(all_in_sync=True, min_in_sync_replicas=2)
    assert cluster.broker(0).connect().send(send())
    cluster.kill(1)
    cluster.pass_time(1_000)
    answer = cluster.broker(0).connect().ask(send())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "in-sync replicas not enough" in (answer.remark or "")


def test_the_other_one_leads_after_a_loss_and_the_returning_one_follows() -> None:
    cluster = started(all_in_sync=True)
    client = cluster.broker(0).connect()
    first = client.send(*(send(b"%d" % number) for number in range(5)))
    cluster.pump()
    assert all(client.answers[number].code == 0 for number in first)
    client.send(send(b"never acknowledged"))  # nobody else gets it
    cluster.kill(0)
    cluster.pass_time(6_000)
    assert cluster.master == 1
    assert cluster.broker(1).connect().ask(send(b"after")).code == 0
    cluster.restart(0)
    assert cluster.broker(0).connect().ask(pull()).code == ResponseCode.SYSTEM_BUSY  # may be cut off
    cluster.pass_time(6_000)
    assert cluster.controller.members == {1, 2}
    one, two = cluster.broker(0), cluster.broker(1)
    assert one.settings.role is Role.SLAVE
    assert log_of(cluster, 0) == log_of(cluster, 1)
    assert b"never acknowledged" not in log_of(cluster, 0)
    group = one.machine.group
    assert group is not None
    assert group.history.all == two.machine.group.history.all  # type: ignore[union-attr]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_group_whose_brokers_and_controller_start_together_has_a_master_again(count: int, power_cut: bool) -> None:
    """The controller still takes the old master for the master, which may have lost what others have."""
    cluster = started(count, all_in_sync=True)
    client = cluster.broker(0).connect()
    number = client.send(send(b"before"))[0]
    cluster.pump()
    assert client.answers[number].code == 0
    cluster.restart_all(power_cut=power_cut)
    cluster.pass_time(15_000)
    assert cluster.controller.epoch == 2
    assert cluster.controller.members == set(range(1, count + 1))
    assert cluster.master is not None
    client = cluster.broker(cluster.master).connect()
    number = client.send(send(b"after"))[0]
    cluster.pump()
    assert client.answers[number].code == 0
    assert all(log_of(cluster, one) == log_of(cluster, cluster.master) for one in cluster.living)


def test_a_designated_master_takes_over_while_both_live() -> None:
    cluster = started(all_in_sync=True)
    client = cluster.broker(0).connect()
    client.send(send(b"before"))
    cluster.pump()
    controller = cluster.controller
    controller.master, controller.members = 2, {2}
    controller.epoch, controller.set_epoch = controller.epoch + 1, controller.set_epoch + 1
    notice = headers.NotifyBrokerRoleChanged(master_broker_id=2, master_epoch=2, master_address="x:1")
    for number in (0, 1):
        body = bodies.SyncStateSet(sync_state_set=[2], sync_state_set_epoch=9).encode()
        cluster.broker(number).connect().send(request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, notice, body))
    cluster.pass_time(4_000)
    assert cluster.broker(0).settings.role is Role.SLAVE
    assert cluster.broker(1).settings.role is Role.SYNC_MASTER
    assert controller.members == {1, 2}
    sender = cluster.broker(1).connect()
    number = sender.send(send(b"after"))[0]
    cluster.pump()
    assert sender.answers[number].code == 0
    assert cluster.broker(0).connect().ask(send()).code != 0


def test_a_forged_notice_changes_nothing() -> None:
    cluster = started()
    notice = headers.NotifyBrokerRoleChanged(master_broker_id=2, master_epoch=99, master_address="evil:1")
    cluster.broker(0).connect().send(request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, notice))
    cluster.pass_time(2_000)
    assert cluster.broker(0).settings.role is Role.SYNC_MASTER


def test_epochs_are_shown() -> None:
    cluster = started()
    answer = cluster.broker(1).connect().ask(request(RequestCode.GET_BROKER_EPOCH_CACHE))
    shown = bodies.EpochEntryCache.decode(answer.body)
    assert (shown.broker_id, [(one.epoch, one.start_offset) for one in shown.epoch_list]) == (2, [(1, 0)])


def test_a_learner_never_joins() -> None:
    cluster = Cluster(2, is_learner=True)
    cluster.pass_time(8_000)
    assert cluster.controller.members == {cluster.controller.master}


def test_a_slave_shows_what_its_master_has_confirmed() -> None:
    cluster = started(3, all_in_sync=True, slave_read=True)
    client = cluster.broker(0).connect()
    client.send(send(b"one"))
    cluster.pass_time(2_000)
    assert cluster.broker(1).connect().ask(pull()).code == ResponseCode.SUCCESS
    cluster.controller.is_away = True
    cluster.kill(2)
    client.send(send(b"two"))
    cluster.pass_time(1_000)
    assert cluster.broker(1).store.log.end == cluster.broker(0).store.log.end
    answer = cluster.broker(1).connect().ask(pull(offset=1))
    assert answer.code != ResponseCode.SUCCESS


def log_of(cluster: Cluster, number: int) -> bytes:
    log = cluster.broker(number).store.log
    size = SMALL_STORE.commit_log_file_size
    return b"".join(bytes(log.read(at, min(size, log.end - at))) for at in range(log.start, log.end, size))


@pytest.mark.parametrize("seed", range(16))
def test_nothing_acknowledged_is_lost_and_nothing_seen_is_gone(seed: int) -> None:
    chance = Random(seed)
    store = replace(SMALL_STORE, flush_mode=FlushMode.SYNC)
    cluster = Cluster(2 + seed % 2, store, all_in_sync=True)
    cluster.pass_time(6_000)
    acknowledged: list[bytes] = []
    seen: set[bytes] = set()
    waiting: list[tuple[SimulatedClient, int, bytes]] = []
    sent = 0
    for _ in range(60):
        action = chance.random()
        master = cluster.master
        if action < 0.5 and master is not None and cluster.brokers[master] is not None:
            client = cluster.broker(master).connect()
            for _ in range(chance.randrange(1, 5)):
                body = b"message %d of seed %d." % (sent, seed)
                sent += 1
                waiting.append((client, client.send(send(body))[0], body))
        elif action < 0.6 and len(cluster.living) == len(cluster.brokers):
            cluster.kill(chance.choice(cluster.living))
        elif action < 0.63:
            cluster.restart_all(power_cut=chance.random() < 0.5)
        elif action < 0.75:
            for number in list(cluster.stopped):
                cluster.restart(number, power_cut=chance.random() < 0.5)
        else:
            cluster.pass_time(chance.choice([100, 500, 3_000]))
        cluster.pump(chance.randrange(5), chance)
        for entry in list(waiting):
            sender, number, body = entry
            answer = sender.answers.get(number)
            if answer is not None:
                waiting.remove(entry)
                if answer.code == ResponseCode.SUCCESS:
                    acknowledged.append(body)
        for number in cluster.living:
            answer = cluster.broker(number).connect().ask(pull(offset=chance.randrange(20)))
            if answer.code == ResponseCode.SUCCESS:
                seen |= {bytes(record.body) for record in decode_records(answer.body)}
    for number in list(cluster.stopped):
        cluster.restart(number)
    cluster.pass_time(15_000)
    assert cluster.controller.members == set(cluster.controller.addresses)
    content = log_of(cluster, 0)
    assert all(log_of(cluster, number) == content for number in cluster.living)
    assert [body for body in acknowledged if body not in content] == []
    assert [body for body in seen if body not in content] == []
    assert acknowledged
    assert all(cluster.broker(number).machine.faults == 0 for number in cluster.living)
