"""Compiles the hot modules if there is a C compiler; the package works without it.

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
from build_hot import COMPILER_OPTIONS, DIRECTIVES, HOT_MODULES, SHARED_MODULE  # noqa: E402

REQUIRE = os.environ.get("KOUROU_REQUIRE_COMPILED") == "1"
SKIP = os.environ.get("KOUROU_SKIP_COMPILED") == "1"
if REQUIRE and SKIP:
    raise SystemExit("KOUROU_REQUIRE_COMPILED and KOUROU_SKIP_COMPILED exclude each other: unset one of them")

CPUS = os.cpu_count() or 1


def forget_compiled() -> None:
    """Remove compiled modules of an earlier build: Python would prefer them to their sources."""
    for left in (HERE / "src").rglob("*.so"):
        left.unlink()


class OptionalBuild(build_ext):
    """Compiles all modules or none, because they use each other's C types. None is an error if all are required."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or CPUS

    def build_extensions(self) -> None:
        self.extensions.sort(key=_c_size, reverse=True)  # the longest first, or the last one is compiled alone
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


def _c_size(extension: Extension) -> int:
    return sum(os.path.getsize(source) for source in extension.sources)


def extensions() -> list[Extension]:
    if SKIP:
        forget_compiled()
        return []
    try:
        from Cython.Build import cythonize

        modules = {SHARED_MODULE: SHARED_MODULE.replace(".", "/") + ".c", **HOT_MODULES}
        sources = [Extension(name, [path], extra_compile_args=COMPILER_OPTIONS) for name, path in modules.items()]
        return list(
            cythonize(
                sources,
                compiler_directives=DIRECTIVES,
                build_dir="build/cython",
                nthreads=CPUS,
                shared_utility_qualified_name=SHARED_MODULE,
                quiet=True,
            )
        )
    except Exception as error:
        if REQUIRE:
            raise
        print(f"kourou: nothing is compiled ({error}); plain Python will run", file=sys.stderr)
        return []


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
