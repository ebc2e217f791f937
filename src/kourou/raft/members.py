"""The members of a group, and how they change while the group is in operation.

The list of members is not part of the log, so that the log stays a plain commit log. It has a version and the term of
the leader that made it; the newer list (by term, then by version) replaces the older one everywhere, and each member
keeps its newest list on disk together with its vote. These rules make this as reliable as members in the log:

1  A leader makes a new version only if a majority of the current voters has the current version in the leader's term,
   and if a majority of them has all committed bytes, of which at least one is of the leader's own term.
2  A new version has at most one voter more or less, so that any two majorities have a member in common.
3  A new leader gives its list its own term.
4  A member votes only for candidates whose list is as new as its own, and sends its list to those with an older one; a
   candidate counts the voters of its own list.

So a leader with an old list can't be elected once a newer version was in use, and every newer majority has what an
older majority has committed. The protocol is that of MongoDB's replica sets (Schultz, Dardik, Tripakis:
Design and Analysis of a Logless Dynamic Reconfiguration Protocol, 2021). Members as records of the log were rejected:
followers would have to read records that they only copy, and return to older members whenever their log is cut.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

MEMBERS_MAX: Final = 15
"""Voters and learners of one group."""

MemberId = Annotated[str, Meta(min_length=1, max_length=64)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One broker of the group."""

    id: MemberId
    voter: bool = True
    """A learner (False) receives the log, but does not vote and is not counted in majorities."""
    address: Annotated[str, Meta(max_length=300)] = ""


class Members(msgspec.Struct, frozen=True, array_like=True):
    """All members, at one version."""

    all: Annotated[tuple[Member, ...], Meta(max_length=MEMBERS_MAX)] = ()
    version: Count = 0
    term: Count = 0

    @property
    def age(self) -> tuple[int, int]:
        """Larger: newer."""
        return self.term, self.version

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(member.id for member in self.all)

    @property
    def voters(self) -> frozenset[str]:
        return frozenset(member.id for member in self.all if member.voter)

    def of_term(self, term: int) -> "Members":
        """The same members, with this term."""
        return msgspec.structs.replace(self, term=term)

    def changed(self, members: tuple[Member, ...]) -> "Members":
        """The next version."""
        return msgspec.structs.replace(self, all=members, version=self.version + 1)


def fault_of_change(present: Members, wanted: tuple[Member, ...], leader: str) -> str | None:
    """Why the current members can't be replaced by these; None if they can."""
    ids = [member.id for member in wanted]
    voters = {member.id for member in wanted if member.voter}
    moved = sorted(present.voters ^ voters)
    if len(ids) != len(set(ids)):
        return "a member is named twice"
    if len(ids) > MEMBERS_MAX:
        return f"a group has at most {MEMBERS_MAX} members"
    if len(moved) > 1:
        return f"only one voter can be added or removed at a time, not {', '.join(moved)} together"
    if leader not in voters:
        return f"{leader} leads the group: transfer the leadership before removing it"
    return None
