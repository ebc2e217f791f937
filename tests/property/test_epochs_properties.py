"""Epochs against a plain model: a list that has the epoch of each byte."""

from contextlib import suppress

from hypothesis import given, strategies as st

from kourou.store.epochs import Epochs

LENGTHS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), max_size=8)
"""By epoch: how much its number is above the last one's, and how many bytes it has."""


def history(lengths: list[tuple[int, int]]) -> list[int]:
    number, of_bytes = 0, []
    for step, length in lengths:
        number += step
        of_bytes += [number] * length
    return of_bytes


def epochs_of(of_bytes: list[int]) -> Epochs:
    starts: dict[int, int] = {}
    for offset, number in enumerate(of_bytes):
        starts.setdefault(number, offset)
    return Epochs(starts.items())


@given(LENGTHS)
def test_look_ups(lengths: list[tuple[int, int]]) -> None:
    of_bytes = history(lengths)
    epochs, end = epochs_of(of_bytes), len(of_bytes)
    for offset in range(end + 1):
        assert epochs.before(offset) == (of_bytes[offset - 1] if offset else 0)
        assert offset == end or epochs.at(offset) == of_bytes[offset]
    for number in range(30):
        assert epochs.end_of(number, end) == sum(other <= number for other in of_bytes)
        assert epochs.not_after(number) == max((other for other in of_bytes if other <= number), default=0)
        assert epochs.start_of(number) == (of_bytes.index(number) if number in of_bytes else None)


@given(LENGTHS, st.integers(0, 60))
def test_cut_and_trimmed(lengths: list[tuple[int, int]], at: int) -> None:
    of_bytes = history(lengths)
    epochs = epochs_of(of_bytes)
    assert epochs.cut(at) == epochs_of(of_bytes[:at])
    trimmed = epochs.trimmed(at)
    for offset in range(at, len(of_bytes) + 1):
        assert trimmed.before(offset) == epochs.before(offset)


@given(LENGTHS, st.data())
def test_two_logs_diverge_where_the_model_says(lengths: list[tuple[int, int]], data: st.DataObject) -> None:
    """The other log has a prefix of this one, then epochs of its own: with numbers that this one has not used."""
    of_bytes = history([(2 * step, length) for step, length in lengths])
    cut = data.draw(st.integers(0, len(of_bytes)))
    odd = history(data.draw(LENGTHS))
    above = of_bytes[cut - 1] if cut else 0
    other = of_bytes[:cut] + [above + 2 * number - 1 for number in odd]
    same = next((at for at, pair in enumerate(zip(of_bytes, other, strict=False)) if len(set(pair)) > 1), None)
    expected = min(len(of_bytes), len(other)) if same is None else same
    found = epochs_of(of_bytes).diverges_at(len(of_bytes), epochs_of(other), len(other))
    assert found == (expected if expected else None)


@given(LENGTHS)
def test_the_file_reads_as_it_was_written(lengths: list[tuple[int, int]]) -> None:
    epochs = epochs_of(history(lengths))
    assert Epochs.decode(epochs.encode()) == epochs


@given(st.binary(max_size=60))
def test_any_bytes_are_epochs_or_a_value_error(content: bytes) -> None:
    with suppress(ValueError):
        Epochs.decode(content)
