"""The file of users: a line for each, `name:role:scrypt$N$r$p$salt$hash`. It has no passwords."""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

from kourou.console.limits import PASSWORD_SIZE_MAX
from kourou.console.sessions import Role, role_named

COST: Final = 2**15
BLOCK: Final = 8
PARALLEL: Final = 1
MEMORY_MAX: Final = 256 * 1024 * 1024
COST_MAX: Final = 2**17
FILE_SIZE_MAX: Final = 1024 * 1024
PASSWORD_LENGTH_MIN: Final = 8


class UsersError(ValueError):
    """The file can't be used."""


class User(msgspec.Struct, frozen=True):
    """One line."""

    name: str
    role: Role
    secret: str


class Users:
    """All users of the file."""

    def __init__(self, users: dict[str, User]) -> None:
        self._users = users

    def __len__(self) -> int:
        return len(self._users)

    @classmethod
    def load(cls, path: Path) -> "Users":
        """Raises UsersError."""
        try:
            if path.stat().st_size > FILE_SIZE_MAX:
                raise UsersError(f"{path} is larger than {FILE_SIZE_MAX} bytes")
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsersError(f"{path} can't be read: {error}") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, source: str = "users") -> "Users":
        """Raises UsersError."""
        found: dict[str, User] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            parts = line.strip().split(":")
            try:
                name, role, secret = parts
                _parts(secret)
                found[name] = User(name, role_named(role), secret)
            except ValueError as error:
                wanted = "name:role:scrypt$... is expected, as `kourou console --add-user` writes it"
                raise UsersError(f"{source}, line {number}: {wanted} ({error})") from None
        return cls(found)

    def check(self, name: str, password: str) -> User | None:
        """The user, if the password is right. Takes the same time for a user that does not exist."""
        user = self._users.get(name)
        secret = user.secret if user is not None else NO_USER
        return user if matches(password, secret) and user is not None else None


def hashed(password: str) -> str:
    """The hash of a password for the file. Raises UsersError if the password is too short or too long."""
    if len(password) < PASSWORD_LENGTH_MIN:
        raise UsersError(f"a password needs at least {PASSWORD_LENGTH_MIN} characters")
    if len(password.encode()) > PASSWORD_SIZE_MAX:
        raise UsersError(f"a password has at most {PASSWORD_SIZE_MAX} bytes")
    salt = secrets.token_bytes(16)
    return _text(COST, BLOCK, PARALLEL, salt, _scrypt(password, COST, BLOCK, PARALLEL, salt))


def matches(password: str, secret: str) -> bool:
    """Whether `secret` was made of this password."""
    if len(password.encode("utf-8", "replace")) > PASSWORD_SIZE_MAX:
        return False
    cost, block, parallel, salt, expected = _parts(secret)
    return hmac.compare_digest(_scrypt(password, cost, block, parallel, salt), expected)


def _scrypt(password: str, cost: int, block: int, parallel: int, salt: bytes) -> bytes:
    raw = password.encode("utf-8", "replace")
    return hashlib.scrypt(raw, salt=salt, n=cost, r=block, p=parallel, maxmem=MEMORY_MAX, dklen=32)


def _parts(secret: str) -> tuple[int, int, int, bytes, bytes]:
    kind, cost, block, parallel, salt, digest = secret.split("$")
    if kind != "scrypt" or not (1 < int(cost) <= COST_MAX and 1 <= int(block) <= 16 and 1 <= int(parallel) <= 4):
        raise ValueError("not a scrypt hash within bounds")
    try:
        return int(cost), int(block), int(parallel), base64.b64decode(salt), base64.b64decode(digest)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _text(cost: int, block: int, parallel: int, salt: bytes, digest: bytes) -> str:
    words = (base64.b64encode(raw).decode() for raw in (salt, digest))
    return "$".join(("scrypt", str(cost), str(block), str(parallel), *words))


NO_USER: Final = _text(COST, BLOCK, PARALLEL, bytes(16), bytes(32))
"""The hash to compare with if the user does not exist."""


def add_user(path: Path, name: str, role: Role, password: str) -> None:
    """Adds a user to the file, or replaces it. Only its owner may read the file. Raises UsersError, OSError."""
    if not name or ":" in name or not name.isprintable():
        raise UsersError(f"{name!r} can't be the name of a user")
    lines = path.read_text().splitlines() if path.exists() else []
    Users.parse("\n".join(lines), str(path))
    kept = [line for line in lines if line.split(":")[0] != name]
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w") as file:
        file.write("\n".join([*kept, f"{name}:{role.label}:{hashed(password)}"]) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
