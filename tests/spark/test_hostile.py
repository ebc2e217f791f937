"""Brokers that give the same messages again, or offsets that lead nowhere: no row comes twice, and reading ends."""

import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kourou.protocol.bodies import TopicQueueMappingInfo, TopicRouteData
from kourou.protocol.codes import ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.errors import KourouError
from kourou.protocol.frame import Decoder, encode
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import Cluster
from kourou.spark.errors import DataLossError, OptionError, UnreachableError
from kourou.spark.planning import Range
from kourou.spark.pulling import Filter, Patience, Puller
from kourou.spark.rows import make_rows
from kourou.spark.wire import Access, close_all

from .records import log, record

QUEUE = MessageQueue("orders", "broker-a", 1)

React = Callable[[Command], Command]


@pytest.fixture
def serve() -> Iterator[Callable[[React], str]]:
    """The address of a server that answers each request as a function says."""
    made: list[tuple[socket.socket, threading.Thread]] = []

    def start(react: React) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def work() -> None:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            with connection:
                decoder = Decoder()
                while data := connection.recv(65_536):
                    for command in decoder.feed(data):
                        connection.sendall(encode(react(command)))

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        made.append((listener, thread))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield start
    close_all()
    for listener, thread in made:
        listener.close()
        thread.join(10)


class Known(Cluster):
    """A cluster whose one broker is known."""

    def __init__(self, address: str) -> None:
        super().__init__((address,), Access(timeout=10.0))
        self._address = address

    def address(self, queue: MessageQueue, *, fresh: bool = False, master: bool = False) -> str:
        return self._address


def pulled(command: Command, body: bytes, following: int) -> Command:
    answer = command.answer(body=body)
    ends = {"minOffset": "0", "maxOffset": "1000", "suggestWhichBrokerId": "0"}
    answer.ext = {**ends, "nextBeginOffset": str(following)}
    return answer


def offsets(address: str, end: int) -> list[int]:
    patience = Patience(0.3)
    puller = Puller(Known(address), make_rows(("queue_offset",)), Filter(), patience=patience)
    found: list[int] = []
    for batch in puller.read((Range(QUEUE, 0, end),)):
        found += batch.column("queue_offset").to_pylist()
    return found


def test_messages_that_are_returned_again_add_no_rows(serve: Callable[[React], str]) -> None:
    """Every answer has messages 0 to 19, whatever was asked for, and says to continue ten further on."""
    body = b"".join(record(number) for number in range(20))
    address = serve(lambda command: pulled(command, body, int((command.ext or {})["queueOffset"]) + 10))
    assert offsets(address, 20) == list(range(20))


@pytest.mark.parametrize("following", [0, -1, 9])
def test_an_offset_that_goes_backwards_ends_the_reading(serve: Callable[[React], str], following: int) -> None:
    def react(command: Command) -> Command:
        if (command.ext or {})["queueOffset"] == "0":
            return pulled(command, log(10), 10)
        return pulled(command, log(10), following)

    address = serve(react)
    with pytest.raises(DataLossError, match="no next offset"):
        offsets(address, 20)


def test_a_broker_in_the_place_of_a_name_server(serve: Callable[[React], str]) -> None:
    address = serve(lambda command: command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not supported"))
    with pytest.raises(OptionError, match=f"option namesrv: {address} is not a name server"):
        Cluster((address,), Access(timeout=10.0)).route("orders")


def test_an_absurd_route(serve: Callable[[React], str]) -> None:
    body = b'{"queueDatas":[{"brokerName":"b","readQueueNums":2147483647,"writeQueueNums":2147483647,"perm":6}]}'
    address = serve(lambda command: command.answer(body=body))
    with pytest.raises(KourouError, match="2147483647 read queues"):
        Cluster((address,), Access(timeout=10.0)).route("orders")


@pytest.mark.parametrize("where", ["nowhere", "", "127.0.0.1:x", f"{'a' * 300}:1"])
def test_a_route_to_no_address(where: str) -> None:
    """It is a broker that can't be reached, with its name, as one that is away."""
    with pytest.raises(UnreachableError, match="no connection to"):
        offsets(where, 20)


def test_a_static_topic_is_refused_by_its_name(serve: Callable[[React], str]) -> None:
    """Its queues are not those of its brokers, which refused the numbers one by one, with a code."""

    def react_with(numbers: list[dict[int, int]], command: Command) -> Command:
        mappings = {f"b{at}": TopicQueueMappingInfo(bname=f"b{at}", curr_id_map=own) for at, own in enumerate(numbers)}
        return command.answer(body=TopicRouteData(topic_queue_mapping_by_broker=mappings).encode())

    for numbers in ([{0: 0, 2: 1}, {1: 0, 3: 1}], [{0: 1, 1: 0}]):
        address = serve(partial(react_with, numbers))
        with pytest.raises(OptionError, match="orders is a static topic"):
            Cluster((address,), Access(timeout=10.0)).route("orders")
    address = serve(partial(react_with, [{0: 0, 1: 1}]))
    assert Cluster((address,), Access(timeout=10.0)).route("orders").readable == ()
