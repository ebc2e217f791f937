"""Values of properties about access control."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kourou.access.errors import AccessError
from kourou.access.users import User, UserType, check_name, check_password

HIDDEN: Final = "******"
"""Displayed instead of a secret."""


def codes(text: str) -> frozenset[int]:
    """Request codes. Raises ValueError."""
    words = text.replace(";", ",").split(",")
    try:
        return frozenset(int(word) for word in words if word.strip())
    except ValueError:
        raise ValueError("request codes, separated by commas, are expected") from None


def show_codes(value: frozenset[int]) -> str:
    return ",".join(map(str, sorted(value)))


def user(name: str, password: str) -> Callable[[str], User | None]:
    """Parses a super user in JSON with these two keys. Errors do not repeat the text, because it has a password."""

    def read(text: str) -> User | None:
        if not text:
            return None
        expected = f'{{"{name}":"…","{password}":"…"}} is expected'
        try:
            found = msgspec.json.decode(text, type=dict[str, Any])
            value = User(name=str(found[name]), password=str(found[password]), type=UserType.SUPER)
            check_name(value.name)
            check_password(value.password)
        except (msgspec.MsgspecError, KeyError, AccessError):
            raise ValueError(expected) from None
        if not value.name.strip() or not value.password.strip():
            raise ValueError(expected)
        return value

    return read


def show_user(value: User | None) -> str:
    return "" if value is None else HIDDEN


def problem(authenticates: bool, authorizes: bool, *, uses_plain_acl: bool) -> str | None:
    """Why these settings protect less than they seem to; None if they do not."""
    if authorizes and not authenticates:
        return (
            "authorizationEnabled=true without authenticationEnabled=true: access keys would not be verified; "
            "set authenticationEnabled=true as well"
        )
    if uses_plain_acl and authenticates:
        return (
            "aclEnable=true and authenticationEnabled=true can't be combined: use one of them; "
            "migrateAuthFromV1Enabled=true converts the accounts in plain_acl.yml to users"
        )
    return None
