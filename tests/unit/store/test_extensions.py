"""Queues with extensions: what dispatch puts into them, how they are read, and that they follow their queues."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from kourou.protocol.hashes import java_hash
from kourou.protocol.record import decode_record
from kourou.store.consume_queue_ext import Unit, is_address
from kourou.store.reading import GetStatus

from .small import ROOT, SETTINGS, Small, message

EXTENDED = replace(SETTINGS, queue_ext_enabled=True, queue_ext_file_size=600)
EXT = ROOT / "consumequeue_ext"


def extended(small: Small) -> Small:
    """The bit map of a message is the first byte of its body, twice."""
    small.store.queues.extensions.bit_map_of = lambda scanner: bytes(scanner.message().body[:1]) * 2
    return small


def send(small: Small, count: int, first: int = 0, tags: bytes = b"paid") -> None:
    for number in range(first, first + count):
        small.send(message(b"%c" % (65 + number % 26) + bytes(300), properties=b"TAGS\1" + tags + b"\2"))


def units(small: Small) -> list[Unit | None]:
    queue = small.store.queues.ensure("orders", 0)
    codes = [queue.entry(number)[2] for number in range(queue.start, queue.end)]
    assert all(map(is_address, codes))
    return [small.store.queues.extensions.unit(queue, code) for code in codes]


def expected(count: int, first: int = 0) -> list[bytes]:
    return [b"%c" % (65 + number % 26) * 2 for number in range(first, first + count)]


def bit_maps(small: Small) -> list[bytes]:
    return [unit.bit_map if unit is not None else b"lost" for unit in units(small)]


def test_an_entry_has_the_address_of_its_unit() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 3)
    (first, *_) = units(small)
    assert first == Unit(java_hash("paid"), small.now_ms, b"AA")
    assert bit_maps(small) == expected(3)
    assert small.disk.folders(EXT) == ["orders"]


def test_without_the_setting_there_is_none() -> None:
    small = extended(Small())
    send(small, 3)
    assert small.disk.folders(EXT) == []


def test_readers_are_asked_for_tags_and_units() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 3)
    send(small, 2, 3, b"new")

    def found(
        accepts: Callable[[int], bool] | None = None, accepts_unit: Callable[[Unit], bool] | None = None
    ) -> list[bytes]:
        result = small.store.reader.get("orders", 0, 0, 32, accepts=accepts, accepts_unit=accepts_unit)
        return [bytes(decode_record(record).body[:1]) for record in result.records]

    assert found() == [b"A", b"B", b"C", b"D", b"E"]
    assert found(lambda code: code == java_hash("new")) == [b"D", b"E"]
    assert found(None, lambda unit: unit.bit_map > b"BB") == [b"C", b"D", b"E"]
    assert found(lambda code: code == java_hash("paid"), lambda unit: unit.bit_map > b"BB") == [b"C"]
    assert small.store.reader.get("orders", 0, 0, 32, accepts=lambda _: False).status is GetStatus.NO_MATCHED_MESSAGE


def test_what_has_lost_its_unit_may_pass() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 3)
    small.close()
    small.disk.remove_folder(EXT)
    again = extended(small.again())
    assert len(again.store.reader.get("orders", 0, 0, 32, accepts=lambda _: False).records) == 3
    send(again, 1)
    assert bit_maps(again) == [b"lost", b"lost", b"lost", b"AA"]


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
def test_it_goes_on_after_any_end(end: str) -> None:
    """Over some files. A record that was not synced is dispatched again, and gets another unit."""
    small = extended(Small(settings=EXTENDED))
    send(small, 40)
    if end == "stop":
        small.close()
    else:
        small.store.flush(small.now_ms)
        send(small, 5)
        small.store.abandon()
        small.disk = small.disk.kill() if end == "kill" else small.disk.crash()
    again = extended(Small(small.disk, EXTENDED, small.now_ms))
    kept = again.store.queues.ensure("orders", 0).end
    assert kept >= 40
    send(again, 10)
    assert len(units(again)) == kept + 10
    assert None not in units(again)
    assert bit_maps(again)[-10:] == expected(10)


def test_a_store_that_is_opened_without_the_setting_reads_them() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 3)
    small.close()
    again = Small(small.disk, SETTINGS)
    assert bit_maps(again) == expected(3)
    found = again.store.reader.get("orders", 0, 0, 32, accepts=lambda code: code == java_hash("paid"))
    assert len(found.records) == 3


def test_it_goes_with_its_queue() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 3)
    small.store.remove_topic("orders")
    assert small.disk.folders(EXT) == []
    send(small, 2)
    assert bit_maps(small) == expected(2)


def test_it_is_made_anew_with_the_queues() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 30)
    small.close()
    small.disk.remove_folder(ROOT / "consumequeue")
    again = small.again()
    assert again.store.report.rebuilt
    assert None not in units(again)


def test_old_files_go_with_the_entries() -> None:
    small = extended(Small(settings=EXTENDED))
    send(small, 100)
    small.settle()
    before = len(small.names("consumequeue_ext/orders/0"))
    small.store.queues.log_start = small.store.queues.ensure("orders", 0).entry(70)[0]
    assert small.store.queues.expire("orders", 0) > 0
    assert len(small.names("consumequeue_ext/orders/0")) < before
    assert bit_maps(small) == expected(30, 70)
