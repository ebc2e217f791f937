"""The commands that serve until they are stopped."""

import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kourou.broker.properties import (
    Configuration,
    ProcessSettings,
    PropertyError,
    configure,
    is_property,
    unknown_keys as broker_unknown_keys,
    unused_keys as broker_unused_keys,
)
from kourou.broker.settings import BrokerSettings
from kourou.cli.console_child import ConsoleChild
from kourou.cli.output import show
from kourou.controller.settings import ControllerSettingError, ControllerSettings, is_controller_property
from kourou.nameserver.settings import (
    SettingError,
    Settings,
    hot_properties,
    is_setting,
    other_properties,
    unknown_keys,
    unused_keys,
)
from kourou.net.tls import TlsMode, TlsSettings
from kourou.server.access_files import PLAIN_ACL, SHARED, controller_access, with_access_of
from kourou.server.address import own_address
from kourou.server.broker import BrokerPaths, BrokerProcess
from kourou.server.conf import (
    AddressError,
    ConfError,
    outgoing_tls_settings,
    parse_assignments,
    read_conf,
    tls_settings,
)
from kourou.server.controller import ControllerProcess
from kourou.server.ha_gate import controller_security
from kourou.server.nameserver import NameServerProcess
from kourou.server.process import allow_many_connections, run_until_stopped, write_ready_file
from kourou.store.settings import SMALL, StoreSettings

log = logging.getLogger(__name__)


async def namesrv(
    config: Path | None,
    host: str | None,
    port: int | None,
    assignments: list[str],
    ready_file: Path | None,
    *,
    is_member: bool = False,
    brokers: tuple[Path | None, Path | None] = (None, None),
) -> None:
    """`kourou namesrv`. Files have Apache's paths: in ~/namesrv, and the settings in the file given with -c.

    Settings that a request changes are written there; without -c they are written but, as with Apache, not read at the
    next start. `brokers`: a broker.conf whose access control, and one whose TLS settings, are used.
    """
    folder = Path.home() / "namesrv"
    defaults = Settings(
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(config.resolve() if config else folder / "namesrv.properties"),
    )
    given = read_conf(config) if config else {}
    given.pop("configStorePath", None)  # the given file itself, even if it was moved after it was written
    settings = _with(defaults, given, config)
    access_of, tls_of = brokers
    assigned = {
        **{key: text for key, text in (read_conf(access_of) if access_of else {}).items() if key in SHARED},
        **{key: text for key, text in (read_conf(tls_of) if tls_of else {}).items() if key.startswith("tls.")},
        **parse_assignments(assignments),
    }
    if "true" in (given.get("aclEnable"), assigned.get("aclEnable")) and not settings.plain_acl_file:
        settings = replace(settings, plain_acl_file=_beside_configuration(config))
    await _serve_namesrv(settings, given, assigned, host, port, ready_file, is_member=is_member)


async def run_all(
    host: str | None,
    namesrv_port: int,
    port: int,
    store: Path,
    config: Path | None,
    assignments: list[str],
    ready_file: Path | None,
    *,
    with_console: bool = False,
) -> None:
    """`kourou run`: a name server and a broker in one process, and the console as a child.

    Settings that requests changed are kept in the store, and the next run with this store uses them."""
    root = store.resolve()
    folder = root / "namesrv"
    kept = folder / "namesrv.properties"
    last = read_conf(kept) if kept.exists() else {}
    bind = host or "127.0.0.1"
    settings = Settings(
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(kept),
        bind_address=bind,
        listen_port=namesrv_port,
    )
    assigned = parse_assignments(assignments)
    given = {**(read_conf(config) if config else {}), **assigned}
    of_name_server = {key: text for key, text in assigned.items() if is_setting(key) and not is_property(key)}
    settings = _with(_with(settings, hot_properties(last), kept), of_name_server, None)
    given = {key: text for key, text in given.items() if key not in of_name_server}
    defaults = Configuration(
        BrokerSettings(port=port), SMALL, ProcessSettings(bind_address=bind, store_root=str(root)), {}
    )
    configuration = _configured(defaults, given, config)
    settings = with_access_of(settings, configuration)
    tls = tls_settings(given)
    in_tls = configuration.process.name_servers_in_tls or tls.mode is TlsMode.ENFORCING
    outgoing_tls = outgoing_tls_settings(given, wanted=in_tls)
    allow_many_connections()
    name_server = NameServerProcess(
        settings,
        tls=tls,
        broker_tls=outgoing_tls,
        other_properties=other_properties(last),
        shares_users=True,
    )
    broker: BrokerProcess | None = None
    console = ConsoleChild()

    async def start() -> None:
        nonlocal broker
        try:
            await name_server.start()
            broker = _broker_process(configuration, [name_server.address], tls, outgoing_tls)
            await broker.start()
            name_server.share_users(broker.machine.access_control.directory)
        except AddressError as error:
            raise ConfError(_beside(error, settings.listen_port, configuration.broker.port, store)) from None
        if with_console:
            console.listen()
        write_ready_file(
            ready_file,
            namesrv=name_server.address,
            broker=broker.address,
            ha=broker.settings.ha_address,
            console=console.url,
            store=str(broker.store_root),
        )
        show(f"kourou is ready: name server {name_server.address}, broker {broker.address}")
        guarded = configuration.broker.authenticates or configuration.process.plain_acl
        await console.start(name_server.address, accounts=guarded, tls=outgoing_tls)

    async def stop() -> None:
        await console.stop()
        if broker is not None:
            await broker.stop()
        await name_server.stop()

    await run_until_stopped(start, stop)


def _beside(error: AddressError, namesrv_port: int, port: int, store: Path) -> str:
    """The remedy if a port of `kourou run` is in use, usually by another `kourou run`."""
    name_server, broker = (at + step if at and at + step < 65536 else 0 for at, step in ((namesrv_port, 1), (port, 10)))
    other = f"--namesrv-port {name_server} --port {broker} --store {store}-2"
    return (
        f"{error.problem}. If Kourou or RocketMQ runs there already, use it or stop it. To run another beside it, "
        f"with a store of its own: kourou run {other} (make run ARGS='{other}'); port 0 is any free one"
    )


async def broker(
    config: Path | None,
    host: str | None,
    port: int | None,
    name_servers: str | None,
    assignments: list[str],
    ready_file: Path | None,
    *,
    is_member: bool = False,
) -> None:
    """`kourou broker`: files have Apache's paths, in ~/store, unless broker.conf sets others.

    A member of a cluster stops when its standard input ends, and a slave is ready when it follows its master.
    """
    given = {**(read_conf(config) if config else {}), **parse_assignments(assignments)}
    if name_servers is not None:
        given["namesrvAddr"] = name_servers
    elif "namesrvAddr" not in given and os.environ.get("NAMESRV_ADDR"):
        given["namesrvAddr"] = os.environ["NAMESRV_ADDR"]
    defaults = Configuration(
        BrokerSettings(name=socket.gethostname() or "broker-a"),
        StoreSettings(),
        ProcessSettings(store_root=str(Path.home() / "store")),
        {},
    )
    configuration = _configured(defaults, given, config)
    if host is not None:
        configuration = replace(configuration, process=replace(configuration.process, bind_address=host))
    if port is not None:
        configuration = replace(configuration, broker=replace(configuration.broker, port=port))
    addresses = [word.strip() for word in configuration.process.name_servers.split(";") if word.strip()]
    for address in addresses:
        number = address.rpartition(":")[2]
        if not (number.isascii() and number.isdigit() and 0 < int(number) <= 65535):
            raise ConfError(f"namesrvAddr={address}: host:port is expected, with a port from 1 to 65535")
    if not addresses:
        log.warning("no name server is given (-n HOST:PORT or namesrvAddr): clients will not find this broker")
    allow_many_connections()
    outgoing_tls = outgoing_tls_settings(given, wanted=configuration.process.name_servers_in_tls)
    process = _broker_process(configuration, addresses, tls_settings(given), outgoing_tls)

    async def start() -> None:
        await process.start()
        if is_member:
            await process.has_master()
        write_ready_file(
            ready_file,
            broker=process.address,
            ha=process.settings.ha_address,
            store=str(process.store_root),
            open_ports=process.open_ports,
        )
        show(f"kourou broker is ready: {process.settings.name} at {process.address}")

    await run_until_stopped(start, process.stop, with_input=is_member)


def _configured(defaults: Configuration, given: Mapping[str, str], source: Path | None) -> Configuration:
    try:
        configuration = configure(defaults, given)
    except PropertyError as error:
        raise ConfError(f"{source}: {error}" if source else str(error)) from None
    configuration = with_plain_acl_file(configuration, source)
    for key in broker_unknown_keys(given):
        log.warning("property %s is unknown and ignored", key)
    for key in broker_unused_keys(given):
        log.info("property %s has no effect in Kourou and is ignored", key)
    return configuration


def with_plain_acl_file(configuration: Configuration, source: Path | None) -> Configuration:
    """plain_acl.yml is beside the configuration file, unless another place is given."""
    process = configuration.process
    if process.plain_acl_file:
        return configuration
    return replace(configuration, process=replace(process, plain_acl_file=_beside_configuration(source)))


def _beside_configuration(source: Path | None) -> str:
    folder = source.resolve().parent if source is not None else Path("conf")
    return str(folder / PLAIN_ACL)


def _broker_process(
    configuration: Configuration,
    name_servers: list[str],
    tls: TlsSettings | None,
    outgoing_tls: TlsSettings | None = None,
) -> BrokerProcess:
    """Listens on loopback unless --host, bindAddress or brokerIP1 gives a host, which is also announced to clients."""
    broker, process = configuration.broker, configuration.process
    told = "brokerIP1" in configuration.given and broker.ip
    bind = process.bind_address or told or "127.0.0.1"
    if not told:
        broker = replace(broker, ip=own_address(bind))
    if "brokerIP2" not in configuration.given:
        broker = replace(broker, ha_ip=broker.ip)
    if "haListenPort" not in configuration.given:
        broker = replace(broker, ha_port=broker.port + 1)
    configuration = replace(configuration, broker=broker)
    root = Path(process.store_root)
    paths = BrokerPaths(root, Path(process.commit_log) if process.commit_log else None)
    return BrokerProcess(
        configuration,
        paths,
        name_servers,
        host=bind,
        fast_port=broker.port - 2 if broker.port > 2 else None,
        tls=tls,
        outgoing_tls=outgoing_tls,
    )


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
    *,
    is_member: bool,
) -> None:
    """`given` are the properties of the file, which `settings` contain; `assigned` those of the command line."""
    settings = _with(settings, assigned, None)
    if host is not None:
        settings = replace(settings, bind_address=host)
    if port is not None:
        settings = replace(settings, listen_port=port)
    properties = {**given, **assigned}
    has_controller = settings.enable_controller_in_namesrv
    for key in unknown_keys(properties):
        if not (has_controller and is_controller_property(key)):
            log.warning("property %s is unknown and ignored", key)
    for key in unused_keys(properties):
        log.info("property %s has no effect in Kourou and is ignored", key)
    allow_many_connections()
    tls, broker_tls = tls_settings(properties), outgoing_tls_settings(properties, wanted=False)
    process = NameServerProcess(settings, tls=tls, broker_tls=broker_tls, other_properties=other_properties(given))
    elector = _controller_process(properties, host, tls, broker_tls) if has_controller else None

    async def start() -> None:
        await process.start()
        if elector is not None:
            await elector.start()
        address = None if elector is None else elector.address
        write_ready_file(ready_file, namesrv=process.address, controller=address, open_ports=process.open_ports)
        show(f"kourou name server is ready: {process.address}" + (f", controller {address}" if address else ""))

    async def stop() -> None:
        if elector is not None:
            await elector.stop()
        await process.stop()

    await run_until_stopped(start, stop, with_input=is_member)


async def controller(
    config: Path | None, host: str | None, assignments: list[str], ready_file: Path | None, *, is_member: bool = False
) -> None:
    """`kourou controller`: the properties of Apache's controller.conf."""
    properties = {**(read_conf(config) if config else {}), **parse_assignments(assignments)}
    for key in properties:
        if not is_controller_property(key) and not key.startswith("tls."):
            log.warning("property %s is unknown and ignored", key)
    allow_many_connections()
    broker_tls = outgoing_tls_settings(properties, wanted=False)
    process = _controller_process(properties, host, tls_settings(properties), broker_tls)

    async def start() -> None:
        await process.start()
        write_ready_file(ready_file, controller=process.address)
        show(f"kourou controller is ready: {process.address}")

    await run_until_stopped(start, process.stop, with_input=is_member)


def _controller_process(
    properties: Mapping[str, str], host: str | None, tls: TlsSettings | None, broker_tls: TlsSettings | None
) -> ControllerProcess:
    """Raises ConfError."""
    defaults = ControllerSettings(store=str(Path.home() / "DledgerController"))
    try:
        settings = defaults.with_properties(properties)
    except ControllerSettingError as error:
        raise ConfError(str(error)) from None
    if host in ("0.0.0.0", "::") and not settings.peers.strip(" ;"):
        raise ConfError(
            f"--host {host}: brokers need an address of the controller that they can reach: set "
            "controllerDLegerPeers=n0-HOST:PORT"
        )
    access = controller_access(properties)
    security = controller_security(properties, tls)
    return ControllerProcess(settings, host=host, tls=tls, broker_tls=broker_tls, access=access, security=security)
