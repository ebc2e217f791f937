"""All users and policies of a broker, and the changes that administrators make.

Refusals have the texts of Apache's broker. Every change increments `generation`, so that prepared decisions are
prepared again.
"""

from collections.abc import Iterator

from kourou.access.decisions import Grants
from kourou.access.errors import AccessError
from kourou.access.policies import (
    SOURCES_OF_USER_MAX,
    Acl,
    check_size,
    find_policy_type,
    new_acl,
    parse_resource,
)
from kourou.access.users import User, changed_user, name_of, new_user, subject_of
from kourou.protocol.bodies import AclInfo, UserInfo
from kourou.protocol.bodies.base import Body, always

USERS_MAX = 10_000


ENTRIES_MAX = 100_000
"""The most entries of all policies of all users."""


class Saved(Body):
    """The content of the users' file: users by name, policies by subject."""

    users: dict[str, UserInfo] = always(dict)
    acls: dict[str, AclInfo] = always(dict)


class Directory:
    """Users and their policies."""

    def __init__(self, users_max: int = USERS_MAX, entries_max: int = ENTRIES_MAX) -> None:
        """The limits apply only to changes: a file that exceeds them is still read."""
        self._users_max = users_max
        self._entries_max = entries_max
        self._users: dict[str, User] = {}
        self._acls: dict[str, Acl] = {}
        self._grants: dict[str, Grants] = {}  # by user name, made when they are needed
        self._entries = 0  # of all policies
        self._user_infos: dict[
            str, UserInfo
        ] = {}  # what `save` returns: made at each change, since all would take long
        self._acl_infos: dict[str, AclInfo] = {}
        self.generation = 0

    # ── Queries ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def users(self, part: str = "") -> list[User]:
        """Users whose names contain this text, in the order of their names."""
        return [self._users[name] for name in sorted(self._users) if part in name]

    def acl(self, subject: str) -> Acl | None:
        """The policies of a user. Raises AccessError if there is no such user."""
        return self._acls.get(self._find_subject(subject, "The subject is not exist."))

    def acls(self, subject_part: str = "", resource_part: str = "") -> Iterator[Acl | None]:
        """Policies of the subjects that contain a text, with the entries whose resources contain the other text.

        None for each subject that has none, so that a long search can be interrupted.
        """
        for subject in sorted(self._acls):
            acl = self._acls.get(subject)
            if acl is None or subject_part not in subject:
                yield None
                continue
            if resource_part and resource_part not in subject:
                acl = acl.about(resource_part)
            yield acl if acl.policies else None

    def grants(self, name: str) -> Grants | None:
        """The prepared policies of a user; None if there are none."""
        found = self._grants.get(name)
        if found is None:
            acl = self._acls.get(subject_of(name))
            if acl is not None:
                found = self._grants[name] = Grants(acl)
        return found

    # ── Changes ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def create_user(self, info: UserInfo) -> None:
        """Raises AccessError."""
        user = new_user(info)
        if user.name in self._users:
            raise AccessError("The user is existed")
        if len(self._users) >= self._users_max:
            raise AccessError(f"There are {len(self._users)} users, the limit: delete some")
        self._put(user)

    def update_user(self, info: UserInfo) -> None:
        """Raises AccessError."""
        name = info.username or ""
        if not name.strip():
            raise AccessError("username can not be blank")
        old = self._users.get(name)
        if old is None:
            raise AccessError("The user is not exist")
        self._put(changed_user(old, info))

    def delete_user(self, name: str) -> bool:
        """Removes a user and its policies. Returns whether the user existed."""
        found = self._users.pop(name, None)
        self._user_infos.pop(name, None)
        self._put_acl(subject_of(name), Acl("", {}))
        self.generation += 1
        return found is not None

    def put_acl(self, subject: str, info: AclInfo) -> None:
        """Adds entries to the policies of a user, or replaces those of the same resources. Raises AccessError."""
        subject = self._find_subject(subject, f"The subject of {subject} is not exist.")
        check_size(info)
        acl = new_acl(subject, info)
        old = self._acls.get(subject)
        merged = acl if old is None else old.merged(acl)
        if merged.source_count > SOURCES_OF_USER_MAX:
            raise AccessError(
                f"The policies of {subject} have more than {SOURCES_OF_USER_MAX} source addresses: use CIDR blocks"
            )
        count = self._entries + merged.size - (0 if old is None else old.size)
        if count > self._entries_max:
            raise AccessError(
                f"All policies have more than {self._entries_max} entries: use prefixes such as Topic:orders-*"
            )
        self._put_acl(subject, merged)
        self.generation += 1

    def delete_acl(self, subject: str, policy_type: str | None, resource: str | None) -> None:
        """Removes all policies of a user, or the entry of a resource. Raises AccessError."""
        subject = self._find_subject(subject, "The subject is not exist.")
        old = self._acls.get(subject)
        if old is None:
            raise AccessError("The acl is not exist.")
        if resource is not None and resource.strip():
            found = parse_resource(resource)
            if found is None:
                raise AccessError(f"The resource {resource[:80]!r} is not valid: use a form such as Topic:orders")
            left = old.without(find_policy_type(policy_type), found)
        else:
            left = Acl(subject, {})
        self._put_acl(subject, left)
        self.generation += 1

    # ── The file ────────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self) -> Saved:
        """The content of the file. Its entries are the same objects as before, unless they have changed."""
        return Saved(users=dict(self._user_infos), acls=dict(self._acl_infos))

    @classmethod
    def load(cls, saved: Saved) -> "Directory":
        """The directory from the content of the file. Raises AccessError if it is not valid."""
        found = cls()
        found.restore(saved)
        return found

    def restore(self, saved: Saved) -> None:
        """Replace everything with the content of the file. Raises AccessError if it is not valid."""
        for name in list(self._users):
            self.delete_user(name)
        for user in saved.users.values():
            self._put(new_user(user))
        for subject, acl in saved.acls.items():
            subject = self._find_subject(subject, f"The subject of {subject} is not exist.")
            self._put_acl(subject, new_acl(subject, acl))
        self.generation += 1

    def _put(self, user: User) -> None:
        self._users[user.name] = user
        self._user_infos[user.name] = user.info
        self.generation += 1

    def _put_acl(self, subject: str, acl: Acl) -> None:
        """Replaces the policies of a user; an empty value removes them."""
        old = self._acls.pop(subject, None)
        self._acl_infos.pop(subject, None)
        self._entries += acl.size - (0 if old is None else old.size)
        if acl.policies:
            self._acls[subject] = acl
            self._acl_infos[subject] = acl.info
        self._grants.pop(name_of(subject) or "", None)

    def _find_subject(self, subject: str, remark: str) -> str:
        """The key of a user's policies. Raises AccessError, with this remark if there is no such user."""
        name = name_of(subject)
        if name is None:
            raise AccessError("The subject is null.")
        if name not in self._users:
            raise AccessError(remark)
        return subject_of(name)
