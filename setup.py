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


class OptionalBuild(build_ext):
    """Leaves out what does not compile, unless the compiled build is demanded."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            if REQUIRE:
                raise
            print(
                f"kourou: {ext.name} is not compiled ({error}); its plain Python form will run",
                file=sys.stderr,
            )

    def _built(self, ext: Extension) -> bool:
        return Path(self.build_lib, self.get_ext_filename(self.get_ext_fullname(ext.name))).exists()

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]

    def copy_extensions_to_source(self) -> None:
        self.extensions = [ext for ext in self.extensions if self._built(ext)]
        super().copy_extensions_to_source()


def extensions() -> list[Extension]:
    if SKIP:
        for left in (HERE / "src").rglob("*.so"):
            left.unlink()
        return []
    try:
        from Cython.Build import cythonize

        sources = [Extension(name, [path], extra_compile_args=["-O3"]) for name, path in HOT_MODULES.items()]
        return list(cythonize(sources, compiler_directives=DIRECTIVES, build_dir="build/cython", quiet=True))
    except Exception as error:
        if REQUIRE:
            raise
        print(f"kourou: nothing is compiled ({error}); plain Python will run", file=sys.stderr)
        return []


setup(ext_modules=extensions(), cmdclass={"build_ext": OptionalBuild})
