"""Short runs of the fuzz commands; the long ones are `make fuzz`."""

import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import fuzz_decoders

from kourou.protocol.errors import ProtocolError
from kourou.raft.wire import Decoder, Hello, encode

ROOT = Path(__file__).parents[2]
COUNT = 50_000


@pytest.mark.slow
def test_mutated_frames() -> None:
    """The seed is new each time; when this fails, the output has it, and the frame."""
    command = [sys.executable, "-m", "benchmarks.fuzz", "--count", str(COUNT)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-4000:]
    assert f"{COUNT} frames in" in run.stdout


@pytest.mark.slow
def test_inputs_for_all_decoders() -> None:
    """The same, for bodies, records, HA frames, Raft messages, files of accounts and settings, and the rest."""
    command = [sys.executable, "-m", "benchmarks.fuzz_decoders", "--count", "20000", "--processes", "1"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-4000:]
    assert "20000 inputs in" in run.stdout


def test_a_failure_is_found() -> None:
    """The fuzzer notices an error that a decoder does not declare, and one that is slow."""

    def fails(data: bytes) -> None:
        if b"\xff" in data:
            raise UnicodeDecodeError("utf-8", data, 0, 1, "invalid")

    outcome = fuzz_decoders.run(1, 10_000, 0, made=[fuzz_decoders.Decoder("failing", fails, [bytes(8)])])
    assert outcome.failure is not None and "failing raised UnicodeDecodeError" in outcome.failure


def test_a_raft_message_that_is_not_utf_8() -> None:
    """Found by fuzzing: it ended the step of the machine instead of the connection."""
    good = encode(Hello("g", "n0", "n1"))
    with pytest.raises(ProtocolError, match="not a message of a Raft group"):
        Decoder().feed(good.replace(b"n0", b"n\xa2"))
