"""Sources and documents use the usual terms: private words and constructions are refused."""

import re
from pathlib import Path

import pytest
from tests.architecture.sources import ROOT, sources

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

USUAL = {
    r"\banew\b": "again",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\bwhoever\b": "name the process, the client or the caller",
    r"\bspeaks? (of|for)\b": "refers to, represents",
    r"\b(must|will) see to it\b|\bsees to it\b": "makes sure",
    r"(^|[.:;] |\"\"\")who (reads|asks|waits|was|has|had|is|wants|comes|finds)\b(?!.*\?)": "name the client",
    r"(?<!there )\b(is|are|was|were) no (?!more\b|longer\b|other\b|such\b|less\b|better\b|earlier\b|later\b)[a-z]+\b": (
        "is not a …"
    ),
    r"\b(record|entry|entries|records) that holds?\b|\bdo(es)? not hold\b(?! (the|more|up|any))": "valid, invalid",
    r"\b(is|are|was|were|made) safe\b": "durable",
    r"\b(no|some|any|every)body('s)?\b": "no client, a client, any client, every client",
    r"\b(go|goes|went) on\b": "continues",
    r"\bwhat (is|was) (asked|told|wanted|meant)\b": "the requested …, the chosen …",
    r"\bfor want of\b|\bif need be\b|\bnow and then\b": "without, if necessary, from time to time",
}
"""A pattern, and the usual words."""

IN_DOCUMENTS = {
    r"\b(our|we)\b": "Kourou's, Kourou",
    r"\bwho may what\b": "users and their rights",
    r"\b(is|are) gone\b": "was removed, has expired, disconnected",
    r"\bsays so\b|\bat hand\b": "reports it, available",
}
"""The same, for documents alone."""


def strange_words(text: str, usual_words: dict[str, str] = USUAL) -> list[str]:
    """The lines with words that are not usual, and what to write instead."""
    return [
        f"line {number}: {found[0].strip()!r}, write: {usual}"
        for number, line in enumerate(text.splitlines(), 1)
        for pattern, usual in usual_words.items()
        if (found := re.search(pattern, line, re.IGNORECASE))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents(document: Path) -> None:
    assert strange_words(document.read_text(), USUAL | IN_DOCUMENTS) == []


def test_sources() -> None:
    found = {source.name: words for source in sources() if (words := strange_words(source.text))}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "strange"),
    [
        ("The queue is built anew.", True),
        ("The queue is built again.", False),
        ("Who reads a backlog waits.", True),
        ("the client that reads a backlog waits", False),
        ("an address that is no IP address", True),
        ("The segment is no longer used.", False),
        ("there is no such topic", False),
        ("the message is safe", True),
        ("nobody waits for it", True),
        ("the group goes on", True),
    ],
)
def test_the_check(text: str, strange: bool) -> None:
    assert bool(strange_words(text)) is strange


def test_the_check_of_documents() -> None:
    assert strange_words("a queue of our broker is gone") == []
    assert len(strange_words("a queue of our broker is gone", IN_DOCUMENTS)) == 2
