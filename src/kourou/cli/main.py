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
) -> None:
    """Run a name server: brokers register with it, clients ask it for routes."""
    from kourou.cli import serve

    run(lambda: serve.namesrv(config, host, port, assign or [], ready_file), log_level)


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
) -> None:
    """Run a broker: it stores messages and delivers them."""
    from kourou.cli import serve

    run(lambda: serve.broker(config, host, port, name_servers, assign or [], ready_file), log_level)


@app.command(name="run")
def run_all(
    host: Host = None,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, help="Name server port (0: any free one).")] = 9876,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Broker port (0: any free one).")] = 10911,
    store: Annotated[Path, typer.Option(metavar="DIR", help="Directory of all files.")] = Path("store"),
    config: ConfigFile = None,
    assign: Assignments = None,
    ready_file: ReadyFile = None,
    log_level: LogLevel = "info",
) -> None:
    """Run a name server and a broker in one process, on loopback: for development and tests."""
    from kourou.cli import serve

    run(lambda: serve.run_all(host, namesrv_port, port, store, config, assign or [], ready_file), log_level)


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
    "doctor",
    "kourou.cli.doctor",
    "doctor",
    "Check addresses, ports, advertised IPs, disk, clock and versions, and say what to change.",
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
    "Verify and inspect the files of a store, Kourou's or Apache's, even while it is in use.",
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
