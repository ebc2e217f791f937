"""Files of access control: the key that seals the users, and plain_acl.yml."""

import logging
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from kourou.access.directory import Saved
from kourou.access.errors import AccessFileError
from kourou.access.plain_acl import PlainAcl, parse
from kourou.access.sealing import is_clear, parse_key, seal, unseal
from kourou.broker import access_values
from kourou.broker.properties import Configuration
from kourou.controller.access import AccessSettings as ControllerAccess
from kourou.nameserver.access import AccessSettings
from kourou.nameserver.settings import Settings as NameServerSettings
from kourou.protocol import fastjson
from kourou.protocol.errors import BodyError
from kourou.server.conf import ConfError
from kourou.server.files import write_safely

KEY_VARIABLE = "KOUROU_USERS_KEY"
log = logging.getLogger(__name__)

PLAIN_ACL = "plain_acl.yml"
USERS_FILE = "access.json"

SHARED = (
    "authenticationEnabled",
    "authorizationEnabled",
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
    "aclEnable",
    "migrateAuthFromV1Enabled",
    "usersKeyFile",
)
"""Properties of a broker that also apply to the name server of the same `kourou run`."""

FILES_MAX = 1_000
FILES_SIZE_MAX = 1024 * 1024
"""The most bytes of all files with accounts together, or of the file with a key."""


def users_key(path: str) -> bytes | None:
    """The key that seals the file of users; None if none is given. Raises ConfError."""
    try:
        if path:
            return parse_key(read_text(Path(path)), path)
        text = os.environ.get(KEY_VARIABLE)
        return None if not text else parse_key(text, f"the environment variable {KEY_VARIABLE}")
    except AccessFileError as error:
        raise ConfError(str(error)) from None


def with_accounts(configuration: Configuration) -> Configuration:
    """The configuration with the accounts of plain_acl.yml, if its properties require them. Raises ConfError."""
    process = configuration.process
    if not process.plain_acl and not process.migrate_plain_acl:
        return configuration
    if not process.plain_acl_file:
        raise ConfError("aclEnable and migrateAuthFromV1Enabled need a file with accounts: set plainAclFile")
    acl = read_plain_acl(Path(process.plain_acl_file))
    broker = replace(
        configuration.broker,
        plain_acl=acl if process.plain_acl else None,
        migrated=acl if process.migrate_plain_acl else None,
    )
    return replace(configuration, broker=broker)


def may_share_access(configuration: Configuration) -> bool:
    """Can a name server have the access control of this broker? A warning is logged if it should but can't."""
    broker, process = configuration.broker, configuration.process
    if not broker.authenticates and not process.plain_acl:
        return False
    if broker.inner_user is None:
        log.warning(
            "THE NAME SERVER HAS NO ACCESS CONTROL, because brokers can't sign their registrations: set "
            "innerClientAuthenticationCredentials. See docs/access-control.md"
        )
        return False
    return True


def with_access_of(settings: NameServerSettings, configuration: Configuration) -> NameServerSettings:
    """Settings of a name server with the users of the broker in its process, if the broker can sign its requests."""
    process = configuration.process
    if not may_share_access(configuration):
        return settings
    given = {key: configuration.given[key] for key in SHARED if key in configuration.given}
    return settings.with_properties({**given, "plainAclFile": process.plain_acl_file})


def name_server_access(settings: NameServerSettings) -> AccessSettings:
    """The access control of a name server, with the accounts and users from files. Raises ConfError."""
    wanted = {
        "authenticationWhitelist": (access_values.codes, settings.authentication_whitelist),
        "authorizationWhitelist": (access_values.codes, settings.authorization_whitelist),
        "initAuthenticationUser": (access_values.user("username", "password"), settings.init_authentication_user),
        "innerClientAuthenticationCredentials": (
            access_values.user("accessKey", "secretKey"),
            settings.inner_client_authentication_credentials,
        ),
    }
    values: list[Any] = []
    for name, (read, text) in wanted.items():
        try:
            values.append(read(text))
        except ValueError as error:
            raise ConfError(f"{name}: {error}") from None
    authenticates, uses_accounts = settings.authentication_enabled, settings.acl_enable
    problem = access_values.problem(authenticates, settings.authorization_enabled, uses_plain_acl=uses_accounts)
    if problem is not None:
        raise ConfError(problem)
    migrates = settings.migrate_auth_from_v1_enabled and authenticates
    accounts = read_plain_acl(Path(settings.plain_acl_file)) if uses_accounts or migrates else None
    unsigned, unruled, first, inner = values
    key = users_key(settings.users_key_file) if authenticates else None
    return AccessSettings(
        authenticates=authenticates,
        authorizes=settings.authorization_enabled,
        unsigned_codes=unsigned,
        unruled_codes=unruled,
        first_user=first,
        inner_user=inner,
        accounts=accounts if uses_accounts else None,
        migrated=accounts if migrates else None,
        key=key,
        saved=_read_users(name_server_users(settings), key) if authenticates else None,
    )


def controller_access(properties: Mapping[str, str]) -> ControllerAccess:
    """The access control of a controller. Raises ConfError."""
    switches = {
        name: properties.get(name, "false").strip().lower()
        for name in ("authenticationEnabled", "authorizationEnabled")
    }
    for name, text in switches.items():
        if text not in ("true", "false"):
            raise ConfError(f"{name}={text}: true or false is expected")
    authenticates, authorizes = (text == "true" for text in switches.values())
    problem = access_values.problem(authenticates, authorizes, uses_plain_acl=False)
    if problem is not None:
        raise ConfError(problem)
    users = []
    for name, read in (
        ("initAuthenticationUser", access_values.user("username", "password")),
        ("innerClientAuthenticationCredentials", access_values.user("accessKey", "secretKey")),
    ):
        try:
            users.append(read(properties.get(name, "").strip()))
        except ValueError as error:
            raise ConfError(f"{name}: {error}") from None
    if authenticates and users == [None, None]:
        raise ConfError(
            "authenticationEnabled=true needs innerClientAuthenticationCredentials, by which brokers sign, or "
            "initAuthenticationUser: a controller has no other users"
        )
    return ControllerAccess(authenticates, *users)


def name_server_users(settings: NameServerSettings) -> Path:
    """The file of a name server's users: beside its KV settings."""
    return Path(settings.kv_config_path).with_name(USERS_FILE)


def _read_users(path: Path, key: bytes | None) -> Saved | None:
    try:
        if key is not None:
            _seal_clear_files(path, key)
        return fastjson.decode(unseal(path.read_bytes(), key, str(path)), Saved, trusted=True)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfError(f"{path} can't be read: {error.strerror}") from None
    except BodyError as error:
        raise ConfError(f"{path} can't be read: {error}; restore it from {path.name}.bak, or from a backup") from None
    except AccessFileError as error:
        raise ConfError(str(error)) from None


def _seal_clear_files(path: Path, key: bytes) -> None:
    """Seal the file and its backup if they were written before there was a key. Raises OSError."""
    for one in (path.with_name(path.name + ".bak"), path):
        if one.exists() and is_clear(data := one.read_bytes()):
            write_safely(one, seal(data, key), backup=False)


def read_plain_acl(path: Path) -> PlainAcl:
    """The accounts in plain_acl.yml and in the files of the folder `acl` beside it. Raises ConfError."""
    found = account_files(path)
    if not found:
        raise ConfError(f"{path} does not exist: write the accounts there, or set plainAclFile to another file")
    try:
        return parse(_texts(found))
    except AccessFileError as error:
        raise ConfError(str(error)) from None


def account_files(path: Path) -> list[Path]:
    """plain_acl.yml and the files of the folder `acl` beside it, as far as they exist. Raises ConfError."""
    others = (one for one in (path.parent / "acl").glob("**/*") if one.suffix in (".yml", ".yaml"))
    found = [one for one in (path, *sorted(islice(others, FILES_MAX))) if one.exists()]
    if len(found) > FILES_MAX:
        raise ConfError(f"{path.parent / 'acl'} has too many files; the limit is {FILES_MAX}: merge some of them")
    return found


def _texts(paths: Sequence[Path]) -> list[tuple[str, str]]:
    texts, room = [], FILES_SIZE_MAX
    for path in paths:
        if not stat.S_ISREG(_stat(path).st_mode):
            raise ConfError(f"{path} is not a regular file: use a regular file for the accounts")
        text = read_text(path, room)
        room -= len(text.encode())
        texts.append((str(path), text))
    return texts


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise ConfError(f"{path} can't be read: {error.strerror}") from None


def read_text(path: Path, room: int = FILES_SIZE_MAX) -> str:
    """The text of a file with at most `room` bytes. Raises ConfError."""
    try:
        with path.open("rb") as file:
            data = file.read(room + 1)
    except OSError as error:
        raise ConfError(f"{path} can't be read: {error.strerror}") from None
    if len(data) > room:
        raise ConfError(
            f"{path}: files of accounts or a key may have at most {FILES_SIZE_MAX} bytes; remove unused entries"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise ConfError(f"{path} is not UTF-8 text: convert it to UTF-8") from None
