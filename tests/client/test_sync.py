"""The same client without await."""

import os
import signal
import threading

import pytest

import kourou.sync
from kourou.client import ClosedError, ProducerSettings
from kourou.sync import Delivery

from .conftest import PATIENT, World
from .steps import make_topic


def test_sending_and_consuming(world: World, name: str) -> None:
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.run(lambda client: make_topic(client, name, queues=2))
        assert mq.send(name, b"0", tag="t", keys="k").is_safe
        assert len(mq.send_many(name, [b"1", b"2"])) == 2
        assert len(mq.send_batch(name, [b"3", b"4"])) == 1
        seen = []
        with mq.consume(name, group=name, start="first") as consumer:
            for message in consumer:
                with message.process():
                    seen.append(message.body)
                if len(seen) == 5:
                    break
            assert consumer.next(0.1) is None
            assert len(consumer.assignment) == 2
        assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4"]
        assert len(mq.admin.topics.stats(name)) == 2
        assert [message.body for message in mq.admin.messages.by_time(name, 0) if message.tag] == [b"0"]


@pytest.mark.parametrize("what", ["listening", "client"])
def test_a_listener_may_close_what_calls_it(kourou_world: World, name: str, what: str) -> None:
    """It would wait for itself, for settle_timeout."""
    started, closed = threading.Event(), threading.Event()

    def listener(_: Delivery) -> None:
        assert started.wait(60)
        (listening if what == "listening" else mq).close()
        closed.set()

    mq = kourou.sync.connect(kourou_world.namesrv, settings=PATIENT)
    mq.start()
    mq.send(name, b"x")
    listening = mq.listen(name, listener, group=name, start="first", settle_timeout=3600)
    started.set()
    assert closed.wait(60)
    if what == "client":
        for thread in threading.enumerate():
            if thread.name == "kourou-sync close":
                thread.join(60)
                assert not thread.is_alive()
        with pytest.raises(ClosedError):
            mq.send(name, b"y")
    mq.close()
    with kourou.sync.connect(kourou_world.namesrv, settings=PATIENT) as other:
        other.send(name, b"z")
        message = other.consume(name, group=name, start="first").next(60)
        assert message is not None and message.body == b"z"


def test_listening_in_threads(world: World, name: str) -> None:
    done = threading.Event()
    seen: list[tuple[bytes, bool]] = []

    def listener(message: Delivery) -> None:
        seen.append((message.body, threading.current_thread() is threading.main_thread()))
        done.set()

    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.send(name, b"x")
        with mq.listen(name, listener, group=name, start="first"):
            assert done.wait(30)
    assert seen == [(b"x", False)]


def test_replies_from_a_thread(world: World, name: str) -> None:
    with (
        kourou.sync.connect(world.namesrv, settings=PATIENT) as mq,
        kourou.sync.connect(world.namesrv, settings=PATIENT) as other,
    ):
        mq.run(lambda client: make_topic(client, name))
        with other.listen(name, lambda message: other.reply(message, b"re"), group=name, start="first"):
            assert mq.request(name, b"x", timeout=20).body == b"re"


def test_polling(world: World, name: str) -> None:
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.run(lambda client: make_topic(client, name, queues=1))
        mq.send(name, b"x")
        with mq.lite_pull(group=name, start="first") as consumer:
            consumer.subscribe(name)
            (message,) = consumer.poll(30)
            assert message.body == b"x"
        puller = mq.pull(group=name)
        (queue,) = puller.queues(name)
        assert puller.pull(queue, 0).messages[0].body == b"x"
        assert (puller.min_offset(queue), puller.max_offset(queue)) == (0, 1)


def test_errors_come_through_and_a_closed_client_says_so(world: World) -> None:
    mq = kourou.sync.connect(world.namesrv, settings=PATIENT)
    with pytest.raises(ClosedError):
        mq.send("topic", b"x")
    with mq:
        with pytest.raises(kourou.KourouError):
            mq.send("topic", b"")
        assert mq.run(lambda client: client.admin.topics.list()) is not None
    with pytest.raises(ClosedError):
        mq.send("topic", b"x")
    mq.close()


def test_threads_that_wait_are_woken_when_their_client_is_closed(kourou_world: World, name: str) -> None:
    """They used to wait for ever: nothing was left that could wake them."""
    raised: list[BaseException] = []
    mq = kourou.sync.connect(kourou_world.namesrv, settings=PATIENT)
    mq.start()

    def ask() -> None:
        try:
            mq.request(name, b"nobody replies", timeout=3600)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    with kourou.sync.connect(kourou_world.namesrv, settings=PATIENT) as other:
        for _ in other.consume(name, group=name, start="first"):
            break
    mq.close()
    thread.join(30)
    assert [type(error) for error in raised] == [ClosedError]


def test_a_producer_of_a_group_of_its_own(world: World, name: str) -> None:
    with kourou.sync.connect(world.namesrv, settings=PATIENT) as mq:
        mq.run(lambda client: make_topic(client, name, queues=2))
        with mq.producer("office", ProducerSettings(timeout=20, compress_from=None)) as producer:
            assert len(producer.queues(name)) == 2
            assert producer.send(name, b"1").is_safe
            assert len(producer.send_many(name, [b"2", b"3"])) == 2
        with pytest.raises(ClosedError):
            producer.send(name, b"4")
        with mq.transaction(name, group="office-tx") as tx:
            tx.send(b"open")
            tx.leave_open()
            assert tx.has_ended()


def test_a_forked_process_is_told_to_make_a_client_of_its_own(kourou_world: World, name: str) -> None:
    """It used to wait for ever, for a thread that only its parent has."""
    with kourou.sync.connect(kourou_world.namesrv, settings=PATIENT) as mq:
        mq.send(name, b"x")
        loop = iter(mq.consume(name, group=name, start="first"))
        message = next(loop)
        child = os.fork()
        if not child:
            signal.alarm(60)
            failed = 1
            try:
                for use in (lambda: mq.send(name, b"x"), message.ack, lambda: next(loop)):
                    with pytest.raises(ClosedError, match="after the fork"):
                        use()
                del loop
                mq.close()
                with kourou.sync.connect(kourou_world.namesrv, settings=PATIENT) as own:
                    own.send(name, b"y")
                failed = 0
            finally:
                os._exit(failed)
        assert os.waitpid(child, 0)[1] == 0
        message.ack()
        assert next(loop).body == b"y"
