"""Tasks, admission, offsets and options: all pure."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from kourou.protocol.bodies import BrokerData, QueueData, TopicRouteData
from kourou.protocol.errors import BodyError
from kourou.protocol.message import MessageQueue
from kourou.spark.cluster import route_of
from kourou.spark.columns import check_types, ddl
from kourou.spark.errors import OptionError, UnreachableError
from kourou.spark.messages import check_columns
from kourou.spark.options import Options
from kourou.spark.planning import Range, admit, count_waiting, make_tasks
from kourou.spark.positions import from_nested, parse_assignment, parse_offsets, to_nested
from kourou.spark.reading_settings import READ_OPTIONS, TopicTimes, read_settings
from kourou.spark.sending import first_turn
from kourou.spark.wire import persist


def queue(number: int, broker: str = "a", topic: str = "t") -> MessageQueue:
    return MessageQueue(topic, broker, number)


QUEUES = st.builds(queue, st.integers(0, 5), st.sampled_from("ab"), st.sampled_from("tu"))
RANGES = st.dictionaries(QUEUES, st.tuples(st.integers(0, 10**6), st.integers(0, 10**5)), max_size=10).map(
    lambda found: [Range(queue, start, start + size) for queue, (start, size) in found.items()]
)


@hypothesis_settings(deadline=None)
@given(RANGES, st.none() | st.integers(1, 50), st.none() | st.integers(100, 10**6))
def test_tasks_have_everything_once_and_in_order(
    ranges: list[Range], tasks_min: int | None, task_rows_max: int | None
) -> None:
    tasks = make_tasks(ranges, tasks_min=tasks_min, task_rows_max=task_rows_max)
    pieces = [piece for task in tasks for piece in task]
    for whole in ranges:
        own = [piece for piece in pieces if piece.queue == whole.queue]
        assert sum(piece.size for piece in own) == whole.size
        at = whole.start
        for piece in own:
            assert (piece.start, piece.size > 0) == (at, True)
            at = piece.end
    if task_rows_max is not None:
        assert all(sum(piece.size for piece in task) <= task_rows_max for task in tasks)
    total = sum(one.size for one in ranges)
    if tasks_min is not None:
        assert len(tasks) >= min(tasks_min, total)


def test_small_queues_share_a_task_and_large_ones_are_cut() -> None:
    small = [Range(queue(number), 0, 100) for number in range(8)]
    assert len(make_tasks(small)) == 1
    large = [Range(queue(0), 0, 200_000)]
    assert [task[0].size for task in make_tasks(large)] == [100_000] * 2
    assert len(make_tasks(small, tasks_min=4)) == 4
    assert make_tasks([Range(queue(0), 5, 5)]) == []
    even = [Range(queue(number), 0, 18_750) for number in range(8)]
    assert [sum(one.size for one in task) for task in make_tasks(even)] == [75_000, 75_000]
    uneven = [Range(queue(number), 0, 40_000) for number in range(4)]
    assert [sum(one.size for one in task) for task in make_tasks(uneven)] == [80_000, 80_000]


@hypothesis_settings(deadline=None)
@given(
    st.dictionaries(QUEUES, st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=8),
    st.integers(1, 3000),
)
def test_a_trigger_takes_what_it_may(found: dict[MessageQueue, tuple[int, int]], rows_max: int) -> None:
    start = {queue: begin for queue, (begin, _) in found.items()}
    end = {queue: begin + size for queue, (begin, size) in found.items()}
    admitted = admit(start, end, rows_max)
    assert all(start[queue] <= admitted[queue] <= end[queue] for queue in end)
    assert count_waiting(start, admitted) == min(rows_max, count_waiting(start, end))


def test_shares_follow_what_waits() -> None:
    start = {queue(0): 0, queue(1): 10}
    assert admit(start, {queue(0): 900, queue(1): 110}, 100) == {queue(0): 90, queue(1): 20}
    assert admit(start, {queue(0): 9, queue(1): 11}, 100) == {queue(0): 9, queue(1): 11}


def test_a_queue_that_went_back_is_not_waited_for() -> None:
    assert admit({queue(0): 50, queue(1): 0}, {queue(0): 10, queue(1): 100}, 7) == {queue(0): 10, queue(1): 7}


@hypothesis_settings(deadline=None)
@given(st.dictionaries(QUEUES, st.integers(0, 2**62)))
def test_offsets_survive_a_checkpoint(offsets: dict[MessageQueue, int]) -> None:
    text = json.dumps(to_nested(offsets))
    assert from_nested(json.loads(text)) == offsets
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(to_nested(backwards)) == text


@pytest.mark.parametrize("text", ["[]", '{"t": 5}', '{"t": {"b": {"x": 1}}}', '{"t": {"b": {"0": -3}}}', "{"])
def test_offsets_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="option startingOffsets"):
        parse_offsets(text, "startingOffsets")


def test_assignments() -> None:
    assert parse_assignment('{"t": {"b": [1, 0]}}') == [queue(0, "b"), queue(1, "b")]
    with pytest.raises(OptionError, match="option assign must look like"):
        parse_assignment('{"t": ["b"]}')


def options(**given_: str) -> Options:
    return Options(given_, ["size", "time", "topics", "flag", "number", "choice"])


@pytest.mark.parametrize(("text", "size"), [("10", 10), ("64k", 65536), ("2 MB", 2 << 20), ("1GiB", 1 << 30)])
def test_sizes(text: str, size: int) -> None:
    assert options(size=text).size("size") == size


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("1700000000000", 1700000000000),
        ("2023-11-14T22:13:20Z", 1700000000000),
        ("2023-11-14 22:13:20", 1700000000000),
        ("2023-11-15T00:13:20+02:00", 1700000000000),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    assert options(time=text).time_ms("time") == time_ms


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        ({"size": "much"}, lambda found: found.size("size")),
        ({"size": "0"}, lambda found: found.size("size")),
        ({"time": "soon"}, lambda found: found.time_ms("time")),
        ({"flag": "1"}, lambda found: found.flag("flag", False)),
        ({"number": "-1"}, lambda found: found.number("number")),
        ({"choice": "c"}, lambda found: found.choice("choice", ("a", "b"), "a")),
        ({}, lambda found: found.needed("topics", "orders")),
    ],
)
def test_options_that_make_no_sense(given_: dict[str, str], read: Any) -> None:
    with pytest.raises(OptionError, match=f"option {next(iter(given_), 'topics')} (is|must be)"):
        read(options(**given_))


def test_an_unknown_option() -> None:
    with pytest.raises(OptionError, match=r"no option topicz: did you mean topics\?"):
        options(topicz="a")


def settings(streaming: bool = False, given_: dict[str, str] | None = None, **more: str) -> Any:
    found = {"namesrv": "h:1", "topics": "t", **(given_ or {}), **more}
    return read_settings(Options(found, READ_OPTIONS), streaming=streaming)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"kafka.bootstrap.servers": "a:9092"}, "use namesrv, the addresses of name servers"),
        ({"subscribe": "orders"}, "no option subscribe: this is an option of the Kafka source; use topics"),
        ({"subscribePattern": "o.*"}, "use topicPattern"),
        ({"startingOffsetsByTimestamp": '{"o":{"0":1}}'}, 'use startingTimestamp, by topic: {"orders": '),
        ({"kafka.group.id": "g"}, "use group"),
        ({"kafka.max.poll.records": "5"}, "this is an option of the Kafka source; the options are accessKey, assign,"),
        ({"topics": "o", "startingOffsets": '{"o": {"0": 23}}'}, "put the broker's name in between"),
        ({"assign": '{"o": [0, 1]}'}, "put the broker's name in between"),
        (
            {"topics": "o", "startingOffsets": "2024-05-01T12:00:00Z"},
            "does not take a time: use option startingTimestamp",
        ),
        ({"topics": "o", "startingOffsets": "1714564800000"}, "does not take a time: use option startingTimestamp"),
        ({"topics": "o", "startingTimestamp": '{"o": {"0": 5}}'}, "times are by topic, not by queue"),
        ({"topics": "o", "startingTimestamp": '{"o": true}'}, "must look like"),
        ({"topics": "o", "startingTimestamp": "{"}, "option startingTimestamp is not valid JSON"),
    ],
    ids=str,
)
def test_words_of_kafka_get_a_hint(given_: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        read_settings(Options({"namesrv": "a:1", **given_}, READ_OPTIONS), streaming=False)
    assert said in str(caught.value)


def test_times_of_topics() -> None:
    text = '{"a": "2024-05-01T12:00:00Z", "b": 7}'
    found = read_settings(
        Options({"namesrv": "a:1", "topics": "a,b", "startingTimestamp": text}, READ_OPTIONS), streaming=False
    )
    assert found.starting == TopicTimes({"a": 1714564800000, "b": 7})


def test_where_reading_begins() -> None:
    assert settings().starting == "earliest"
    assert settings(streaming=True).starting == "latest"
    assert settings(startingTimestamp="5").starting == 5
    assert settings(startingOffsets='{"t": {"b": {"0": 7}}}').starting == {queue(0, "b"): 7}
    assert settings(startingOffsets="group", group="g").starting == "group"


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"startingOffsets": "group"}, "set option group"),
        ({"endingOffsets": "earliest"}, "can't be earliest"),
        ({"accessKey": "k"}, "give accessKey and secretKey together"),
        ({"startingTimestamp": "9", "endingTimestamp": "5"}, "later than endingTimestamp"),
        ({"tags": "a", "sql92": "b"}, "tags and sql92 can't be combined"),
        ({"retryTimeout": "a while"}, "option retryTimeout must be a duration such as 30s"),
        ({"requestTimeout": "0"}, "option requestTimeout must be more than 0"),
        ({"namesrv": "127.0.0.1:²"}, "option namesrv: '127.0.0.1:²' is not host:port"),
    ],
)
def test_options_that_do_not_go_together(given_: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        settings(given_=given_)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="a stream, which has no end"):
        settings(streaming=True, endingOffsets="latest")


def test_durations_and_names() -> None:
    assert settings(retryTimeout="500ms").retry_s == 0.5
    assert settings(retryTimeout="2m").retry_s == 120
    assert settings(namesrv="a:1;b:2,c:3").name_servers == ("a:1", "b:2", "c:3")


def test_schemas() -> None:
    assert ddl(["topic", "body", "corrupt"]) == "topic string, body binary, corrupt string"
    assert check_types([("body", "binary")]) == ("body",)
    with pytest.raises(OptionError, match="column queue_id has type int, not bigint"):
        check_types([("queue_id", "bigint")])
    with pytest.raises(OptionError, match="no column what"):
        check_types([("what", "int")])


def test_a_sink_s_columns() -> None:
    check_columns({"body": "binary", "queue_offset": "bigint", "topic": "string"}, None)
    check_columns({"body": "binary", "topic": "string", "date": "date", "hour": "int"}, None)  # a lake has these
    with pytest.raises(OptionError, match="no topic to write to"):
        check_columns({"body": "binary"}, None)
    with pytest.raises(OptionError, match="no column day in a message"):
        check_columns({"body": "binary", "day": "date"}, "orders")
    with pytest.raises(OptionError, match="no column value in a message: use body"):
        check_columns({"value": "binary"}, "orders")


@pytest.mark.parametrize("write_id", ["query/{}", "{}"])
def test_micro_batches_begin_with_different_queues(write_id: str) -> None:
    queues = 8
    for part in range(3):
        begun = Counter(first_turn(write_id.format(number), part) % queues for number in range(64 * queues))
        assert len(begun) == queues
        assert max(begun.values()) < 2 * min(begun.values())
    turns = [first_turn(f"query/{number}", 0) % queues for number in range(queues)]
    assert sorted(turns) == list(range(queues))  # one after the other
    assert {first_turn("query/7", part) % queues for part in range(queues)} == set(range(queues))


def test_a_route_has_only_queues_that_can_be_used() -> None:

    data = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=1, perm=6),
            QueueData(broker_name="slave-only", read_queue_nums=1, write_queue_nums=1, perm=6),
            QueueData(broker_name="gone", read_queue_nums=1, write_queue_nums=1, perm=6),
            QueueData(broker_name="closed", read_queue_nums=1, write_queue_nums=1, perm=0),
        ],
        broker_datas=[
            BrokerData(broker_name="a", broker_addrs={0: "h:1"}),
            BrokerData(broker_name="slave-only", broker_addrs={1: "h:2"}),
            BrokerData(broker_name="closed", broker_addrs={0: "h:3"}),
        ],
    )
    route = route_of("t", data)
    assert route.readable == (queue(0), queue(1), queue(0, "slave-only"))
    assert route.writable == (queue(0),)


def test_patience_ends() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    tries: list[float] = []

    def attempt() -> None:
        tries.append(now[0])
        raise ConnectionRefusedError("refused")

    with pytest.raises(UnreachableError, match=r"the broker: refused \(tried for 10 s\)"):
        persist("the broker", attempt, 10.0, clock=lambda: now[0], sleep=sleep)
    assert 5 < len(tries) < 20
    assert now[0] <= 10


def test_a_route_with_absurd_numbers_of_queues() -> None:
    data = TopicRouteData(
        queue_datas=[QueueData(broker_name="b", read_queue_nums=2**31 - 1, write_queue_nums=2**31 - 1, perm=6)],
        broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "b:1"})],
    )
    with pytest.raises(BodyError, match="2147483647 read queues"):
        route_of("t", data)
