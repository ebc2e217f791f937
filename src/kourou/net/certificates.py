"""The names in a certificate.

A server that verifies the certificates of its clients may use one part of them as the name of a user
(tls.server.clientUser). If the part occurs twice it is ignored, since the user must not depend on the order of names in
a certificate.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final

USER_NAME_MAX: Final = 255
"""The most characters of the name of a user."""


class UserPart(Enum):
    """A part of a certificate that may name a user."""

    COMMON_NAME = "commonName"  # of the subject
    DNS = "dns"  # these three of the alternative names of the subject
    URI = "uri"
    EMAIL = "email"


class Certificate:
    """A verified certificate, in the form of `ssl.SSLObject.getpeercert`; empty if there is none."""

    def __init__(self, described: Mapping[str, Any] | None) -> None:
        self._described = described or {}

    def __bool__(self) -> bool:
        return bool(self._described)

    def user(self, part: UserPart | None) -> str | None:
        """The user that this part names; None if it names none or several."""
        names = {name for kind, name in self._parts() if kind is part}
        if len(names) != 1:
            return None
        (name,) = names
        return name if 0 < len(name) <= USER_NAME_MAX and name.isprintable() else None

    @property
    def names(self) -> frozenset[str]:
        """All names, of every kind."""
        return frozenset(name for _, name in self._parts())

    def _parts(self) -> Iterator[tuple[UserPart, str]]:
        for group in self._described.get("subject", ()):
            for key, value in group:
                if key == "commonName":
                    yield UserPart.COMMON_NAME, value
        kinds = {"DNS": UserPart.DNS, "URI": UserPart.URI, "email": UserPart.EMAIL}
        for kind, value in self._described.get("subjectAltName", ()):
            if kind in kinds:
                yield kinds[kind], value
