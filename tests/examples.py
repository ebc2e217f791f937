"""How many examples the random tests try: all of them in `make test`, an eighth in `make unit`."""

import os

QUICK = os.environ.get("KOUROU_QUICK") == "1"


def examples(count: int) -> int:
    return max(count // 8, 10) if QUICK else count
