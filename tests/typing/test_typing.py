"""User code passes mypy --strict; a mistake in it does not."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent

MISTAKES = """
import kourou


async def main() -> None:
    async with kourou.connect("127.0.0.1:9876") as mq:
        await mq.send("orders", "text")
        async for message in mq.consume("orders"):
            print(message.nothing)
"""


@pytest.mark.slow
def test_user_code_passes_and_mistakes_are_found(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text((HERE / "client_usage.py").read_text())
    (tmp_path / "wrong.py").write_text(MISTAKES)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "right.py" not in done.stdout, done.stdout
    assert 'has incompatible type "str"; expected "bytes | Message"' in done.stdout
    assert 'Missing named argument "group"' in done.stdout
    assert '"Delivery" has no attribute "nothing"' in done.stdout
