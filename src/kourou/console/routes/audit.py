"""The audit log: the changes that users made with this console."""

from typing import Final

import msgspec

from kourou.console.audit import Entry
from kourou.console.calls import Call, Way
from kourou.console.limits import AUDIT_MAX
from kourou.console.sessions import Role


class AuditPage(msgspec.Struct, frozen=True):
    """The newest first."""

    entries: list[Entry]


async def show(call: Call) -> AuditPage:
    return AuditPage(call.console.audit.newest(call.number("limit", 200, 1, AUDIT_MAX)))


WAYS: Final = (Way("GET", "/api/audit", show, Role.OPERATE),)
