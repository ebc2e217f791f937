"""User code passes mypy --strict; a mistake in it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def mypy(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "user_code.py"
    file.write_text(source)
    options = ["--strict", "--no-incremental", "--cache-dir", str(folder / "cache")]
    command = [sys.executable, "-m", "mypy", *options, str(file)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_user_code_passes(tmp_path: Path) -> None:
    done = mypy((HERE / "client_usage.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_mistakes_are_found(tmp_path: Path) -> None:
    source = (
        "import kourou\n\n\n"
        "async def main() -> None:\n"
        "    async with kourou.connect('127.0.0.1:9876') as mq:\n"
        "        await mq.send('orders', 'text')\n"
        "        async for message in mq.consume('orders'):\n"
        "            print(message.nothing)\n"
    )
    done = mypy(source, tmp_path)
    assert done.returncode != 0
    assert 'has incompatible type "str"; expected "bytes | Message"' in done.stdout
    assert 'Missing named argument "group"' in done.stdout
    assert '"Delivery" has no attribute "nothing"' in done.stdout
