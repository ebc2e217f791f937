"""Parts of the client against simple models: unsettled messages, sharing of queues, batches, properties."""

from hypothesis import given, strategies as st

from kourou.client.balance import Averagely, AveragelyByCircle, ConsistentHash, NearbyRoom, Strategy
from kourou.client.outgoing import Message, draft, draft_batches
from kourou.client.settings import ProducerSettings
from kourou.client.unsettled import Unsettled
from kourou.protocol.batch import decode_batch
from kourou.protocol.message import MessageQueue
from kourou.protocol.properties import RESERVED, Property, decode

SHARING: list[Strategy] = [
    Averagely(),
    AveragelyByCircle(),
    ConsistentHash(),
    NearbyRoom(lambda queue: queue.broker_name[:1], lambda client: client[:1]),
]


@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=40))
def test_held_commits_like_the_simplest_model(data: st.DataObject, gaps: list[int]) -> None:
    """The offset to commit is that of the first message that is not done, or behind the last."""
    offsets, at = [], 0
    for gap in gaps:
        at += gap
        offsets.append(at)
    unsettled = Unsettled()
    unsettled.put((offset, 10) for offset in offsets)
    left = set(offsets)
    for offset in data.draw(st.permutations(offsets)):
        left.remove(offset)
        assert unsettled.settle(offset, 10) == (min(left) if left else offsets[-1] + 1)
        assert unsettled.count == len(left)
        assert unsettled.size == 10 * len(left)
        assert unsettled.span == (offsets[-1] - min(left) if left else 0)


@given(
    st.sampled_from(SHARING),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 9)), min_size=1, max_size=5),
)
def test_every_queue_goes_to_exactly_one_consumer(
    strategy: Strategy, rooms: list[str], brokers: list[tuple[str, int]]
) -> None:
    clients = sorted(f"{room}{number}" for number, room in enumerate(rooms))
    queues = sorted(
        MessageQueue("T", f"{room}-{number}", queue)
        for number, (room, count) in enumerate(brokers)
        for queue in range(count)
    )
    shares = [strategy.allocate(client, queues, clients) for client in clients]
    assert sorted(queue for share in shares for queue in share) == queues


_values = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=20)
_words = _values.filter(lambda text: bool(text.strip()))
_names = _words.filter(lambda name: name not in RESERVED and not name.startswith(Property.TRANSIENT_PREFIX))


@given(st.dictionaries(_names, _words, max_size=5), st.binary(min_size=1, max_size=200))
def test_properties_survive(properties: dict[str, str], body: bytes) -> None:
    made = draft("T", Message(body=body, properties=properties), ProducerSettings())
    found = decode(made.properties)
    assert {name: found[name] for name in properties} == properties
    assert made.body == body


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=60), st.integers(100, 2000))
def test_batches_hold_all_messages_in_order_and_keep_to_the_limit(bodies: list[bytes], limit: int) -> None:
    batches = draft_batches("T", [Message(body=body) for body in bodies], ProducerSettings(batch_size_max=limit))
    entries = [decode_batch(batch.body) for batch in batches]
    assert [bytes(entry.body) for batch in entries for entry in batch] == bodies
    assert all(len(batch.body) <= limit or len(found) == 1 for batch, found in zip(batches, entries, strict=True))
    ids = [one for batch in batches for one in batch.ids.split(",")]
    assert len(set(ids)) == len(bodies)
