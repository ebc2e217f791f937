"""The sources of Kourou as the tests of this folder read them: plain Python by its syntax tree, Cython by its text."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "kourou"


@dataclass(frozen=True)
class Source:
    """A file of the package."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @property
    def name(self) -> str:
        """As in `store/store.py`."""
        return str(self.path.relative_to(PACKAGE))

    @property
    def is_plain(self) -> bool:
        return self.path.suffix == ".py"

    @property
    def package(self) -> str:
        """The part of Kourou that it belongs to: a folder, or a module beside the folders."""
        first = self.path.relative_to(PACKAGE).parts[0]
        return first.removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.name)

    @cached_property
    def code(self) -> str:
        """A Cython source without comments and texts."""
        try:
            return _without_texts(self.text)
        except (tokenize.TokenError, SyntaxError):
            return re.sub(r"#.*", "", self.text)

    @cached_property
    def imports(self) -> list[str]:
        """What it imports and cimports: `kourou.store.disk`, `kourou.store.disk.Disk`, `asyncio`."""
        return list(self._imports() if self.is_plain else _imports_of_cython(self.code))

    def _imports(self) -> Iterator[str]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                yield from (f"{base}.{alias.name}" for alias in node.names)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        folders = ("kourou", *self.path.relative_to(PACKAGE).parts[:-1])
        return ".".join((*folders[: len(folders) - node.level + 1], *([node.module] if node.module else [])))


@cache
def sources() -> list[Source]:
    """All of them; parsed once in a run of the tests."""
    return [Source(path) for path in sorted(PACKAGE.rglob("*")) if path.suffix in (".py", ".pyx", ".pxd")]


def _imports_of_cython(code: str) -> Iterator[str]:
    for base, names in re.findall(r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|.*)$", code, re.M):
        yield from (f"{base}.{name.split()[0]}" for name in names.strip("()").split(",") if name.strip())
    for names in re.findall(r"^\s*c?import\s+([\w., ]+)$", code, re.M):
        yield from (name.split()[0] for name in names.split(","))


def _without_texts(text: str) -> str:
    """Texts and comments blanked out. (Cython's own words are names to the tokenizer.)"""
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            (first, begin), (last, end) = token.start, token.end
            for number in range(first - 1, last):
                line = lines[number]
                start = begin if number == first - 1 else 0
                stop = end if number == last - 1 else len(line.rstrip("\n"))
                lines[number] = line[:start] + " " * (stop - start) + line[stop:]
    return "".join(lines)
