"""Files, modules and methods that the documents name exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FOREIGN = {"FileChannel", "MessageUtil", "String"}
"""Classes of Java whose methods the documents name."""


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert not missing


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = [title.replace("`", "") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)]
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_headings(document: Path) -> None:
    links = re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", document.read_text())
    targets = [(document.parent / name if name else document, anchor) for name, anchor in links]
    missing = [
        f"{path.name}#{anchor}" for path, anchor in targets if path.suffix == ".md" and anchor not in anchors(path)
    ]
    assert not missing


def test_anchors() -> None:
    assert {"one-minute", "beside-apache-rocketmq"} <= anchors(ROOT / "README.md")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_named_exist(document: Path) -> None:
    """`package/module.py` in backquotes is a module of ours."""
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|pyx|pxd))`", document.read_text())
    places = (ROOT / "src" / "kourou", ROOT)
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert not missing


@functools.cache
def classes() -> dict[str, set[str]]:
    """Names in the bodies of our classes, their `self.…` attributes included, by the name of the class."""
    found: dict[str, set[str]] = {}
    sources = [*ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.pyi")]
    for kind in (node for path in sources for node in ast.walk(ast.parse(path.read_text()))):
        if not isinstance(kind, ast.ClassDef):
            continue
        names = found.setdefault(kind.name, set())
        for node in ast.walk(kind):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names.add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
                names |= {target.attr for target in targets if isinstance(target, ast.Attribute)}
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_methods_named_exist(document: Path) -> None:
    """`Class.method` in backquotes is a method or attribute of a class of ours, but for the classes in FOREIGN."""
    named = re.findall(r"`([A-Z]\w+)\.(\w+)(?:\(.*?\))?`", document.read_text())
    known = classes()
    ours = [(kind, name) for kind, name in named if kind not in FOREIGN]
    missing = [f"{kind}.{name}" for kind, name in ours if name not in known.get(kind, ())]
    assert not missing


def test_methods_are_found() -> None:
    assert {"read", "step"} <= classes()["Broker"]
    assert "read" not in classes()["LongPolls"]


def test_the_documents_are_looked_at() -> None:
    assert ROOT / "README.md" in DOCUMENTS
    assert len(DOCUMENTS) > 4
