"""The checkpoint against a file of the real broker, against garbage, and against crashes."""

from pathlib import Path
from random import Random

import pytest

from kourou.store.checkpoint import FILE_SIZE, RECOVERY_MARGIN_MS, Checkpoint
from kourou.testing.disk import SimulatedDisk, crash_everywhere

ROOT = Path("/store")

# The first bytes of a checkpoint that a broker 5.5.0 wrote; the rest of its 4096 is zero.
APACHE = bytes.fromhex(f"000001a1e1386929000001a1e1386929{'00' * 24}0000000000002f77")


def read(content: bytes | None) -> Checkpoint:
    disk = SimulatedDisk(Random(1))
    if content is not None:
        disk.install(ROOT / "checkpoint", content)
    return Checkpoint.read(disk, ROOT / "checkpoint")


def test_a_file_of_the_real_broker_reads_and_is_written_alike() -> None:
    content = APACHE.ljust(FILE_SIZE, b"\0")
    checkpoint = read(content)
    assert checkpoint == Checkpoint(physical_ms=1794779932969, logical_ms=1794779932969, logical_physical=12151)
    assert checkpoint.encode() == content
    assert checkpoint.fingerprint == APACHE.hex()


def test_each_value_has_its_place() -> None:
    checkpoint = Checkpoint(1, 2, 3, 4, 5, 6)
    content = checkpoint.encode()
    assert len(content) == 4096
    assert [int.from_bytes(content[at : at + 8]) for at in range(0, 48, 8)] == [1, 2, 3, 4, 5, 6]
    assert content[48:] == bytes(4048)
    assert read(content) == checkpoint


def test_a_missing_file_is_all_zeros_and_no_problem() -> None:
    assert read(None) == Checkpoint()
    assert read(bytes(FILE_SIZE)) == Checkpoint()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "0 bytes are too short"),
        (APACHE[:-1], "47 bytes are too short"),
        (b"\xff" * FILE_SIZE, "times .* are invalid"),
        (b"\x7f" * FILE_SIZE, "times .* are invalid"),
        (Checkpoint(physical_ms=2**42).encode(), "times .* are invalid"),
        (Checkpoint(index_ms=-1).encode(), "times .* are invalid"),
        (Checkpoint(confirm=-2).encode(), "offsets .* are invalid"),
    ],
)
def test_what_makes_no_sense_is_all_zeros_and_said(
    content: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = read(content)
    assert checkpoint.problem is not None
    assert (checkpoint.recovery_ms, checkpoint.logical_physical, checkpoint.fingerprint) == (0, 0, "00" * 48)
    assert [str(ROOT / "checkpoint") in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(checkpoint.problem)


def test_offsets_that_were_never_set_are_minus_one() -> None:
    checkpoint = Checkpoint(master_flushed=-1, confirm=-1)
    assert read(checkpoint.encode()) == checkpoint


def test_an_unreadable_file_is_an_error() -> None:
    disk = SimulatedDisk(Random(1))
    disk.install(ROOT / "checkpoint", Checkpoint().encode())
    disk.fail("read")
    with pytest.raises(OSError):
        Checkpoint.read(disk, ROOT / "checkpoint")


def test_recovery_begins_a_little_before_all_was_safe() -> None:
    assert Checkpoint(physical_ms=10_000, logical_ms=20_000).recovery_ms == 10_000 - RECOVERY_MARGIN_MS
    assert Checkpoint(physical_ms=20_000, logical_ms=10_000).recovery_ms == 10_000 - RECOVERY_MARGIN_MS
    assert Checkpoint(physical_ms=2_000, logical_ms=2_000).recovery_ms == 0
    with_index = Checkpoint(physical_ms=10_000, logical_ms=10_000, index_ms=5_000)
    assert with_index.recovery_with_index_ms == 5_000 - RECOVERY_MARGIN_MS
    assert Checkpoint(physical_ms=10_000, logical_ms=10_000, index_ms=9_000).recovery_with_index_ms == 6_000


def test_a_crash_leaves_the_old_values_or_the_new_ones() -> None:
    states = [Checkpoint(physical_ms=ms, logical_ms=ms, index_ms=ms, logical_physical=ms) for ms in range(5)]

    def run(disk: SimulatedDisk) -> None:
        done.clear()
        for checkpoint in states:
            checkpoint.write(disk, ROOT / "checkpoint")
            done.append(checkpoint)

    done: list[Checkpoint] = []
    seen: set[int] = set()
    for disk in crash_everywhere(run, seed=4, images=3):
        found = Checkpoint.read(disk, ROOT / "checkpoint")
        assert found.problem is None
        before = len(done) - 1  # the last write that returned
        assert found in states[max(before, 0) : before + 2] or (not done and found == Checkpoint())
        seen.add(found.physical_ms)
    assert seen == {0, 1, 2, 3, 4}


def test_a_lowered_checkpoint_leads_recovery_to_the_same_place() -> None:
    whole = Checkpoint(physical_ms=50_000, logical_ms=40_000, index_ms=45_000, logical_physical=900)
    lowered = whole.lowered(20_000, 512)
    assert lowered.recovery_ms == lowered.recovery_with_index_ms == 20_000
    assert (lowered.physical_ms, lowered.logical_physical) == (50_000, 512)
    assert lowered.lowered(20_000, 512) == lowered
    assert whole.lowered(0, 0).recovery_ms == whole.lowered(0, 0).recovery_with_index_ms == 0


def test_the_safe_end_of_the_log_holds_until_another_broker_writes() -> None:
    ours = Checkpoint(physical_ms=50_000, logical_ms=40_000, flushed_physical=777)
    content = bytearray(ours.encode())
    assert [int.from_bytes(content[at : at + 8]) for at in (48, 56, 64)] == [777, 50_000, 0]
    assert read(bytes(content)) == ours
    content[0:8] = (60_000).to_bytes(8)  # Java changes its values in place
    assert read(bytes(content)).flushed_physical == 0
    assert read(bytes(content[:48])).flushed_physical == 0
