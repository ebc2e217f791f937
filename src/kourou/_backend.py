"""The form of the hot modules that is used: the compiled one, or the plain Python one.

The compiled form of a module is beside its source, and is used if both exist. With KOUROU_PURE=1 in the environment,
this process uses only the sources, so that one installation can be tested both ways.
"""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from types import ModuleType

PURE = os.environ.get("KOUROU_PURE") == "1"


class _SourceOnly:
    """Finds Kourou's modules by their source; a module that is only compiled does not exist for it."""

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
    """`compiled`, `plain`, or `plain (KOUROU_PURE=1)`, for `kourou --version`."""
    if PURE:
        return "plain (KOUROU_PURE=1)"
    try:
        from kourou.protocol import _wire  # noqa: F401
    except ImportError:
        return "plain"
    return "compiled"
