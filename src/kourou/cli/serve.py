"""The commands that serve until they are stopped."""

import logging
from dataclasses import replace
from pathlib import Path

from kourou.nameserver.settings import SettingError, Settings, unknown_keys, unused_keys
from kourou.server.conf import ConfError, parse_assignments, read_conf, tls_settings
from kourou.server.nameserver import NameServerProcess
from kourou.server.process import allow_many_connections, run_until_stopped, write_ready_file

log = logging.getLogger(__name__)


async def namesrv(
    config: Path | None, host: str | None, port: int | None, assignments: list[str], ready_file: Path | None
) -> None:
    """`kourou namesrv`. Files are where Apache has them: in ~/namesrv, and the settings in the file given with -c."""
    folder = Path.home() / "namesrv"
    defaults = Settings(
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(config.resolve() if config else folder / "namesrv.properties"),
    )
    properties = {**(read_conf(config) if config else {}), **parse_assignments(assignments)}
    await _serve_namesrv(defaults, properties, host, port, ready_file)


async def run_all(host: str | None, port: int, store: Path, assignments: list[str], ready_file: Path | None) -> None:
    """`kourou run`."""
    folder = store.resolve() / "namesrv"
    defaults = Settings(
        kv_config_path=str(folder / "kvConfig.json"), config_store_path=str(folder / "namesrv.properties")
    )
    print("kourou: this version runs the name server only; there is no broker in it yet")
    await _serve_namesrv(defaults, parse_assignments(assignments), host, port, ready_file, store=store)


async def _serve_namesrv(
    defaults: Settings,
    properties: dict[str, str],
    host: str | None,
    port: int | None,
    ready_file: Path | None,
    store: Path | None = None,
) -> None:
    try:
        settings = defaults.with_properties(properties)
    except SettingError as error:
        raise ConfError(str(error)) from None
    if host is not None:
        settings = replace(settings, bind_address=host)
    if port is not None:
        settings = replace(settings, listen_port=port)
    for key in unknown_keys(properties):
        log.warning("property %s is unknown and ignored", key)
    for key in unused_keys(properties):
        log.info("property %s has no meaning here and is ignored", key)
    allow_many_connections()
    process = NameServerProcess(settings, tls=tls_settings(properties))

    async def start() -> None:
        await process.start()
        where = str(store.resolve()) if store else None
        write_ready_file(ready_file, namesrv=process.address, store=where)
        print(f"kourou name server is ready: {process.address}", flush=True)

    await run_until_stopped(start, process.stop)
