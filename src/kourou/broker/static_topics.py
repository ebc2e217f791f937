"""Static topics: queues that keep their numbers when they move from one broker to another.

The queues of a static topic are numbered across all brokers. Each broker has a mapping: which of these queues it has,
and where their messages are. A queue that has moved is a list of pieces, one per broker it was on:

    global queue 5:   piece 0, queue 1 of broker-a, from offset 0      piece 1, queue 3 of broker-b, from offset 20000

The broker with the last piece leads the queue: clients send to it and pull from it by the global number and offset.
Here requests are translated to the broker's own queue before they are served, and their answers back. A request with
`lo=false` names the broker's own queue already; it comes from another broker.

This broker does not read from other brokers. So it refuses to lead a queue that has messages elsewhere; a queue that
moves away from here to a broker of Apache's is served from both.

Java: TopicQueueMappingManager, TopicQueueMappingUtils, and what each processor rewrites for static topics.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kourou.broker.events import Refused, Request
from kourou.broker.request_bodies import too_much
from kourou.broker.serving import Serve
from kourou.broker.settings import BrokerSettings
from kourou.broker.topics import Topics, next_version
from kourou.protocol.bodies import (
    DataVersion,
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
    TopicQueueMappingSerializeWrapper,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import Command
from kourou.protocol.names import shown
from kourou.store.wall_clock import WallClock

log = logging.getLogger(__name__)

STATIC_PIECES_MAX: Final = 4_000
"""Pieces of queues that are kept, of all static topics; one without counts as one. A registration has all of them."""

STATIC_BODY_MAX: Final = 256 * 1024
"""Bytes of a mapping in a request: room for 2,000 pieces."""

_NUMBER_AS_KEY: Final = re.compile(rb"([{,])(\d+):")

Ext = dict[str, str]


_TRANSLATED: Final[Mapping[int, str | None]] = {
    RequestCode.SEND_MESSAGE: None,
    RequestCode.SEND_MESSAGE_V2: None,
    RequestCode.SEND_BATCH_MESSAGE: None,
    RequestCode.PULL_MESSAGE: "queue_offset",
    RequestCode.LITE_PULL_MESSAGE: "queue_offset",
    RequestCode.UPDATE_CONSUMER_OFFSET: "commit_offset",
    RequestCode.QUERY_CONSUMER_OFFSET: None,
    RequestCode.GET_MAX_OFFSET: None,
    RequestCode.GET_MIN_OFFSET: None,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: None,
    RequestCode.GET_EARLIEST_MSG_STORETIME: None,
}
"""Requests whose header names a topic and a queue, and the attribute with an offset in the queue, if there is one."""

_SENT: Final = ("queueOffset",)
_PULLED: Final = ("nextBeginOffset", "minOffset", "maxOffset")
_FOUND: Final = ("offset",)

_OFFSETS: Final[Mapping[int, tuple[str, ...]]] = {
    RequestCode.SEND_MESSAGE: _SENT,
    RequestCode.SEND_MESSAGE_V2: _SENT,
    RequestCode.SEND_BATCH_MESSAGE: _SENT,
    RequestCode.PULL_MESSAGE: _PULLED,
    RequestCode.LITE_PULL_MESSAGE: _PULLED,
}
"""Fields of answers with offsets of the broker's own queue; other answers have `offset`."""


class Translated(Command):
    """A request for the broker's own queue. Its answers are about the global queue."""

    global_queue: int = 0
    delta: int = 0
    """The number that is added to an offset of the broker's own queue."""

    def answer(self, code: int = 0, remark: str | None = None, ext: Ext | None = None, body: bytes = b"") -> Command:
        return super().answer(code, remark, None if ext is None else self._translated(ext), body)

    def _translated(self, ext: Ext) -> Ext:
        found = dict(ext)
        if "queueId" in found:
            found["queueId"] = str(self.global_queue)
        for name in _OFFSETS.get(self.code, _FOUND):
            if name in found:
                found[name] = str(int(found[name]) + self.delta)
        if "nextBeginOffset" in found:
            found["offsetDelta"] = str(self.delta)
        return found


def in_plain_json(body: bytes) -> bytes:
    """The mapping in a request. Raises Refused.

    Java writes the numbers of queues as keys without quotes. With quotes, the body is read much faster.
    """
    if len(body) > STATIC_BODY_MAX:
        raise too_much(f"the mapping has {len(body)} bytes", STATIC_BODY_MAX, "STATIC_BODY_MAX")
    return _NUMBER_AS_KEY.sub(rb'\1"\2":', body)


class StaticTopics:
    """The mappings of one broker."""

    def __init__(
        self,
        settings: BrokerSettings,
        topics: Topics,
        kept: TopicQueueMappingSerializeWrapper | None,
        touch: Callable[[], None],
        clock: WallClock,
    ) -> None:
        """`touch` is called after each change, so that it is kept."""
        self._settings = settings
        self._touch = touch
        self._clock = clock
        self.table = topics.static
        self.version = DataVersion()
        if kept is not None:
            self.table.update(kept.topic_queue_mapping_info_map or {})
            self.version = kept.data_version

    def wrapper(self) -> TopicQueueMappingSerializeWrapper:
        return TopicQueueMappingSerializeWrapper(topic_queue_mapping_info_map=self.table, data_version=self.version)

    def info(self, topic: str) -> TopicQueueMappingInfo | None:
        """The queues of a topic that this broker leads, as name servers are told."""
        mapping = self.table.get(topic)
        if mapping is None:
            return None
        led = {
            number: pieces[-1].queue_id
            for number, pieces in sorted(mapping.hosted_queues.items())
            if pieces and pieces[-1].bname == mapping.bname
        }
        return TopicQueueMappingInfo(
            topic=mapping.topic,
            scope=mapping.scope,
            total_queues=mapping.total_queues,
            bname=mapping.bname,
            epoch=mapping.epoch,
            curr_id_map=led,
        )

    # ── Changing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def checked(self, topic: str, wanted: TopicQueueMappingDetail, *, force: bool) -> TopicQueueMappingDetail:
        """The mapping as it will be. Raises Refused."""
        if wanted.topic != topic:
            raise _refused(f"the mapping is of topic {shown(wanted.topic or '')}, and not of {shown(topic)}")
        if wanted.bname != self._settings.name:
            raise _refused(
                f"the mapping is of broker {shown(wanted.bname or '')}, and this one is {self._settings.name}"
            )
        for number, pieces in wanted.hosted_queues.items():
            _check_pieces(pieces)
            self._check_place(topic, number, pieces)
        old = self.table.get(topic)
        hosted = dict(wanted.hosted_queues)
        if old is not None:
            hosted = self._joined(old, wanted, force=force)
        others = sum(_size(mapping) for name, mapping in self.table.items() if name != topic)
        pieces_after = others + sum(map(len, hosted.values()))
        if pieces_after > STATIC_PIECES_MAX:
            raise too_much(
                f"static topics would have {pieces_after} pieces of queues", STATIC_PIECES_MAX, "STATIC_PIECES_MAX"
            )
        return msgspec.structs.replace(wanted, hosted_queues=hosted)

    def _check_place(self, topic: str, number: int, pieces: list[LogicQueueMappingItem]) -> None:
        own = self._settings.name
        if pieces and pieces[-1].bname == own and any(piece.bname != own for piece in pieces):
            raise _refused(
                f"queue {number} of {shown(topic)} has messages on another broker, which this broker can't read: "
                "leave the queue there, or make new queues here"
            )

    def _joined(
        self, old: TopicQueueMappingDetail, new: TopicQueueMappingDetail, *, force: bool
    ) -> dict[int, list[LogicQueueMappingItem]]:
        """The queues of a mapping that takes the place of another. Queues that it does not name stay."""
        if force:
            return {**old.hosted_queues, **new.hosted_queues}
        if new.epoch < old.epoch:
            raise _refused(f"Can't accept data with small epoch {new.epoch} < {old.epoch}")
        if new.scope != old.scope:
            raise _refused(f"Can't accept data with unmatched scope {shown(new.scope)} != {shown(old.scope)}")
        for number, before in old.hosted_queues.items():
            after = new.hosted_queues.get(number)
            if after is None and new.epoch == old.epoch:
                raise _refused("Cannot accept equal epoch with null data")
            if after is not None:
                _check_history(before, after, same_epoch=new.epoch == old.epoch)
        return {**old.hosted_queues, **new.hosted_queues}

    def put(self, topic: str, mapping: TopicQueueMappingDetail, now_ms: int) -> None:
        """Keep a mapping that was checked."""
        self.table[topic] = mapping
        self._has_changed(now_ms)
        log.info("static topic set name=%s queues=%d epoch=%d", shown(topic), mapping.total_queues, mapping.epoch)

    def remove(self, topic: str, now_ms: int) -> None:
        if self.table.pop(topic, None) is not None:
            self._has_changed(now_ms)

    def _has_changed(self, now_ms: int) -> None:
        self.version = next_version(self.version, self._clock.at(now_ms))
        self._touch()

    # ── Translating ───────────────────────────────────────────────────────────────────────────────────────────────

    def over(self, table: Mapping[int, Serve]) -> dict[int, Serve]:
        """The functions of requests, with those that name queues behind a translation."""
        return {code: self._translating(serve, code) for code, serve in table.items()}

    def _translating(self, serve: Serve, code: int) -> Serve:
        if code not in _TRANSLATED:
            return serve
        known = self.table

        def translate(asked: Request[Any]) -> object:
            if known and asked.header.topic in known and (asked.command.ext or {}).get("lo") != "false":
                asked = self._own(asked, _TRANSLATED[code])
            return serve(asked)

        return translate  # type: ignore[return-value]

    def _own(self, asked: Request[Any], offset: str | None) -> Request[Any]:
        """The request about the broker's own queue; `offset` is the attribute with an offset. Raises Refused."""
        header, command = asked.header, asked.command
        mapping = self.table[header.topic]
        number = header.queue_id
        if number < 0:
            number = next((n for n, pieces in mapping.hosted_queues.items() if _leads(mapping, pieces)), number)
        pieces = mapping.hosted_queues.get(number, [])
        if not _leads(mapping, pieces):
            raise Refused(
                ResponseCode.NOT_LEADER_FOR_QUEUE,
                f"{header.topic}-{number} does not exit in request process of current broker {mapping.bname}",
            )
        piece = pieces[-1]
        delta = max(piece.logic_offset, 0) - piece.start_offset
        changes = {"queue_id": piece.queue_id}
        if offset is not None:
            changes[offset] = getattr(header, offset) - delta
        return msgspec.structs.replace(
            asked,
            command=Translated(**msgspec.structs.asdict(command), global_queue=number, delta=delta),
            header=msgspec.structs.replace(header, **changes),
        )


def _leads(mapping: TopicQueueMappingDetail, pieces: list[LogicQueueMappingItem]) -> bool:
    return bool(pieces) and pieces[-1].bname == mapping.bname


def _size(mapping: TopicQueueMappingDetail) -> int:
    return max(sum(map(len, mapping.hosted_queues.values())), 1)


def _check_pieces(pieces: list[LogicQueueMappingItem]) -> None:
    """Are the pieces of a queue in order? Raises Refused."""
    after: LogicQueueMappingItem | None = None
    for piece in reversed(pieces):
        if piece.start_offset < 0 or piece.gen < 0 or piece.queue_id < 0:
            raise _refused("The field is illegal, should not be negative")
        if piece.end_offset not in (-1,) and piece.end_offset < piece.start_offset:
            raise _refused("The endOffset is smaller than the start offset")
        if after is not None:
            if piece.logic_offset < 0:
                raise _refused("The non-latest item has negative logic offset")
            if piece.gen >= after.gen:
                raise _refused("The gen does not increase monotonically")
            last = piece.logic_offset + max(piece.end_offset - piece.start_offset, 0)
            if after.logic_offset >= 0 and last >= after.logic_offset:
                raise _refused("The base logic offset does not increase monotonically")
        after = piece


def _check_history(
    before: list[LogicQueueMappingItem], after: list[LogicQueueMappingItem], *, same_epoch: bool
) -> None:
    """May the pieces of a queue become these? Stored messages can't move. Raises Refused."""
    if not before:
        return
    if not after:
        raise _refused("The new item list is null or empty")
    known = {piece.gen: piece for piece in before}
    for piece in after:
        old = known.get(piece.gen)
        if old is None:
            continue
        same_place = (old.bname, old.queue_id, old.start_offset) == (piece.bname, piece.queue_id, piece.start_offset)
        if not same_place or old.logic_offset not in (-1, piece.logic_offset):
            raise _refused(f"generation {piece.gen} of a queue is elsewhere in the new mapping: messages can't move")
    if same_epoch and (before[-1].gen, before[-1].bname) != (after[-1].gen, after[-1].bname):
        raise _refused("The new leader is different but epoch equal")


def _refused(remark: str) -> Refused:
    return Refused(ResponseCode.SYSTEM_ERROR, remark)
