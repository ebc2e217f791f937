"""A process that runs trials of one proof, and says as JSON lines what it begins and how each one ended.

python -m tests.soak.worker MODULE NAME FIRST STEP STOP SECONDS

The module has the list of proofs, `PROOFS`.
"""

import importlib
import json
import logging
import sys
import time
import traceback

from .proofs import Proof, SkippedError


def main(words: list[str]) -> None:
    proof: Proof = importlib.import_module(words[0]).PROOFS[words[1]]
    first, step, stop = map(int, words[2:5])
    until = time.monotonic() + float(words[5])
    logging.disable(logging.CRITICAL)
    told = sys.stdout
    sys.stdout = sys.stderr  # what a trial prints is not part of the protocol
    for seed in range(first, stop, step):
        print(json.dumps({"begins": seed}), file=told, flush=True)
        ended: dict[str, object] = {"ended": seed}
        began = time.monotonic()
        try:
            ended["counts"] = proof.trial(seed)
        except SkippedError as reason:
            ended["skipped"] = str(reason)
        except Exception:
            ended["failure"] = traceback.format_exc()
        ended["seconds"] = time.monotonic() - began
        print(json.dumps(ended), file=told, flush=True)
        if "skipped" in ended or time.monotonic() >= until:
            break


if __name__ == "__main__":
    main(sys.argv[1:])
