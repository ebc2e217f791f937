"""Which form of the hot modules runs: the compiled one, or the plain Python one.

The compiled form of a module stands beside its source and wins when both are there. KOUROU_PURE=1 in the environment
makes this process use the sources alone, so that one installation can be tested both ways.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PURE = os.environ.get("KOUROU_PURE") == "1"


class _SourceOnly:
    """Finds Kourou's modules by their source, and says of a compiled-only one that it does not exist."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if path is None or not name.startswith("kourou."):
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None and spec.loader is not None:
                return spec
        raise ModuleNotFoundError(f"No plain Python module named {name!r} (KOUROU_PURE=1)", name=name)


def install() -> None:
    """Called once, before any other module of the package is imported."""
    if PURE and _SourceOnly not in sys.meta_path:
        sys.meta_path.insert(0, _SourceOnly)


def name() -> str:
    """`compiled`, `plain`, or `plain (KOUROU_PURE=1)`: what `kourou --version` prints."""
    if PURE:
        return "plain (KOUROU_PURE=1)"
    try:
        from kourou.protocol import _wire  # noqa: F401
    except ImportError:
        return "plain"
    return "compiled"
