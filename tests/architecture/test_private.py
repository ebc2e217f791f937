"""What begins with an underscore is read within its package alone.

By name: `other._x` is a breach if no module of the reader's package defines `_x`, and another package does; or if the
module says itself that `other` is of a class that it imports from another package.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.sources import PACKAGE, Source, sources

OF_PYTHON = {"_replace", "_asdict", "_fields", "_make", "_field_defaults", "_value_", "_name_", "_missing_"}
"""Public names of named tuples and enums."""


def defined_by(source: Source) -> set[str]:
    """The private names that a module defines: functions, attributes, constants, fields of structs."""
    return {name for name in _names(source) if name.startswith("_") and not name.startswith("__")}


def _names(source: Source) -> Iterator[str]:
    if not source.is_plain:
        yield from re.findall(r"(?<![.\w])_[a-z]\w*", source.code)
        yield from re.findall(r"\bself\.(_[a-z]\w*)\s*=[^=]", source.code)
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            yield node.attr


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def reads(source: Source) -> Iterator[tuple[str, str]]:
    """(owner, name) of every `owner._name`."""
    if source.is_plain:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                yield ast.unparse(node.value).rpartition(".")[2], node.attr
    else:
        yield from re.findall(r"(\w+|[\])])\.(_[a-z]\w*)", source.code)


def classes_of_others(source: Source) -> set[str]:
    """The names of classes that it imports from other packages."""
    modules = [name.split(".") for name in source.imports if name.startswith("kourou.")]
    return {parts[-1] for parts in modules if parts[1] != source.package and parts[-1][:1].isupper()}


def objects_of_others(source: Source) -> set[str]:
    """The names of variables and attributes that are of such a class, as the module says."""
    text = source.text if source.is_plain else source.code
    found = [
        *re.findall(r"\b(\w+)\s*:\s*\"?([A-Z]\w*)", text),
        *re.findall(r"\b(\w+)\s*=\s*([A-Z]\w*)\(", text),
        *(pair[::-1] for pair in re.findall(r"\b([A-Z]\w*)\s+(\w+)\b", "" if source.is_plain else text)),
    ]
    others = classes_of_others(source)
    return {name for name, kind in found if kind in others}


def breaches(source: Source, owners: dict[str, set[str]]) -> set[tuple[str, str]]:
    """`owners`: the packages that define a private name."""
    strangers = objects_of_others(source)
    found = set()
    for owner, name in reads(source):
        if not name.startswith("_") or name.startswith("__") or name in OF_PYTHON:
            continue
        packages = owners.get(name, set())
        if packages and (source.package not in packages or (owner in strangers and packages - {source.package})):
            found.add((source.name, name))
    return found


def owners_of_names(among: list[Source]) -> dict[str, set[str]]:
    owners = defaultdict(set)
    for source in among:
        for name in defined_by(source):
            owners[name].add(source.package)
    return owners


def test_nothing_private_is_read_by_other_packages() -> None:
    among = sources()
    owners = owners_of_names(among)
    found = {breach for source in among for breach in breaches(source, owners)}
    assert not found, sorted(found)


def test_nothing_private_is_imported_by_other_packages() -> None:
    found = [
        f"{source.name} imports {module}"
        for source in sources()
        for module in source.imports
        if module.startswith("kourou.")
        and module.split(".")[1] != source.package
        and any(re.match("_[a-z]", part) for part in module.split(".")[2:])
    ]
    assert found == ["_backend.py imports kourou.protocol._wire"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("net/x.py", "def f(store):\n    return store._secret\n"),
        ("net/x.py", "class Mine(Theirs):\n    def f(self):\n        self._secret()\n"),
        (
            "net/x.py",
            "from kourou.store.x import Store\n\ndef f(store: Store):\n    return store._shared\n_shared = 1\n",
        ),
        ("net/x.pyx", "cdef int f(Store store):\n    return store._secret\n"),
        ("net/x.pyx", "from kourou.store.x cimport Store\ncdef int f(Store store):\n    return store._shared\n"),
    ],
)
def test_a_breach_is_found(name: str, text: str) -> None:
    source = Source(PACKAGE / Path(name))
    source.__dict__["text"] = text
    assert breaches(source, {"_secret": {"store"}, "_shared": {"store", "net"}})
    assert not breaches(source, {"_secret": {"net"}, "_shared": {"net"}})


PLAIN = """
_CONST: int = 1
class C:
    _field: int
    def _f(self):
        self._x: int = self._y
"""
COMPILED = """
cdef class C:
    cdef readonly object _a, _b
    cdef char *_c
    cdef int _d(self, int x)
"""


def test_definitions_are_found() -> None:
    plain, compiled = Source(PACKAGE / "store" / "x.py"), Source(PACKAGE / "store" / "x.pxd")
    plain.__dict__["text"], compiled.__dict__["text"] = PLAIN, COMPILED
    assert defined_by(plain) == {"_CONST", "_field", "_f", "_x"}
    assert defined_by(compiled) == {"_a", "_b", "_c", "_d"}
