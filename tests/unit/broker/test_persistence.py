"""Tables that survive: written once for many changes, again after a failure, and answered when they are durable."""

import errno
import math
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kourou.broker.events import Outbox, Save
from kourou.broker.persistence import PATIENCE_MS, RETRY_MS, Persistence
from kourou.store.metadata import Kind, MetadataFile
from kourou.testing.disk import SimulatedDisk

KIND: Kind[dict[str, Any]] = Kind("table.json", "things", dict)
SLOW: Kind[dict[str, Any]] = Kind("slow.json", "other things", dict)
FOLDER = Path("/config")


class Desk:
    """Two tables, and their writer."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(1))
        self.outbox = Outbox()
        self.persistence = Persistence(self.outbox)
        self.values: dict[str, dict[str, Any]] = {"table": {"n": 0}, "slow": {"n": 0}}
        self.files = {"table": MetadataFile(self.disk, FOLDER, KIND), "slow": MetadataFile(self.disk, FOLDER, SLOW)}
        self.persistence.add("table", self.files["table"], lambda: self.values["table"])
        self.persistence.add("slow", self.files["slow"], lambda: self.values["slow"], 5_000)
        self.told: list[str | None] = []

    def change(self, name: str = "table") -> None:
        self.values[name] = {"n": self.values[name]["n"] + 1}
        self.persistence.touch(name)

    def due(self, now_ms: int = 0) -> list[Save]:
        self.persistence.step(now_ms)
        saves = self.outbox.take()
        assert all(isinstance(save, Save) for save in saves)
        return saves  # type: ignore[return-value]

    def write(self, save: Save, now_ms: int = 0) -> None:
        error = None
        try:
            save.file.write(save.content)
        except OSError as problem:
            error = str(problem)
        self.persistence.saved(save.name, save.version, error, now_ms)

    def on_disk(self, name: str = "table") -> dict[str, Any] | None:
        kind = KIND if name == "table" else SLOW
        return MetadataFile(self.disk, FOLDER, kind).load()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_nothing_changed_nothing_written(desk: Desk) -> None:
    assert desk.due() == []
    assert desk.persistence.is_settled


def test_changes_before_a_write_share_it(desk: Desk) -> None:
    for _ in range(5):
        desk.change()
    (save,) = desk.due()
    desk.write(save)
    assert desk.on_disk() == {"n": 5}
    assert desk.due() == []
    assert desk.persistence.is_settled


def test_one_write_at_a_time(desk: Desk) -> None:
    desk.change()
    (first,) = desk.due()
    desk.change()
    desk.change()
    assert desk.due() == []
    desk.write(first)
    (second,) = desk.due()
    desk.write(second)
    assert desk.on_disk() == {"n": 3}


def test_a_request_is_answered_when_its_change_is_durable(desk: Desk) -> None:
    desk.change()
    (first,) = desk.due()
    desk.change()
    desk.persistence.when_safe(0, desk.told.append)
    desk.write(first)
    assert desk.told == [], "what was written is older than the change"
    (second,) = desk.due()
    desk.write(second)
    assert desk.told == [None]


def test_no_request_waits_for_a_durable_change(desk: Desk) -> None:
    desk.change()
    (save,) = desk.due()
    desk.write(save)
    desk.persistence.when_safe(0, desk.told.append)
    assert desk.told == [None]


def test_tables_with_an_interval_gather_changes_and_no_request_waits(desk: Desk) -> None:
    before = desk.persistence.total
    desk.change("slow")
    assert desk.persistence.total == before
    desk.persistence.when_safe(0, desk.told.append)
    assert desk.told == [None]
    (save,) = desk.due(1_000)
    desk.write(save)
    desk.change("slow")
    assert desk.due(5_999) == []
    (save,) = desk.due(6_000)
    desk.write(save)
    assert desk.on_disk("slow") == {"n": 2}


def test_a_failed_write_is_tried_again(desk: Desk) -> None:
    desk.disk.fail("replace", errno.EIO)
    desk.change()
    desk.persistence.when_safe(0, desk.told.append)
    (save,) = desk.due()
    desk.write(save)
    assert desk.told == []
    assert desk.due(RETRY_MS - 1) == []
    (save,) = desk.due(RETRY_MS)
    desk.write(save)
    assert desk.told == [None]
    assert desk.on_disk() == {"n": 1}


def test_patience_has_an_end(desk: Desk) -> None:
    desk.disk.fail("replace", errno.ENOSPC, times=math.inf)
    desk.change()
    desk.persistence.when_safe(0, desk.told.append)
    (save,) = desk.due()
    desk.write(save)
    desk.persistence.give_up_waiting(PATIENCE_MS - 1)
    assert desk.told == []
    desk.persistence.give_up_waiting(PATIENCE_MS)
    (problem,) = desk.told
    assert problem is not None and problem.startswith("table can't be written: ") and "No space" in problem
    desk.persistence.give_up_waiting(10 * PATIENCE_MS)
    assert len(desk.told) == 1


def test_a_write_that_hangs_is_said_to_take_too_long(desk: Desk) -> None:
    desk.change()
    desk.persistence.when_safe(0, desk.told.append)
    desk.due()
    desk.persistence.give_up_waiting(PATIENCE_MS)
    assert desk.told == ["table were not written within 3 s; the change may be lost in a crash"]


def test_at_the_end_everything_is_written(desk: Desk) -> None:
    desk.change("slow")
    (save,) = desk.due()
    desk.write(save)
    desk.change("slow")
    desk.change()
    desk.persistence.write_all()
    assert (desk.on_disk(), desk.on_disk("slow")) == ({"n": 1}, {"n": 2})


def test_at_the_end_a_table_that_fails_does_not_keep_others_from_being_written(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.disk.fail("replace", errno.EIO, where="*table.json", times=math.inf)
    desk.change()
    desk.change("slow")
    desk.persistence.write_all()
    assert desk.on_disk("slow") == {"n": 1}
    assert "its last changes are lost" in caplog.text


def test_before_the_end_intervals_do_not_count(desk: Desk) -> None:
    desk.change("slow")
    (save,) = desk.due()
    desk.write(save)
    desk.change("slow")
    desk.persistence.step(1, all_of_them=True)
    (last,) = desk.outbox.take()
    assert isinstance(last, Save) and last.name == "slow"
