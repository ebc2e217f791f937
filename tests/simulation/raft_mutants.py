"""Faults that are put into the machine on purpose: the simulation has to find each of them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kourou.raft.change import Change
from kourou.raft.events import ChangeMembers, HardState
from kourou.raft.follower import Follower
from kourou.raft.leader import Leader
from kourou.raft.lease import Lease
from kourou.raft.log import Log
from kourou.raft.members import fault_of_change
from kourou.raft.node import Node
from kourou.raft.progress import Progress


def _start_without_vote(node: Node, member: str, hard: HardState, *args: Any) -> None:
    _init(node, member, HardState(hard.term, None, hard.members), *args)


_init = Node.__init__


def _commit_by_count(leader: Leader, offset: int) -> bool:
    return offset > leader._node.log.start


def _durable_in_memory(follower: Follower) -> int:
    return min(follower._same, follower._node.log.stored)


def _same_never(log: Log, offset: int, epoch: int, end: int) -> int:
    return offset


def _has_by_offset(log: Log, offset: int, epoch: int) -> bool:
    return log.start <= offset <= log.end


def _any_change(
    change: Change, event: ChangeMembers, progress: Mapping[str, Progress], *, is_committed: bool
) -> str | None:
    return fault_of_change(change._node.members, event.members, change._node.id)


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


MUTANTS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "the vote is not kept": (Node, "__init__", _start_without_vote),
    "older terms are committed by count": (Leader, "_may_commit", _commit_by_count),
    "bytes in memory count as durable": (Follower, "_durable", _durable_in_memory),
    "old requests cut the log": (Log, "same_until", _same_never),
    "logs are compared by offset alone": (Log, "has", _has_by_offset),
    "a lease never ends": (Lease, "is_valid", _always),
    "a leader alone changes the members": (Change, "_fault", _any_change),
}


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """The machine has this fault."""
    kind, method, replacement = MUTANTS[name]
    with patch.object(kind, method, replacement):
        yield
