"""Both event loops."""

from tests.unit.net.conftest import pytest_asyncio_loop_factories

__all__ = ["pytest_asyncio_loop_factories"]
