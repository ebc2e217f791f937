"""The examples of the documentation and the programs in examples/ do what they say."""

import ast
import asyncio
import inspect
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import kourou
from kourou.client import Client, connect

from .conftest import PATIENT, World
from .steps import make_topic

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "client").glob("*.md"))
WITHOUT_ASYNCIO = ROOT / "docs" / "client" / "sync.md"


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


ASYNC_PAGES = [page for page in PAGES if blocks(page) and page != WITHOUT_ASYNCIO]


async def run(source: str, names: dict[str, Any], where: str) -> None:
    code = compile(source, where, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, names)
    if inspect.iscoroutine(result):
        await result


@pytest.mark.parametrize("page", ASYNC_PAGES, ids=lambda page: page.stem)
async def test_a_page(page: Path, world: World, name: str) -> None:
    async with connect(world.namesrv, settings=PATIENT, namespace=name) as mq, asyncio.timeout(120):
        names: dict[str, Any] = {"mq": mq, "kourou": kourou}
        for source in blocks(page):
            await run(source.replace("127.0.0.1:9876", world.namesrv), names, str(page))
        if "test_orders" in names:
            await names["test_orders"](types.SimpleNamespace(namesrv=world.namesrv))


def test_the_page_without_asyncio(world: World) -> None:
    names: dict[str, Any] = {}
    for source in blocks(WITHOUT_ASYNCIO):
        exec(compile(source.replace("127.0.0.1:9876", world.namesrv), str(WITHOUT_ASYNCIO), "exec"), names)
    assert "mq" in names


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "client"))

    def load(name: str) -> Any:
        sys.modules.pop(name, None)
        return __import__(name)

    return load


async def test_the_pipeline(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    async with asyncio.timeout(60):
        await example("pipeline").main(None)
    assert int(capsys.readouterr().out.split()[0]) >= 100


async def test_the_tail(mq: Client, world: World, name: str, example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    await make_topic(mq, name, queues=1)
    await mq.send(name, b"hello", tag="t")
    async with asyncio.timeout(60):
        await example("tail").main(world.namesrv, name, 1)
    assert capsys.readouterr().out == "0 0 t hello\n"
