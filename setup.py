"""Compiles the hot modules when a C compiler is there; the package works without it.

KOUROU_REQUIRE_COMPILED=1  a module that does not compile fails the build
KOUROU_SKIP_COMPILED=1     nothing is compiled, and compiled modules left in the tree are removed
"""

import os
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_ext import build_ext
from setuptools.extension import Extension

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from build_hot import DIRECTIVES, HOT_MODULES  # noqa: E402

REQUIRE = os.environ.get("KOUROU_REQUIRE_COMPILED") == "1"
SKIP = os.environ.get("KOUROU_SKIP_COMPILED") == "1"
if REQUIRE and SKIP:
    raise SystemExit("KOUROU_REQUIRE_COMPILED and KOUROU_SKIP_COMPILED exclude each other: unset one of them")


def forget_compiled() -> None:
    """Compiled modules of an earlier build go: they would win over their sources."""
    for left in (HERE / "src").rglob("*.so"):
        left.unlink()


class OptionalBuild(build_ext):
    """Compiles all modules or none, for they use each other's C types; none is an error only where all are demanded."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        try:
            super().build_extensions()
        except Exception as error:
            if REQUIRE:
                raise
            print(f"kourou: not compiled ({error}); plain Python will run", file=sys.stderr)
            for path in super().get_outputs():
                Path(path).unlink(missing_ok=True)
            forget_compiled()
            self.extensions = []


def extensions() -> list[Extension]:
    if SKIP:
        forget_compiled()
        return []
    try:
        from Cython.Build import cythonize

        sources = [Extension(name, [path], extra_compile_args=["-O2", "-g0"]) for name, path in HOT_MODULES.items()]
        return list(cythonize(sources, compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True))
    except Exception as error:
        if REQUIRE:
            raise
        print(f"kourou: nothing is compiled ({error}); plain Python will run", file=sys.stderr)
        return []


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
