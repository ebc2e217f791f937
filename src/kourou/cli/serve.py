"""The commands that serve until they are stopped."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kourou.nameserver.settings import (
    SettingError,
    Settings,
    hot_properties,
    other_properties,
    unknown_keys,
    unused_keys,
)
from kourou.server.conf import ConfError, parse_assignments, read_conf, tls_settings
from kourou.server.nameserver import NameServerProcess
from kourou.server.process import allow_many_connections, run_until_stopped, write_ready_file

log = logging.getLogger(__name__)


async def namesrv(
    config: Path | None, host: str | None, port: int | None, assignments: list[str], ready_file: Path | None
) -> None:
    """`kourou namesrv`. Files are where Apache has them: in ~/namesrv, and the settings in the file given with -c.

    Settings that a request changes are written there; without -c they are written and, as with Apache, not read again.
    """
    folder = Path.home() / "namesrv"
    defaults = Settings(
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(config.resolve() if config else folder / "namesrv.properties"),
    )
    given = read_conf(config) if config else {}
    given.pop("configStorePath", None)  # the file itself, wherever it was when it was written
    settings = _with(defaults, given, config)
    await _serve_namesrv(settings, given, parse_assignments(assignments), host, port, ready_file)


async def run_all(host: str | None, port: int, store: Path, assignments: list[str], ready_file: Path | None) -> None:
    """`kourou run`. Settings that requests may change are as they were when it last ran with this store."""
    folder = store.resolve() / "namesrv"
    kept = folder / "namesrv.properties"
    defaults = Settings(kv_config_path=str(folder / "kvConfig.json"), config_store_path=str(kept))
    last = read_conf(kept) if kept.exists() else {}
    settings = _with(defaults, hot_properties(last), kept)
    print("kourou: this version runs the name server only; there is no broker in it yet")
    others = other_properties(last)
    await _serve_namesrv(settings, others, parse_assignments(assignments), host, port, ready_file, store.resolve())


def _with(settings: Settings, properties: Mapping[str, str], source: Path | None) -> Settings:
    try:
        return settings.with_properties(properties)
    except SettingError as error:
        raise ConfError(f"{source}: {error}" if source else str(error)) from None


async def _serve_namesrv(
    settings: Settings,
    given: Mapping[str, str],
    assigned: Mapping[str, str],
    host: str | None,
    port: int | None,
    ready_file: Path | None,
    store: Path | None = None,
) -> None:
    """`given` are the properties of a file, which `settings` have already; `assigned` those of the command line."""
    settings = _with(settings, assigned, None)
    if host is not None:
        settings = replace(settings, bind_address=host)
    if port is not None:
        settings = replace(settings, listen_port=port)
    properties = {**given, **assigned}
    for key in unknown_keys(properties):
        log.warning("property %s is unknown and ignored", key)
    for key in unused_keys(properties):
        log.info("property %s has no meaning here and is ignored", key)
    allow_many_connections()
    process = NameServerProcess(settings, tls=tls_settings(properties), other_properties=other_properties(given))

    async def start() -> None:
        await process.start()
        write_ready_file(ready_file, namesrv=process.address, store=str(store) if store else None)
        print(f"kourou name server is ready: {process.address}", flush=True)

    await run_until_stopped(start, process.stop)
