"""Fetches the libraries of the console's pages: `python tools/vendor_console.py`, with npm on the path.

`src/kourou/console/static/vendor/VENDOR.toml` lists the files with package and version. This program packs each package
with npm, writes the files with their licences beside the list, and enters their hashes. To update a library, change
its version there and run this again.

A browser resolves `import … from "preact"` only by an import map, which would be an inline script, and the pages allow
none. So bare imports are rewritten to the files beside. Lines that refer to source maps are removed, and a library that
is a classic script gets an export.
"""

import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

VENDOR = Path(__file__).parents[1] / "src/kourou/console/static/vendor"
MODULES = {
    "preact": "./preact.js",
    "preact/hooks": "./hooks.js",
    "@preact/signals-core": "./signals-core.js",
}
"""Where a bare import leads."""


def main() -> int:
    listing = VENDOR / "VENDOR.toml"
    text = listing.read_text()
    licences: set[str] = set()
    with tempfile.TemporaryDirectory() as folder:
        for file in tomllib.loads(text)["file"]:
            package = _packed(Path(folder), file["package"], file["version"])
            source = (package / file["source"]).read_text()
            content = adapted(source, file.get("export"))
            (VENDOR / file["name"]).write_text(content)
            text = _with_hash(text, file["name"], hashlib.sha256(content.encode()).hexdigest())
            licence = f"LICENSE.{file['package'].replace('@', '').replace('/', '-')}"
            (VENDOR / licence).write_text((package / "LICENSE").read_text())
            licences.add(licence)
            print(f"{file['name']}: {file['package']} {file['version']}, {len(content)} bytes", file=sys.stderr)
    listing.write_text(text)
    for path in VENDOR.glob("LICENSE.*"):
        if path.name not in licences:
            path.unlink()
    return 0


def adapted(source: str, export: str | None = None) -> str:
    """The source as a browser takes it without an import map: relative imports, no source map, an export."""

    def relative(found: re.Match[str]) -> str:
        name = found[2]
        if name not in MODULES:
            raise SystemExit(f"no file for the import of {name!r}: add it to VENDOR.toml and to MODULES")
        return f'{found[1]}"{MODULES[name]}"'

    text = re.sub(r"""\b(from\s*|import\s*)["']([^"'./][^"']*)["']""", relative, source)
    text = re.sub(r"(?m)^//# sourceMappingURL=.*\n?", "", text)
    text = re.sub(r"/\*# sourceMappingURL=.*?\*/", "", text)
    text = text.rstrip() + "\n"
    return f"{text}export default {export};\n" if export else text


def _packed(folder: Path, package: str, version: str) -> Path:
    """The unpacked files of the package, fetched once."""
    into = folder / f"{package.replace('/', '-')}-{version}"
    if not into.exists():
        command = ["npm", "pack", "--silent", f"{package}@{version}", "--pack-destination", str(folder)]
        archive = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(folder / archive) as files:
            files.extractall(into, filter="data")
    return into / "package"


def _with_hash(text: str, name: str, digest: str) -> str:
    pattern = rf'(name = "{re.escape(name)}"\n(?:.+\n)*?sha256 = ")[^"]*'
    return re.sub(pattern, rf"\g<1>{digest}", text)


if __name__ == "__main__":
    raise SystemExit(main())
