"""The benchmarks are no part of the installed package: they are found from the top of the repository."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[3]))
