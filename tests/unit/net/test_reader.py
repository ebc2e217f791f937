"""A reader before the handler: it serves the head of a read, the rest is decoded as ever, and all of it in order."""

import asyncio
import logging

import pytest

from kourou.net.connection import Connection
from kourou.net.listener import Listener
from kourou.protocol import frame
from kourou.protocol.command import Command

from .conftest import Dial, Knock, Listen
from .peers import CountingTransport, Echo, eventually, only_connection

FAST, LATER, BROKEN, LARGE = 7, 8, 9, 10
"""Request codes of requests that the lane takes, that it answers later, at which it fails, and with large answers."""

LARGE_SIZE = 32 * 1024


class Lane:
    """Serves frames with these codes, and leaves everything from the first other one on."""

    def __init__(self) -> None:
        self._others = Echo()
        self.reads = 0  # of which it has served something
        self.served_codes: list[int] = []
        self.later: list[tuple[Connection, bytes]] = []

    def read(self, connection: Connection, data: bytes) -> None:
        used = self._serve(connection, data)
        self.reads += used > 0
        if used and self.served_codes[-1] == LARGE:
            connection.put_off(data[used:])
        elif commands := connection.decode(data[used:]):
            self._others.requests(connection, commands)

    def _serve(self, connection: Connection, data: bytes) -> int:
        at = 0
        while len(data) - at >= 4 and (stop := at + 4 + int.from_bytes(data[at : at + 4])) <= len(data):
            (command,) = frame.Decoder().feed(data[at:stop])
            if command.code == BROKEN:
                raise RuntimeError("a fault of the lane")
            if command.code not in (FAST, LATER, LARGE):
                break
            self.served_codes.append(command.code)
            if command.code == LARGE:  # one at a time
                connection.reply_frames(frame.encode(command.answer(body=bytes(LARGE_SIZE))), 0)
                return stop
            answer = frame.encode(command.answer(body=b"fast"))
            if command.code == LATER:
                connection.owe(1)
                self.later.append((connection, answer))
            else:
                connection.reply_frames(answer, 0)
            at = stop
        return at


@pytest.fixture
async def lane(listen: Listen) -> tuple[Lane, Listener]:
    listener = await listen(Echo())
    listener.reader = lane = Lane()
    return lane, listener


async def test_the_head_of_a_read_and_the_rest(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    transport = CountingTransport(await only_connection(lane[1]))
    codes = [FAST, FAST, 1, FAST, 1]
    await peer.send([Command(code, opaque, body=b"slow") for opaque, code in enumerate(codes)])
    answers = await peer.commands(5)
    assert [answer.opaque for answer in answers] == [0, 1, 2, 3, 4]
    assert [answer.body for answer in answers] == [b"fast", b"fast", b"slow", b"slow", b"slow"]
    assert len(transport.writes) == 1
    assert lane[0].reads == 1


async def test_a_frame_in_pieces(lane: tuple[Lane, Listener], dial: Dial) -> None:
    connection = await dial(lane[1])
    answer = await connection.request(Command(FAST, body=bytes(3_000_000)), 20)
    assert answer.body == b"fast"


async def test_a_read_that_is_not_for_the_lane(lane: tuple[Lane, Listener], dial: Dial) -> None:
    connection = await dial(lane[1])
    assert (await connection.request(Command(1, body=b"slow"), 5)).body == b"slow"
    assert lane[0].reads == 0


async def test_reads_that_end_amid_a_frame_are_progress(lane: tuple[Lane, Listener], knock: Knock) -> None:
    """A busy peer's reads may all end so: the time for a frame begins again with each of them."""
    peer = await knock(lane[1])
    connection = await only_connection(lane[1])
    data = frame.encode(Command(FAST, 1))
    half = len(data) // 2
    await peer.send(data[:half])
    await eventually(lambda: connection.intake.started is not None)
    begun = connection.intake.started
    assert begun is not None
    connection.intake.started = begun - 1  # a loop's clock may count milliseconds, and all this takes less
    await peer.send(data[half:] + data[:half])
    await peer.commands(1)
    assert connection.intake.started is not None
    assert connection.intake.started >= begun


async def test_answers_that_are_owed_are_sent_before_the_end(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    await peer.send([Command(LATER, 5)])
    await eventually(lambda: len(lane[0].later) == 1)
    closing = asyncio.create_task(lane[1].close(20))
    await asyncio.sleep(0)
    connection, answer = lane[0].later[0]
    connection.reply_frames(answer, 1)
    assert [answer.opaque for answer in await peer.commands(1)] == [5]
    await closing


async def test_a_fault_of_the_lane_ends_that_connection_alone(
    lane: tuple[Lane, Listener], dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    connection, other = await dial(lane[1]), await dial(lane[1])
    await connection.send(Command(FAST))
    await connection.send(Command(BROKEN))
    await connection.lost
    assert (await other.request(Command(FAST), 5)).body == b"fast"
    assert [record.levelno for record in caplog.records].count(logging.ERROR) == 1
    caplog.clear()


# ── Large answers ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_connection_with_many_requests_does_not_delay_others(
    lane: tuple[Lane, Listener], knock: Knock, dial: Dial
) -> None:
    greedy, modest = await knock(lane[1]), await dial(lane[1])
    await greedy.send([Command(LARGE, opaque) for opaque in range(50)])
    await modest.request(Command(FAST), 5)
    assert LARGE in lane[0].served_codes
    assert lane[0].served_codes.count(LARGE) < 50
    answers = await greedy.commands(50)
    assert [answer.opaque for answer in answers] == list(range(50))
    assert all(len(answer.body) == LARGE_SIZE for answer in answers)


async def test_a_postponed_read_belongs_to_its_connection(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    codes = [LARGE, LARGE, FAST, 1, LARGE]
    await peer.send([Command(code, opaque, body=b"slow") for opaque, code in enumerate(codes)])
    answers = await peer.commands(5)
    assert [answer.opaque for answer in answers] == [0, 1, 2, 3, 4]
    assert [answer.body for answer in answers[2:]] == [b"fast", b"slow", b"slow"]


async def test_a_frame_behind_a_large_answer_may_come_in_pieces(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    data = b"".join(frame.encode(Command(LARGE, opaque)) for opaque in range(3))
    await peer.send(data[:-5])
    assert [answer.opaque for answer in await peer.commands(2)] == [0, 1]
    await peer.send(data[-5:])
    assert [answer.opaque for answer in await peer.commands(1)] == [2]


async def test_a_peer_that_sends_no_more_gets_all_answers(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    await peer.send([Command(LARGE, opaque) for opaque in range(20)])
    peer.half_close()
    assert [answer.opaque for answer in await peer.rest()] == list(range(20))


async def test_a_peer_that_does_not_read_is_waited_for(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1], receive_buffer=4096)
    count = 1000
    await peer.send([Command(LARGE, opaque) for opaque in range(count)])
    connection = await only_connection(lane[1])
    await eventually(lambda: connection.is_congested)
    assert lane[0].served_codes.count(LARGE) < count
    assert [answer.opaque for answer in await peer.commands(count)] == list(range(count))


async def test_a_stop_answers_what_was_put_off(lane: tuple[Lane, Listener], knock: Knock) -> None:
    peer = await knock(lane[1])
    await peer.send([Command(LARGE, opaque) for opaque in range(20)])
    await eventually(lambda: lane[0].served_codes)
    closing = asyncio.create_task(lane[1].close(20))
    assert [answer.opaque for answer in await peer.rest()] == list(range(20))
    await closing
