"""A whole RocketMQ in this process: name server and broker, for tests and small tools.

    async with kourou.embedded() as broker:
        ...                                     # any client, at broker.namesrv

    with EmbeddedThread() as broker:            # the same beside code that is not asyncio
        ...

Ports are free ones, files are small and in a temporary folder that goes at the end, unless `store` names one. Several
may run at once. Everything is real: the same code, the same bytes on loopback, the same files.
"""

import asyncio
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from kourou.broker.properties import Configuration, ProcessSettings, PropertyError, configure, unknown_keys
from kourou.broker.settings import BrokerSettings
from kourou.nameserver.settings import Settings
from kourou.server.broker import BrokerPaths, BrokerProcess
from kourou.server.conf import ConfError
from kourou.server.nameserver import NameServerProcess
from kourou.store.settings import EMBEDDED


class Embedded:
    """A name server and a broker. Made by `kourou.embedded`; `async with` starts and stops them."""

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """`properties` are those of broker.conf, such as {"flushDiskType": "SYNC_FLUSH"}.

        Raises ConfError for one that is unknown or has a wrong value.
        """
        given = {key: _text(value) for key, value in (properties or {}).items()}
        unknown = unknown_keys(given)
        if unknown:
            raise ConfError(f"{', '.join(unknown)}: no property of a broker")
        self._store = Path(store) if store is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._host = host
        self._namesrv_port = namesrv_port
        broker = BrokerSettings(name="broker-a", ip=host, ha_ip=host, port=port)
        try:
            self._configuration = configure(Configuration(broker, EMBEDDED, ProcessSettings(), {}), given)
        except PropertyError as error:
            raise ConfError(str(error)) from None
        self._name_server: NameServerProcess | None = None
        self._broker: BrokerProcess | None = None

    @property
    def namesrv(self) -> str:
        """`host:port` of the name server: what clients need to know."""
        assert self._name_server is not None, "not started"
        return self._name_server.address

    @property
    def address(self) -> str:
        """`host:port` of the broker."""
        assert self._broker is not None, "not started"
        return self._broker.address

    @property
    def store(self) -> Path:
        """Where the broker keeps its files."""
        assert self._broker is not None, "not started"
        return self._broker.store_root

    @property
    def metrics_port(self) -> int | None:
        """Where GET /metrics is answered, with the property metricsExporterType=PROM; None otherwise."""
        assert self._broker is not None, "not started"
        return self._broker.metrics_port

    async def start(self) -> None:
        """Raises ConfError, StoreError."""
        root = self._store
        if root is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kourou-", ignore_cleanup_errors=True)
            root = Path(self._temporary.name)
        settings = Settings(
            bind_address=self._host,
            listen_port=self._namesrv_port,
            kv_config_path=str(root / "namesrv" / "kvConfig.json"),
            config_store_path=str(root / "namesrv" / "namesrv.properties"),
        )
        try:
            self._name_server = NameServerProcess(settings)
            await self._name_server.start()
            self._broker = BrokerProcess(
                self._configuration, BrokerPaths(root), [self._name_server.address], host=self._host
            )
            await self._broker.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop both cleanly. A second call does nothing."""
        broker, self._broker = self._broker, None
        name_server, self._name_server = self._name_server, None
        temporary, self._temporary = self._temporary, None
        try:
            if broker is not None:
                await broker.stop()
        finally:
            if name_server is not None:
                await name_server.stop()
            if temporary is not None:
                temporary.cleanup()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class EmbeddedThread:
    """An `Embedded` in a thread of its own, for code that is not asyncio or has loops that come and go."""

    def __init__(
        self,
        *,
        store: str | Path | None = None,
        host: str = "127.0.0.1",
        namesrv_port: int = 0,
        port: int = 0,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """As `Embedded`."""
        self._embedded = Embedded(store=store, host=host, namesrv_port=namesrv_port, port=port, properties=properties)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    @property
    def namesrv(self) -> str:
        return self._embedded.namesrv

    @property
    def address(self) -> str:
        return self._embedded.address

    @property
    def store(self) -> Path:
        return self._embedded.store

    def start(self) -> None:
        """Returns when clients can come. Raises ConfError, StoreError."""
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), name="kourou-embedded", daemon=True)
        self._thread.start()
        ready.result()

    def _run(self, ready: Future[None]) -> None:
        asyncio.run(self._live(ready))

    async def _live(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await self._embedded.start()
        except BaseException as error:
            ready.set_exception(error)
            return
        ready.set_result(None)
        await self._stop.wait()
        await self._embedded.stop()

    def stop(self) -> None:
        """Returns when everything is closed. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        if thread.is_alive() and self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
