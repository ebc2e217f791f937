"""Profiles: clusters by name, so that their addresses and credentials need not be typed.

    kourou profile add prod -n 'mq1:9876;mq2:9876' --tls --access-key ops
    kourou profile use prod
    kourou admin clusterList

A command uses the first of these that is given: -n, the variable NAMESRV_ADDR, the profile that the variable
KOUROU_PROFILE names, the profile in use. With -n or NAMESRV_ADDR no profile is used, and so no credentials of it:
they belong to its cluster.

Profiles are in ~/.config/kourou/profiles.json (or below XDG_CONFIG_HOME), which only its owner may read.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kourou.cli.output import show, show_error, show_json, show_table
from kourou.cli.running import CommandError, JsonOutput

if TYPE_CHECKING:
    from kourou.client import Client

app = typer.Typer(help="Manage profiles: clusters by name, with addresses and credentials.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the profile.")]


@dataclass(frozen=True, slots=True)
class Profile:
    """A cluster and the credentials for it."""

    namesrv: str
    access_key: str | None = None
    secret_key: str | None = None
    security_token: str | None = None
    tls: bool = False
    namespace: str | None = None

    def shown(self) -> dict[str, object]:
        """The profile without its secrets."""
        return {
            "namesrv": self.namesrv,
            "accessKey": self.access_key,
            "secretKey": None if self.secret_key is None else "***",
            "tls": self.tls,
            "namespace": self.namespace,
        }


@dataclass(slots=True)
class Profiles:
    """The file."""

    by_name: dict[str, Profile]
    in_use: str | None = None

    @staticmethod
    def path() -> Path:
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        return Path(home) / "kourou" / "profiles.json"

    @classmethod
    def load(cls) -> "Profiles":
        """Reads the file; without one there are no profiles. Raises CommandError if it can't be read."""
        path = cls.path()
        try:
            document = json.loads(path.read_bytes())
            return cls({name: Profile(**one) for name, one in document["profiles"].items()}, document.get("use"))
        except FileNotFoundError:
            return cls({})
        except OSError as error:
            raise CommandError(f"{path} can't be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(f"{path} is not a valid profiles file ({error}): repair or delete it") from None

    def save(self) -> None:
        """Replaces the file atomically: a crash leaves the old file or the new one. Raises CommandError."""
        path = self.path()
        document = {"use": self.in_use, "profiles": {name: asdict(one) for name, one in self.by_name.items()}}
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w") as file:
                file.write(json.dumps(document, indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, path)
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise CommandError(f"{path} can't be written: {error.strerror or error}") from None

    def named(self, name: str) -> Profile:
        """Raises CommandError."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(sorted(self.by_name)) or "none"
            raise CommandError(f"profile {name!r} does not exist; there are: {known}")
        return found


# ── Using one ───────────────────────────────────────────────────────────────────────────────────────────────────────


def chosen_profile() -> Profile | None:
    """The profile for a command without -n and NAMESRV_ADDR. Raises CommandError if it does not exist."""
    name = os.environ.get("KOUROU_PROFILE")
    profiles = Profiles.load()
    name = name or profiles.in_use
    return None if name is None else profiles.named(name)


def name_servers_or_profile(name_servers: str | None) -> str | None:
    """The addresses of the name servers, given or from the profile. Raises CommandError."""
    if name_servers:
        return name_servers
    profile = chosen_profile()
    return None if profile is None else profile.namesrv


def is_from_profile(name_servers: str | None) -> bool:
    """Whether a command gets its cluster from a profile. Raises CommandError."""
    return not name_servers and chosen_profile() is not None


def open_client(name_servers: str | None, **options: Any) -> "Client":
    """A client of the given cluster, or of the profile's. Raises CommandError, ClientError."""
    from kourou.client import connect

    if name_servers:
        return connect(name_servers, **options)
    profile = chosen_profile()
    if profile is None:
        raise CommandError(
            "no name server is given: use -n HOST:PORT, set NAMESRV_ADDR, or add a profile (kourou profile add)"
        )
    return connect(
        profile.namesrv,
        access_key=profile.access_key,
        secret_key=profile.secret_key,
        security_token=profile.security_token,
        tls=profile.tls,
        namespace=profile.namespace,
        **options,
    )


# ── Commands ────────────────────────────────────────────────────────────────────────────────────────────────────────


@app.command()
def add(
    name: Name,
    namesrv: Annotated[
        str, typer.Option("--namesrv", "-n", metavar="HOST:PORT", help="Name servers, separated by semicolons.")
    ],
    access_key: Annotated[str | None, typer.Option(help="Access key, if the brokers need one.")] = None,
    secret_key: Annotated[
        str | None, typer.Option(envvar="KOUROU_SECRET_KEY", help="Its secret key (prompted for if not given).")
    ] = None,
    security_token: Annotated[str | None, typer.Option(help="Security token, if the brokers need one.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt connections.")] = False,
    namespace: Annotated[str | None, typer.Option(help="Namespace of topics and groups.")] = None,
    use: Annotated[bool, typer.Option("--use", help="Use this profile from now on.")] = False,
) -> None:
    """Add a profile, or replace it."""
    if access_key is None and secret_key is not None:
        raise typer.BadParameter("--secret-key needs --access-key")
    if access_key is not None and secret_key is None:
        secret_key = typer.prompt("Secret key", hide_input=True, err=True)
    _check_addresses(namesrv)
    profiles = _loaded()
    profiles.by_name[name] = Profile(namesrv, access_key, secret_key, security_token, tls, namespace)
    if use or len(profiles.by_name) == 1:
        profiles.in_use = name
    _saved(profiles)
    show(f"profile {name} is {'in use' if profiles.in_use == name else 'added'}: {namesrv}")


def _check_addresses(namesrv: str) -> None:
    from kourou.client.nameservers import parse_addresses

    addresses = parse_addresses(namesrv)
    for address in addresses or [namesrv]:
        host, _, port = address.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise typer.BadParameter(f"-n {address}: host:port is expected, with a port from 1 to 65535")


@app.command("list")
def list_profiles(as_json: JsonOutput = False) -> None:
    """List the profiles, and which one is in use."""
    profiles = _loaded()
    rows = [
        {"name": name, "inUse": name == profiles.in_use, **one.shown()}
        for name, one in sorted(profiles.by_name.items())
    ]
    if as_json:
        show_json(*rows)
    else:
        shown = [[("*" if row["inUse"] else ""), row["name"], row["namesrv"], row["accessKey"]] for row in rows]
        show_table(["", "name", "name servers", "access key"], shown)


@app.command("show")
def show_profile(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name (default: the one in use).")] = None,
    as_json: JsonOutput = False,
) -> None:
    """Show one profile, without its secrets."""
    from kourou.cli.output import show_facts

    profiles = _loaded()
    name = name or os.environ.get("KOUROU_PROFILE") or profiles.in_use
    if name is None:
        show_error("no profile is in use: give a name, or use one (kourou profile use NAME)")
        raise typer.Exit(1)
    facts = {"name": name, "inUse": name == profiles.in_use, **_named(profiles, name).shown()}
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)


@app.command()
def use(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the profile.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile from now on.")] = False,
) -> None:
    """Use a profile from now on."""
    if (name is None) != none:
        raise typer.BadParameter("give either a name or --none")
    profiles = _loaded()
    if name is not None:
        _named(profiles, name)
    profiles.in_use = name
    _saved(profiles)
    show("no profile is in use" if name is None else f"profile {name} is in use")


@app.command()
def remove(name: Name) -> None:
    """Remove a profile."""
    profiles = _loaded()
    _named(profiles, name)
    del profiles.by_name[name]
    if profiles.in_use == name:
        profiles.in_use = None
    _saved(profiles)
    show(f"profile {name} is removed")


def _loaded() -> Profiles:
    try:
        return Profiles.load()
    except CommandError as error:
        raise _failed(error) from None


def _saved(profiles: Profiles) -> None:
    try:
        profiles.save()
    except CommandError as error:
        raise _failed(error) from None


def _named(profiles: Profiles, name: str) -> Profile:
    try:
        return profiles.named(name)
    except CommandError as error:
        raise _failed(error) from None


def _failed(error: CommandError) -> typer.Exit:
    show_error(error)
    return typer.Exit(1)
