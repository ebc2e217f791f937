"""Makes the virtual environment, on machines too that came without the parts for it (Debian's split packages)."""

import os
import shutil
import subprocess
import sys


def main(folder: str) -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 -- an older Python runs this line
        print(f"kourou needs Python 3.11 or newer; this is {sys.version.split()[0]}. Set PYTHON=…", file=sys.stderr)
        return 1
    if _venv(folder):
        return 0
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    if os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(["apt-get", "install", "-y", "-qq", package], check=False)
        if _venv(folder):
            return 0
    print(f"python -m venv does not work here: install the package {package}, then try again", file=sys.stderr)
    return 1


def _venv(folder: str) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    if subprocess.run([sys.executable, "-m", "venv", folder], check=False).returncode != 0:
        return False
    pip = [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--upgrade", "pip"]
    return subprocess.run(pip, check=False).returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
