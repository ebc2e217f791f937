"""Proofs that end in every way, to test the machinery with."""

import os
import signal
import threading
from collections import Counter

from .proofs import Proof, SkippedError


def _fine(seed: int) -> Counter[str]:
    print("this is not read")
    return Counter({"seeds": seed})


def _wrong(seed: int) -> Counter[str]:
    assert seed % 3, f"{seed} is wrong"
    return Counter()


def _dies(seed: int) -> Counter[str]:
    if seed == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Counter()


def _hangs(seed: int) -> Counter[str]:
    if seed == 0:
        threading.Event().wait()
    return Counter()


def _missing(seed: int) -> Counter[str]:
    raise SkippedError("there is no such thing here")


PROOFS = {
    trial.__name__: Proof(trial.__name__, "", trial, "tests/soak/test_soak.py", limit_s=2 if trial is _hangs else 60)
    for trial in (_fine, _wrong, _dies, _hangs, _missing)
}
