"""Installs what tests need and the machine lacks (Java 17, Maven, Go, libfaketime, a browser), as root with apt-get.

Where it may not, it says so loudly; the tests that need the missing tool are then skipped with the same reason.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

TOOLS = {
    "java": "openjdk-17-jdk-headless",
    "javac": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "go": "golang-go",
    "libfaketime": "libfaketime",
    "chromium-headless-shell": "chromium-headless-shell",
}


def main() -> int:
    missing = sorted({package for tool, package in TOOLS.items() if not _found(tool)})
    if not missing:
        return 0
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"tests: installing {' '.join(missing)}", file=sys.stderr)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], check=False, env=environment)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
        subprocess.run(command, check=False, env=environment)
    for tool, package in TOOLS.items():
        if not _found(tool):
            print(
                f"\n*** {tool} is missing: the tests that need it will be SKIPPED.\n"
                f"*** Install the package {package} (or run this as root), then try again.\n",
                file=sys.stderr,
            )
    return 0


def _found(tool: str) -> bool:
    if tool == "libfaketime":
        return any(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    if tool == "chromium-headless-shell" and (os.environ.get("KOUROU_CHROMIUM") or shutil.which("chromium")):
        return True  # tests/console takes it
    return bool(shutil.which(tool) or (tool == "go" and os.access("/usr/local/go/bin/go", os.X_OK)))


if __name__ == "__main__":
    raise SystemExit(main())
