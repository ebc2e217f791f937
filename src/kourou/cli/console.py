"""`kourou console`: pages for the brokers of a cluster, Kourou's or Apache's."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kourou.cli.output import show
from kourou.cli.profiles import chosen_profile
from kourou.cli.running import CommandError, LogLevel, NameServers, run

if TYPE_CHECKING:
    from kourou.cli.console_child import Given
    from kourou.console.exporting import Collector
    from kourou.console.state import Access
    from kourou.net.tls import TlsSettings

PACKAGES = "Starlette and uvicorn"
GIVEN_SIZE_MAX = 65_536


def console(
    name_servers: NameServers = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port (0: any free one).")] = 8082,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Addresses other than loopback need users and TLS.")
    ] = "127.0.0.1",
    users: Annotated[Path | None, typer.Option(metavar="FILE", help="Users with passwords and roles.")] = None,
    accounts: Annotated[
        bool, typer.Option("--accounts", help="Users sign in with their RocketMQ keys, which sign their requests.")
    ] = False,
    add_user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:ROLE",
            help="Add a user to the file, ask for the password, and exit. Roles: see, bodies, operate, administer.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing, whatever the role.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Certificate, as PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, as PEM.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy in front of the console has TLS.")
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(metavar="NAME[:PORT]", help="Another name of the console; can be repeated.")
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send metrics of the brokers to this OpenTelemetry collector."),
    ] = None,
    trace_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Link messages to their traces there: https://HOST/trace/{trace_id}."),
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    log_level: LogLevel = "warning",
    listening: Annotated[int | None, typer.Option("--listening", hidden=True, help="A socket of the parent.")] = None,
) -> None:
    """Serve the web console: pages for brokers, topics, groups and messages."""
    try:
        from kourou.console.serving import Options, ServeError, serve
    except ImportError as error:
        raise typer.BadParameter(f"the console needs {PACKAGES}: pip install starlette uvicorn ({error})") from None
    if add_user is not None:
        _add_user(users, add_user)
        return
    is_child = listening is not None
    collector = None if otlp is None else _collector(otlp)

    def ready(link: str) -> None:
        if not is_child:
            show(f"kourou console is ready: {link}")
            if open_browser:
                import webbrowser

                webbrowser.open(link)

    def next_link(link: str) -> None:
        show(f"kourou console: the link was used; for another browser: {link}")

    async def work() -> None:
        given = _given() if is_child else None
        options = Options(
            access=_access(name_servers, None if given is None else given.tls),
            host=host,
            port=port,
            users=users,
            accounts=accounts,
            read_only=read_only,
            certificate=tls_cert,
            key=tls_key,
            is_behind_proxy=behind_proxy,
            collector=collector,
            trace_url=trace_url,
            allowed_hosts=[name.lower() for name in allow_host or ()],
            descriptor=listening,
            token=None if given is None else given.token,
            is_child=is_child,
        )
        try:
            await serve(options, ready, next_link)
        except ServeError as error:
            raise CommandError(str(error)) from None

    run(work, log_level)


def _collector(url: str) -> "Collector":
    from kourou.console.exporting import collector_given

    try:
        return collector_given(url)
    except ValueError as error:
        raise typer.BadParameter(f"--otlp: {error}") from None


def _given() -> "Given":
    """The line that `kourou run` writes; its end of the pipe stays open."""
    import msgspec

    from kourou.cli.console_child import Given

    line = b""
    while not line.endswith(b"\n") and len(line) < GIVEN_SIZE_MAX and (data := os.read(0, GIVEN_SIZE_MAX)):
        line += data
    try:
        return msgspec.json.decode(line, type=Given)
    except msgspec.MsgspecError as error:
        raise CommandError(f"--listening is for kourou run, which writes a line of JSON first: {error}") from None


def _access(name_servers: str | None, given_tls: "TlsSettings | None" = None) -> "Access":
    from kourou.client import Credentials, TlsMode, TlsSettings
    from kourou.client.nameservers import parse_addresses
    from kourou.console.state import Access

    if name_servers:
        return Access(tuple(parse_addresses(name_servers)), tls=given_tls)
    profile = chosen_profile()
    if profile is None:
        raise CommandError(
            "no name server is given: use -n HOST:PORT, set NAMESRV_ADDR, or add a profile (kourou profile add)"
        )
    account = None
    if profile.access_key is not None and profile.secret_key is not None:
        account = Credentials(profile.access_key, profile.secret_key, profile.security_token)
    tls = TlsSettings(TlsMode.ENFORCING) if profile.tls else None
    return Access(tuple(parse_addresses(profile.namesrv)), account, tls, profile.namespace)


def _add_user(users: Path | None, words: str) -> None:
    from kourou.console.sessions import role_named
    from kourou.console.users import UsersError, add_user

    name, _, role = words.rpartition(":")
    if users is None:
        raise typer.BadParameter("--add-user needs --users FILE")
    try:
        wanted = role_named(role)
        password = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        add_user(users, name, wanted, password)
    except (UsersError, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    except OSError as error:
        raise typer.BadParameter(f"{users} can't be written: {error.strerror or error}") from None
    show(f"user {name} has the role {wanted.label}")
