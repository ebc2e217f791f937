"""The registry of consumers' filters: versions, life and death, its file, bit maps."""

from pathlib import Path

import pytest

from kourou.broker.bloom import Bloom, mask_of, murmur3_low64
from kourou.broker.consumer_filters import BIT_MAP_STEPS_MAX, ConsumerFilter, ConsumerFilters
from kourou.broker.settings import BrokerSettings
from kourou.protocol import properties
from kourou.protocol.bodies import ConsumerFilterWrapper, SubscriptionData
from kourou.protocol.record import Scanner, encode_record
from kourou.store.consume_queue_ext import Unit
from kourou.store.wall_clock import WallClock

FILE = Path(__file__).parents[2] / "data" / "config-5.5.0" / "consumerFilter.json"
NOW = 1_800_000_000_000
DAY = 86_400_000


class World:
    """A registry, and how often it has changed."""

    def __init__(self, saved: ConsumerFilterWrapper | None = None, **settings: object) -> None:
        self.settings = BrokerSettings(filter_bit_map=True, **settings)  # type: ignore[arg-type]
        self.changes = 0
        self.filters = ConsumerFilters(self.settings, saved, self.touch, WallClock(), NOW)

    def touch(self) -> None:
        self.changes += 1

    def beat(self, text: str | None, version: int = 1, *, at: int = NOW, group: str = "g", kind: str = "SQL92") -> None:
        wanted = [] if text is None else [subscription("t", text, version, kind)]
        for _ in self.filters.register(group, wanted, at):
            pass

    def get(self, topic: str = "t", group: str = "g") -> ConsumerFilter:
        found = self.filters.get(topic, group)
        assert found is not None
        return found

    def bit_map(self, **values: str) -> bytes:
        return self.filters.bit_map_of(scanner("t", values))


def subscription(topic: str, text: str, version: int = 1, kind: str = "SQL92") -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)


def scanner(topic: str, values: dict[str, str]) -> Scanner:
    record = encode_record(
        topic=topic,
        body=b"x",
        raw_properties=properties.encode(values).encode(),
        queue_id=0,
        queue_offset=0,
        physical_offset=0,
        flag=0,
        sys_flag=0,
        born_ms=NOW,
        born_host=bytes(8),
        stored_ms=NOW,
        store_host=bytes(8),
    )
    found = Scanner(record)
    found.step()
    return found


@pytest.fixture
def world() -> World:
    return World()


# ── Versions, life and death ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_registers_a_filter(world: World) -> None:
    world.beat("a > 1", 7)
    found = world.get()
    assert (found.text, found.version, found.born_ms, found.is_dead) == ("a > 1", 7, NOW, False)
    assert found.expression is not None and found.expression.matches({"a": "2"})
    assert world.changes == 1


def test_a_filter_by_tag_is_none(world: World) -> None:
    world.beat("a || b", kind="TAG")
    assert world.filters.get("t", "g") is None


@pytest.mark.parametrize(("text", "kind"), [("a >", "SQL92"), ("", "SQL92"), ("a > 1", "SQL99")])
def test_what_does_not_compile_is_not_registered(world: World, text: str, kind: str) -> None:
    world.beat(text, kind=kind)
    assert world.filters.get("t", "g") is None


def test_an_older_version_changes_nothing(world: World) -> None:
    world.beat("a > 5", 5)
    world.beat("a > 4", 4)
    world.beat("a > 5.5", 5)
    assert (world.get().text, world.get().version) == ("a > 5", 5)
    assert world.changes == 1


def test_the_same_expression_keeps_its_birth(world: World) -> None:
    world.beat("a > 5", 5)
    first = world.get()
    world.beat("a > 5", 6, at=NOW + 1000)
    assert world.get() is first
    assert (first.version, first.born_ms) == (6, NOW)


def test_another_expression_is_born_again(world: World) -> None:
    world.beat("a > 5", 5)
    world.beat("a > 6", 6, at=NOW + 1000)
    assert (world.get().text, world.get().born_ms) == ("a > 6", NOW + 1000)


def test_a_newer_expression_that_does_not_compile_removes_the_filter(world: World) -> None:
    world.beat("a > 5", 5)
    world.beat("a >", 6)
    assert world.filters.get("t", "g") is None
    assert world.filters.wrapper().filter_data_by_topic == {}


def test_a_topic_that_is_not_subscribed_to_any_more(world: World) -> None:
    world.beat("a > 5")
    world.beat(None, at=NOW + 1000)
    assert (world.get().is_dead, world.get().dead_ms) == (True, NOW + 1000)


def test_a_topic_that_is_subscribed_to_by_tag_now(world: World) -> None:
    world.beat("a > 5")
    world.beat("*", 2, kind="TAG")
    assert world.get().is_dead


def test_a_group_that_has_left_and_comes_back(world: World) -> None:
    world.beat("a > 5", 5)
    world.filters.unregister("g", NOW + 1000)
    world.filters.unregister("unknown", NOW + 1000)
    assert (world.get().is_dead, world.get().dead_ms) == (True, NOW + 1000)
    world.filters.clean(NOW + DAY)
    world.beat("a > 5", 5, at=NOW + DAY)
    assert (world.get().is_dead, world.get().born_ms) == (False, NOW)


def test_dead_filters_are_removed_after_a_day(world: World) -> None:
    world.beat("a > 5")
    world.beat("a > 5", group="h")
    world.filters.unregister("g", NOW + 1000)
    world.filters.clean(NOW + 1000 + DAY)
    assert world.filters.get("t", "g") is None
    assert world.get(group="h").text == "a > 5"


def test_dead_filters_make_room() -> None:
    world = World(filter_memory_max=3_500)
    world.beat("a > 5", group="one")
    world.beat("a > 5", group="two")
    world.beat("a > 5", group="three")
    assert world.filters.get("t", "three") is None and world.filters.fullness is not None
    world.filters.unregister("one", NOW)
    world.beat("a > 5", group="three")
    assert world.filters.get("t", "one") is None
    assert world.get(group="three").text == "a > 5" and world.filters.fullness is None


# ── The file ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_of_apaches_is_loaded_and_saved() -> None:
    saved = ConsumerFilterWrapper.decode(FILE.read_bytes())
    world = World(saved)
    assert world.filters.wrapper() == saved
    found = world.get("orders", "sql")
    assert found.positions == [22, 61, 100]
    for _ in world.filters.register("sql", [subscription("orders", found.text, found.version)], NOW):
        pass
    assert not found.is_dead
    assert found.expression is not None and found.expression.matches({"n": "4", "TAGS": '"b"'})


def test_what_was_alive_is_dead_when_it_is_loaded(world: World) -> None:
    world.beat("a > 5")
    later = World(world.filters.wrapper())
    assert (later.get().is_dead, later.get().dead_ms) == (True, NOW)  # not before its birth


def test_another_size_of_bit_maps_discards_the_file(world: World) -> None:
    world.beat("a > 5")
    assert World(world.filters.wrapper(), bloom_expected=64).filters.get("t", "g") is None


def test_a_loaded_filter_that_does_not_compile_is_removed(world: World) -> None:
    world.beat("a > 5")
    saved = world.filters.wrapper()
    data = saved.filter_data_by_topic["t"].group_filter_data
    broken = ConsumerFilterWrapper.decode(saved.encode().replace(b"a > 5", b"a > >"))
    later = World(broken)
    assert data and later.get().expression is None
    assert later.filters.expression_of(later.get()) is None
    assert later.filters.get("t", "g") is None


# ── Bit maps ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_bits_are_those_that_apache_was_seen_to_use() -> None:
    bloom = Bloom(20, 32)
    assert (bloom.bits, bloom.bits_per_filter) == (112, 3)
    assert bloom.positions("cg_sql", "SqT") == [41, 4, 64]
    assert bloom.positions("sql", "orders") == [22, 61, 100]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"hello", 0xCBD8A7B341BD9B02),
        (b"The quick brown fox jumps over the lazy dog", 0xE34BBC7BBC071B6C),
    ],
)
def test_murmur3(data: bytes, expected: int) -> None:
    assert murmur3_low64(data) == expected


def test_a_bit_map_has_the_bits_of_the_filters_that_pass(world: World) -> None:
    assert world.bit_map(a="1") == b"", "nobody filters"
    world.beat("a = 1", group="one")
    world.beat("b = 2", group="two")
    world.beat("b > 0", group="three")
    one, two = world.get(group="one"), world.get(group="two")
    assert world.bit_map(a="1", b="x") == one.mask.to_bytes(14, "little")
    both = world.bit_map(a="1", b="2")
    assert int.from_bytes(both, "little") == one.mask | two.mask | world.get(group="three").mask
    assert world.bit_map(c="1") == bytes(14)


def test_a_bit_map_is_for_messages_after_the_birth(world: World) -> None:
    world.beat("a = 1")
    found = world.get()
    passing, other = world.bit_map(a="1"), world.bit_map(a="2")
    assert found.may_pass(Unit(0, NOW + 1, passing))
    assert not found.may_pass(Unit(0, NOW + 1, other))
    assert found.may_pass(Unit(0, NOW, other)), "it may have been dispatched before the filter was there"
    assert found.may_pass(Unit(0, NOW + 1, b"")) and found.may_pass(Unit(0, NOW + 1, bytes(8)))


def test_a_clock_that_was_set_back_does_not_hide_messages() -> None:
    """Store times go on from the last one, so the birth of a filter must not be earlier than messages before it."""
    clock = WallClock()
    last = clock.stamp(NOW)
    clock.skew_ms = -3_600_000
    filters = ConsumerFilters(BrokerSettings(), None, lambda: None, clock, NOW)
    for _ in filters.register("g", [subscription("t", "a > 1")], NOW):
        pass
    found = filters.get("t", "g")
    assert found is not None and found.born_ms >= last


def test_without_the_setting_there_are_no_bit_maps(world: World) -> None:
    world.beat("a = 1")
    world.settings.filter_bit_map = False
    assert world.bit_map(a="1") == b""


def test_filters_that_take_too_many_steps_get_no_bit_map(world: World) -> None:
    world.beat(" or ".join(["a = 1"] * BIT_MAP_STEPS_MAX))
    assert world.bit_map(a="1") == b""


def test_loaded_filters_are_compiled_one_for_a_message(world: World) -> None:
    world.beat("a = 1", group="one")
    world.beat("b = 2", group="two")
    later = World(world.filters.wrapper())
    assert [later.bit_map(a="1") for _ in range(2)] == [b"", b""]
    assert later.bit_map(a="1") == mask_of(later.get(group="one").positions).to_bytes(14, "little")
