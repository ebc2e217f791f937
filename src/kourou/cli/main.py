"""`kourou`: the commands and their error handling."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kourou import _backend
from kourou._version import __version__
from kourou.cli.lazy_commands import LazyGroup, promise
from kourou.cli.output import show
from kourou.cli.running import LogLevel, run, show_unexpected

app = typer.Typer(
    name="kourou",
    cls=LazyGroup,
    help="A RocketMQ-compatible message broker in Python.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", metavar="FILE", help="Properties file, as Apache's.")
]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A property, as in the file; can be repeated.")
]
ReadyFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write this file when ready: JSON with pid and addresses.")
]
Member = Annotated[bool, typer.Option("--member", hidden=True, help="Started by `kourou run --brokers`.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on (default: loopback).")]


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Version and backend, then exit.")] = False,
) -> None:
    if version:
        show(f"kourou {__version__} ({_backend.name()}, Python {sys.version.split()[0]})")
        raise typer.Exit


@app.command()
def namesrv(
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="Port (default 9876; 0: any free one).")
    ] = None,
    config: ConfigFile = None,
    host: Host = None,
    assign: Assignments = None,
    ready_file: ReadyFile = None,
    log_level: LogLevel = "info",
    member: Member = False,
    access_of: Annotated[Path | None, typer.Option(hidden=True, help="A broker.conf: its access control.")] = None,
    tls_of: Annotated[Path | None, typer.Option(hidden=True, help="A broker.conf: its TLS settings.")] = None,
) -> None:
    """Run a name server: brokers register with it, clients ask it for routes."""
    from kourou.cli import serve

    words, brokers = assign or [], (access_of, tls_of)
    run(lambda: serve.namesrv(config, host, port, words, ready_file, is_member=member, brokers=brokers), log_level)


@app.command()
def controller(
    config: ConfigFile = None,
    host: Host = None,
    assign: Assignments = None,
    ready_file: ReadyFile = None,
    log_level: LogLevel = "info",
    member: Member = False,
) -> None:
    """Run a controller: it elects the masters of broker groups."""
    from kourou.cli import serve

    run(lambda: serve.controller(config, host, assign or [], ready_file, is_member=member), log_level)


@app.command()
def broker(
    name_servers: Annotated[
        str | None, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by semicolons.")
    ] = None,
    config: ConfigFile = None,
    host: Host = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Port (default 10911; 0: any free one).")] = None,
    assign: Assignments = None,
    ready_file: ReadyFile = None,
    log_level: LogLevel = "info",
    member: Member = False,
) -> None:
    """Run a broker: it stores messages and delivers them."""
    from kourou.cli import serve

    run(lambda: serve.broker(config, host, port, name_servers, assign or [], ready_file, is_member=member), log_level)


@app.command(name="run")
def run_all(
    host: Host = None,
    namesrv_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Name server port (default 9876; 0: any free one).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Broker port (default 10911; 0: any free one).")
    ] = None,
    store: Annotated[Path, typer.Option(metavar="DIR", help="Directory of all files.")] = Path("store"),
    config: ConfigFile = None,
    assign: Assignments = None,
    ready_file: ReadyFile = None,
    log_level: LogLevel = "info",
    brokers: Annotated[
        int | None, typer.Option(metavar="N", help="A cluster of N masters, each process on free ports.")
    ] = None,
    slaves: Annotated[int, typer.Option(metavar="M", help="Slaves of each master.")] = 0,
    sync: Annotated[bool, typer.Option("--sync", help="Masters answer when a slave has the message.")] = False,
    raft: Annotated[int, typer.Option(metavar="N", help="Brokers of one Raft group, which elects its leader.")] = 0,
    console: Annotated[bool, typer.Option("--console/--no-console", help="Start the web console as well.")] = True,
) -> None:
    """Run a name server and a broker in one process, on loopback: for development and tests.

    With --brokers, --slaves or --raft, run a whole cluster: a process for the name server and for each broker.
    """
    if brokers is None and not slaves and not sync and not raft:
        from kourou.cli import serve

        ports = (9876 if namesrv_port is None else namesrv_port, 10911 if port is None else port)
        run(
            lambda: serve.run_all(host, *ports, store, config, assign or [], ready_file, with_console=console),
            log_level,
        )
        return
    from kourou.cli.run_cluster import ClusterOptions, run_cluster

    if port is not None:
        raise typer.BadParameter(f"--port {port}: the brokers of a cluster have free ports; remove it")
    if raft and (brokers is not None or slaves or sync):
        raise typer.BadParameter("--raft: the group is the whole cluster; remove --brokers, --slaves and --sync")
    options = ClusterOptions(
        1 if brokers is None else brokers,
        slaves,
        sync,
        raft,
        host,
        namesrv_port,
        store,
        config,
        assign or [],
        ready_file,
        log_level,
        console,
    )
    run(lambda: run_cluster(options), log_level)


promise(app, "send", "kourou.cli.sending", "send", "Send messages.")
promise(app, "tail", "kourou.cli.tailing", "tail", "Show messages as they arrive, without joining a group.")
promise(app, "consume", "kourou.cli.consuming", "consume", "Consume messages as a member of a group.")
promise(
    app,
    "admin",
    "kourou.cli.admin",
    "app",
    "Administer brokers, topics, groups and messages, with the commands and options of mqadmin.",
)
promise(
    app,
    "console",
    "kourou.cli.console",
    "console",
    "Serve the web console: pages for brokers, topics, groups and messages.",
)
promise(
    app,
    "doctor",
    "kourou.cli.doctor",
    "doctor",
    "Check addresses, ports, advertised IPs, disk, clock and versions, and say what to change.",
)
promise(
    app,
    "top",
    "kourou.cli.top",
    "top",
    "Show brokers, groups and topics with their rates and lags, and problems first.",
)
promise(
    app, "bench", "kourou.cli.bench", "bench", "Measure the throughput, latency and CPU time per message of a broker."
)
promise(
    app, "profile", "kourou.cli.profiles", "app", "Manage profiles: clusters by name, with addresses and credentials."
)
promise(
    app,
    "store",
    "kourou.cli.store",
    "app",
    "Verify, inspect and convert the files of a store, Kourou's or Apache's.",
)
promise(
    app,
    "pipeline",
    "kourou.cli.pipelines_commands",
    "app",
    "Run Spark jobs: archive, replay, dead letters, SQL. They need the spark extra.",
)


def main() -> None:
    _occupy_standard_files()
    sys.excepthook = show_unexpected
    app()


def _occupy_standard_files() -> None:
    """Opens standard files that were closed at the start, so that no socket or store file gets their numbers."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))
