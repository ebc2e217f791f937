"""Files and modules that the documents name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text())
    missing = [target for target in targets if "://" not in target and not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_named_exist(document: Path) -> None:
    """`package/module.py` in backquotes is a module of ours."""
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|pyx|pxd))`", document.read_text())
    places = (ROOT / "src" / "kourou", ROOT)
    missing = [name for name in named if not any((place / name).exists() for place in places)]
    assert not missing


def test_the_documents_are_looked_at() -> None:
    assert ROOT / "README.md" in DOCUMENTS
    assert len(DOCUMENTS) > 4
