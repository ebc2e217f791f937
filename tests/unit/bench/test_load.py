"""The load generator counts correctly, and its loads run against a real name server."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.load import Answers, Crowd, Link, RefusedError, repeat, sort_stalls, stalls
from benchmarks.nameserver import FIRST, Contender, Frames, settled
from benchmarks.requests import route_query
from benchmarks.servers import Server

from kourou.nameserver.settings import Settings
from kourou.protocol.command import Command, encode
from kourou.server.nameserver import NameServerProcess


def test_answers_are_counted_whatever_the_pieces() -> None:
    stream = encode(Command(0, flag=1, body=b"route")) * 5
    for size in (1, 3, 7, len(stream)):
        answers = Answers()
        assert sum(answers.take(stream[at : at + size]) for at in range(0, len(stream), size)) == 5


def test_a_refusal_is_not_counted_as_an_answer() -> None:
    with pytest.raises(RefusedError, match="no such topic"):
        Answers().take(encode(Command(17, flag=1, remark="no such topic")))


def test_queries_belong_to_the_registration_they_overlap() -> None:
    asked = [(0, 10), (10, 20), (20, 90), (90, 95), (95, 99), (99, 130), (130, 131)]
    registrations = [(15, 92), (97, 120)]
    sorted_out = sort_stalls(asked, registrations)
    assert sorted_out.worst_ns == [70, 31]
    assert sorted_out.quiet_ns == [10, 1]
    assert sorted_out.latencies_ns == [10, 10, 70, 5, 4, 31, 1]


def test_queries_without_any_registration_are_quiet() -> None:
    assert sort_stalls([(0, 4), (4, 6)], []).quiet_ns == [4, 2]


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([9.0, 5.0, 4.0], False),  # too few to tell
        ([9.0, 8.0, 7.0, 6.0, 5.0], False),
        ([9.0, 5.0, 5.2, 4.9, 5.1], True),
        ([9.0, 5.0, 7.0, 4.7, 8.0], False),  # one of the last three shows that there is more to gain
    ],
)
def test_a_server_is_warm_when_it_gets_no_better(costs: list[float], expected: bool) -> None:
    assert settled(costs) is expected


class HereServer(Server):
    """A name server in a thread of this process."""

    def __init__(self, address: str) -> None:
        self.name, self.version, self.address = "here", "this process", address

    def cpu_ns(self) -> int:
        return time.process_time_ns()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HereServer]:
    loop = asyncio.new_event_loop()
    settings = Settings(
        listen_port=0,
        bind_address="127.0.0.1",
        kv_config_path=str(tmp_path / "kv.json"),
        config_store_path=str(tmp_path / "namesrv.properties"),
    )
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> NameServerProcess:
        process = NameServerProcess(settings)
        await process.start()
        return process

    process = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield HereServer(process.address)
    finally:
        asyncio.run_coroutine_threadsafe(process.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


@pytest.fixture
def contender(server: HereServer) -> Iterator[Contender]:
    contender = Contender(server, Frames.make(20))
    yield contender
    contender.close()


def test_every_load_runs(contender: Contender) -> None:
    for name, load in contender.loads().items():
        figure = load(0.01)
        assert figure.cpu_us > 0, name
        assert figure.per_second > 0, name
    assert FIRST in contender.loads()


def test_a_crowd_gets_an_answer_to_each_of_its_requests(contender: Contender) -> None:
    for depth in (1, 8):
        with Crowd(contender.server.address, 3, depth) as crowd:
            seen = crowd.run(iter(contender.frames.queries[:100]), 60)
        assert seen.count == 100
        assert len(seen.latencies_ns) == (100 if depth == 1 else 0)


def test_repeating_ends_after_the_least_number_when_time_is_up(contender: Contender) -> None:
    with Link(contender.server.address) as link:
        seen = repeat(link, contender.frames.queries, seconds=0, at_least=5)
    assert seen.count == len(seen.latencies_ns) == 5


def test_every_registration_meets_queries(contender: Contender) -> None:
    frames = contender.frames
    with Link(contender.server.address) as broker:
        broker.ask(frames.changed[0])
        seen = stalls(contender.server.address, broker, frames.changed[:3], frames.queries, pause_s=0.01)
    assert len(seen.worst_ns) == 3 and min(seen.worst_ns) > 0
    assert len(seen.latencies_ns) > len(seen.quiet_ns) > 0


def test_a_topic_that_no_broker_serves_stops_the_load(contender: Contender) -> None:
    with Link(contender.server.address) as link, pytest.raises(RefusedError, match="Unknown"):
        link.ask(route_query("Unknown"))
