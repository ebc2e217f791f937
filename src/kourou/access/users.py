"""A user, as Apache's access control has it."""

from enum import Enum

import msgspec

from kourou.access.errors import AccessError
from kourou.protocol.bodies import UserInfo

NAME_CHARS_MAX = 255
PASSWORD_CHARS_MAX = 1_024


class UserType(Enum):
    """A super user may do everything; a normal user only the requests that its policies allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(Enum):
    """Requests of a disabled user are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A user. The password is the secret of its signatures; it is never logged."""

    name: str
    password: str
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def subject(self) -> str:
        """The key of the user's policies."""
        return subject_of(self.name)

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def info(self) -> UserInfo:
        """The user in an answer, with the password."""
        return UserInfo(
            username=self.name, password=self.password, user_type=self.type.value, user_status=self.status.value
        )

    def __repr__(self) -> str:
        return f"User(name={self.name!r}, type={self.type.value}, status={self.status.value})"


def subject_of(name: str) -> str:
    """The key of a user's policies."""
    return f"User:{name}"


def name_of(subject: str | None) -> str | None:
    """The user whom a subject names, or None if it names none."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and name and kind.lower() == "user" else None


def find_type(text: str | None) -> UserType | None:
    """The type with this name, in any case; None if there is no such type."""
    return next((one for one in UserType if one.value.lower() == (text or "").lower()), None)


def find_status(text: str | None) -> UserStatus | None:
    """The status with this name, in any case; None if there is no such status."""
    return next((one for one in UserStatus if one.value == (text or "").lower()), None)


def new_user(info: UserInfo) -> User:
    """The user that a request creates. Raises AccessError."""
    name, password = info.username or "", info.password or ""
    if not name.strip():
        raise AccessError("username can not be blank")
    if not password.strip():
        raise AccessError("password can not be blank")
    check_name(name)
    check_password(password)
    return User(
        name=name,
        password=password,
        type=find_type(info.user_type) or UserType.NORMAL,
        status=find_status(info.user_status) or UserStatus.ENABLE,
    )


def changed_user(old: User, info: UserInfo) -> User:
    """The user after an update: values that the request omits are unchanged. Raises AccessError."""
    password = info.password if (info.password or "").strip() else old.password
    assert password is not None
    check_password(password)
    return User(
        name=old.name,
        password=password,
        type=find_type(info.user_type) or old.type,
        status=find_status(info.user_status) or old.status,
    )


def check_name(name: str) -> None:
    """Raises AccessError if this can't be the name of a user."""
    if len(name) > NAME_CHARS_MAX or not name.isprintable():
        raise AccessError(
            f"The username is not valid: use at most {NAME_CHARS_MAX} characters without control characters"
        )


def check_password(password: str) -> None:
    """Raises AccessError if this can't be a password."""
    if len(password) > PASSWORD_CHARS_MAX:
        raise AccessError(f"The password is longer than {PASSWORD_CHARS_MAX} characters")
