"""The files of the console's pages: what they may contain, how large they are, and where they come from."""

import fnmatch
import gzip
import hashlib
import json
import re
import tomllib
from pathlib import Path

import pytest
from tools.vendor_console import adapted

STATIC = Path(__file__).parents[3] / "src/kourou/console/static"
VENDOR = STATIC / "vendor"
SIZE_MAX = 120_000
"""Of all files together, compressed one by one."""
LINES_MAX = 400
"""Of a module of ours."""

MODULES = sorted(path for path in STATIC.rglob("*.js") if VENDOR not in path.parents)
OURS = [*MODULES, *STATIC.glob("*.html"), *STATIC.glob("*.css")]
VENDORED = tomllib.loads((VENDOR / "VENDOR.toml").read_text())["file"]

FORBIDDEN = {
    "markup from text": r"innerHTML|outerHTML|insertAdjacentHTML|DOMParser|createContextualFragment|srcdoc|\.write\(",
    "code from text": r"\beval\(|new Function|setTimeout\(\s*[\"'`]|setInterval\(\s*[\"'`]|javascript:",
    "an inline script or style": r"<script(?![^>]*\bsrc=)[^>]*>|<style|\bstyle=|\son[a-z]+=[\"']",
    "something from the internet": r"https?://(?!www\.w3\.org/)|@import|[\"'(]//",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(STATIC))


def words(language: str) -> dict[str, str]:
    found: dict[str, str] = json.loads((STATIC / "words" / f"{language}.json").read_text())
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_pages_do_not_contain(what: str) -> None:
    found = {name_of(path): re.findall(FORBIDDEN[what], path.read_text()) for path in OURS}
    assert {name: texts for name, texts in found.items() if texts} == {}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("markup from text", "element.innerHTML = name"),
        ("code from text", 'setTimeout("work()", 1)'),
        ("an inline script or style", "<script>work()</script>"),
        ("an inline script or style", '<a onclick="work()">'),
        ("something from the internet", 'import "https://example.org/x.js"'),
    ],
)
def test_the_check(what: str, text: str) -> None:
    assert re.findall(FORBIDDEN[what], text)


def test_modules_are_short_and_import_files_that_exist() -> None:
    for path in MODULES:
        text = path.read_text()
        assert text.startswith("//"), f"{name_of(path)} does not begin with what it is for"
        assert text.count("\n") <= LINES_MAX, name_of(path)
        missing = [name for name in imports_of(text) if not (path.parent / name).is_file()]
        assert not missing, name_of(path)


def imports_of(text: str) -> list[str]:
    found = re.findall(r"""(?m)^(?:import|export) .*"(\.[^"]+)";$|\bimport\("([^"]+)"\)""", text)
    return [first or second for first, second in found]


def test_what_is_imported_is_exported_and_used() -> None:
    wrong = []
    for path in MODULES:
        text = path.read_text()
        code = re.sub(r"(?m)^import .*$", "", text)
        for names, source in re.findall(r'import \{ ([^}]+) \} from "([^"]+)"', text):
            origin = path.parent / source
            for name in names.split(", "):
                exported = rf"export (?:async )?(?:const|function|class) {name}\b|export \{{[^}}]*\b{name}\b"
                if VENDOR not in origin.resolve().parents and not re.search(exported, origin.read_text()):
                    wrong.append(f"{name_of(path)}: {source} has no {name}")
                if not re.search(rf"\b{name}\b", code):
                    wrong.append(f"{name_of(path)}: {name} is not used")
    assert wrong == []


def test_pages_are_small() -> None:
    served = [path for path in STATIC.rglob("*.*") if path.suffix in (".html", ".js", ".css", ".json", ".svg")]
    sizes = {name_of(path): len(gzip.compress(path.read_bytes())) for path in served}
    assert sum(sizes.values()) < SIZE_MAX, sizes


def test_all_modules_but_the_screens_are_known_to_the_first_page() -> None:
    index = (STATIC / "index.html").read_text()
    named = re.findall(r'(?:href|src)="/static/([^"]+)"', index)
    assert all((STATIC / name).is_file() for name in named)


@pytest.mark.parametrize("file", VENDORED, ids=lambda file: str(file["name"]))
def test_vendored_files_are_as_listed(file: dict[str, str]) -> None:
    content = (VENDOR / file["name"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == file["sha256"]
    assert file["version"] and file["licence"] in ("MIT", "Apache-2.0")


def test_no_vendored_file_is_unlisted_or_without_its_licence() -> None:
    listed = {str(file["name"]) for file in VENDORED}
    assert {path.name for path in VENDOR.iterdir() if path.suffix in (".js", ".css")} == listed
    for file in VENDORED:
        licence = VENDOR / f"LICENSE.{file['package'].replace('@', '').replace('/', '-')}"
        assert "copyright" in licence.read_text().lower()


def test_vendored_modules_import_files_beside_them() -> None:
    source = 'import{h}from"preact";import"preact/hooks";h();\n//# sourceMappingURL=x.map\n'
    assert adapted(source) == 'import{h}from"./preact.js";import"./hooks.js";h();\n'
    assert adapted("var uPlot=1;", "uPlot") == "var uPlot=1;\nexport default uPlot;\n"
    with pytest.raises(SystemExit, match="left-pad"):
        adapted('import x from "left-pad"')


def test_languages_have_the_same_words() -> None:
    english, chinese = words("en"), words("zh")
    assert list(english) == list(chinese) == sorted(english)
    for key, text in english.items():
        for form in text.split("|"):
            named = set(re.findall(r"\{(\w+)\}", form))
            assert named <= set(re.findall(r"\{(\w+)\}", chinese[key])) | {"n"}, key
        assert set(re.findall(r"\{(\w+)\}", chinese[key])) <= set(re.findall(r"\{(\w+)\}", text)), key


def test_chinese_is_chinese() -> None:
    same = {key for key, text in words("zh").items() if text == words("en")[key] and re.search(r"[a-z]{4}", text)}
    allowed = {"broker", "filter.placeholder"}
    assert same <= allowed


def test_every_word_is_there_and_used() -> None:
    text = "\n".join(path.read_text() for path in MODULES)
    exact = set(re.findall(r'\bt\("([^"]+)"', text))
    patterns = {re.sub(r"\$\{.*?\}", "*", key) for key in re.findall(r"\b(?:t|known)\(`([^`]+)`", text)}
    english = words("en")
    assert exact - set(english) == set()
    assert {
        key for key in english if key not in exact and not any(fnmatch.fnmatch(key, one) for one in patterns)
    } == set()
    assert {one for one in patterns if not fnmatch.filter(english, one)} == set()
