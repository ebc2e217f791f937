"""The epochs of a log: look-ups, changes, comparing two logs, and the file against Apache's bytes and crashes."""

from pathlib import Path
from random import Random

import pytest

from kourou.store.epochs import EPOCHS_MAX, Epoch, EpochFile, Epochs
from kourou.store.errors import BadStoreError
from kourou.testing.disk import SimulatedDisk, crash_everywhere

PATH = Path("/store/epochFileCheckpoint")
APACHE = b"1\n1725254278\n1-0\n"  # as a broker 5.5.0 wrote it
THREE = Epochs([(1, 0), (4, 300), (7, 900)])


def test_a_file_of_the_real_broker_reads_and_is_written_alike() -> None:
    assert Epochs.decode(APACHE) == Epochs([(1, 0)])
    assert Epochs([(1, 0)]).encode() == APACHE


def test_a_file_without_checksum_and_an_empty_one() -> None:
    assert Epochs.decode(b"1\n0\n3-77\n") == Epochs([(3, 77)])
    assert Epochs.decode(Epochs().encode()) == Epochs()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "less than two lines"),
        (b"1\n1725254278", "less than two lines"),
        (b"1\n1725254278\n1-1\n", "checksum"),
        (b"2\n0\n1-0\n", "1 epochs instead of 2"),
        (b"1\n0\n1\n", "not a number"),
        (b"1\n0\n1--5\n", "not a number"),
        (b"1\n0\n1-99999999999999999999\n", "not a number"),
        (b"1\n0\n9999999999-0\n", "out of range"),
        (b"2\n0\n1-0\n1-5\n", "follows"),
        (b"2\n0\n1-5\n2-5\n", "follows"),
        (b"x\n0\n", "not a number"),
    ],
)
def test_a_broken_file_is_refused_with_a_remedy(content: bytes, problem: str) -> None:
    disk = SimulatedDisk(Random(1))
    disk.install(PATH, content)
    with pytest.raises(BadStoreError, match=f"epochFileCheckpoint is damaged: .*{problem}.* Restore it from a copy"):
        EpochFile(disk, PATH).read()


def test_there_is_a_limit() -> None:
    with pytest.raises(ValueError, match="more than"):
        Epochs((number, number) for number in range(1, EPOCHS_MAX + 2))


def test_which_epoch_a_byte_is_of() -> None:
    assert [THREE.before(offset) for offset in (0, 1, 300, 301, 900, 901)] == [0, 1, 1, 4, 4, 7]
    assert [THREE.at(offset) for offset in (0, 299, 300, 900, 5_000)] == [1, 1, 4, 7, 7]
    assert Epochs([(2, 50)]).at(49) == 0
    assert THREE.last == Epoch(7, 900)
    assert Epochs().last is None


def test_from_where_to_where_an_epoch_goes() -> None:
    assert [THREE.start_of(number) for number in (1, 4, 5, 7, 8)] == [0, 300, None, 900, None]
    assert [THREE.end_of(number, 1_000) for number in (0, 1, 3, 4, 6, 7, 9)] == [0, 300, 300, 900, 900, 1_000, 1_000]
    assert THREE.end_of(4, 500) == 500
    assert [THREE.not_after(number) for number in (0, 1, 3, 4, 9)] == [0, 1, 1, 4, 7]


def test_an_epoch_begins() -> None:
    assert THREE.begun(8, 1_000).entries == (*THREE.entries, (8, 1_000))
    for number, start in ((7, 1_000), (8, 900)):
        with pytest.raises(ValueError, match="follows"):
            THREE.begun(number, start)


def test_a_cut_log_has_no_epochs_without_bytes() -> None:
    assert THREE.cut(901) is THREE
    assert THREE.cut(900) == Epochs([(1, 0), (4, 300)])
    assert THREE.cut(1) == Epochs([(1, 0)])
    assert THREE.cut(0) == Epochs()


def test_a_trimmed_log_knows_the_epoch_of_the_byte_before_it() -> None:
    assert THREE.trimmed(0) is THREE
    assert THREE.trimmed(300) is THREE
    assert THREE.trimmed(301) == Epochs([(4, 300), (7, 900)])
    trimmed = THREE.trimmed(901)
    assert trimmed == Epochs([(7, 900)])
    assert trimmed.before(901) == 7


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "common"),
    [
        ([(1, 0)], 100, [(1, 0)], 80, 80),
        ([(1, 0)], 80, [(1, 0)], 100, 80),
        ([(1, 0), (2, 50)], 90, [(1, 0), (3, 70)], 100, 50),
        ([(1, 0), (2, 50)], 90, [(1, 0), (2, 50), (3, 70)], 100, 70),
        ([(1, 0), (2, 50)], 90, [(1, 0), (3, 50)], 90, 50),
        ([(2, 50)], 90, [(1, 0)], 90, None),
        ([], 0, [(1, 0)], 90, None),
        ([(1, 0), (3, 60)], 90, [(1, 0), (3, 50)], 90, 50),
    ],
)
def test_where_two_logs_diverge(
    ours: list[tuple[int, int]], our_end: int, theirs: list[tuple[int, int]], their_end: int, common: int | None
) -> None:
    assert Epochs(ours).diverges_at(our_end, Epochs(theirs), their_end) == common
    assert Epochs(theirs).diverges_at(their_end, Epochs(ours), our_end) == common


def test_a_crash_leaves_the_old_or_the_new_epochs() -> None:
    states = [Epochs(), Epochs([(1, 0)]), THREE, THREE.cut(900), Epochs([(1, 0), (4, 300), (8, 850)])]
    written: list[int] = []

    def run(disk: SimulatedDisk) -> None:
        written.clear()
        file = EpochFile(disk, PATH)
        for number, epochs in enumerate(states[1:], 1):
            file.write(epochs)
            written.append(number)

    images = 0
    for disk in crash_everywhere(run, seed=5, images=3):
        images += 1
        done = len(written)
        assert EpochFile(disk, PATH).read() in states[done : done + 2]
    assert images > 20


def test_a_failed_write_leaves_the_old_epochs() -> None:
    disk = SimulatedDisk(Random(1))
    file = EpochFile(disk, PATH)
    file.write(THREE)
    disk.fail("replace")
    with pytest.raises(OSError):
        file.write(THREE.begun(9, 950))
    assert file.read() == THREE
