"""A shortcut for route queries, which are almost all requests of a name server.

Clients ask for the same few routes again and again, in frames that differ only in their number (`opaque`). So a frame
without its number is remembered together with the topic that it asks for, and a known frame need neither be decoded nor
pass through the machine:

    frame ─▶ cut the number out ─▶ known? ─▶ the route as it was last encoded ─▶ answer with the number put in
                                     └─ no: the general path, and it is remembered

Under access control the signature is part of the remembered bytes. An allowed frame is remembered together with its
sender's host and certificate, until users or policies change.

The routes themselves belong to the machine: a route that has changed is removed, and its next query takes the general
path. The answers are the same to the byte; tests/unit/server/test_route_lane.py compares them.
"""

import struct

from kourou.nameserver.events import Asked
from kourou.nameserver.machine import NameServer
from kourou.nameserver.queries import usual_route
from kourou.net.connection import Connection
from kourou.net.handlers import Handler
from kourou.protocol import command as _command
from kourou.protocol.codes import CommandFlag
from kourou.protocol.command import Command
from kourou.protocol.errors import FrameError

KNOWN_MAX = 20_000
"""How many frames are remembered, of some 300 bytes each."""

FRAME_SIZE_MAX = 512

_NUMBER = b'"opaque":'
_SIZES = struct.Struct(">iI")
_RESPONSE = int(CommandFlag.RESPONSE)
_BEFORE, _AFTER = _command.encode_json(Command(0, 0, _RESPONSE)).split(_NUMBER + b"0")
_BEFORE += _NUMBER
_HEAD_SIZE = len(_BEFORE) + len(_AFTER)


class RouteLane:
    """Serves route queries at the head of a read."""

    def __init__(self, machine: NameServer, handler: Handler) -> None:
        self._machine = machine
        self._handler = handler
        # By a frame's header without its number (under access control preceded by its sender): topic, standard JSON?
        self._known: dict[bytes, tuple[str, bool]] = {}
        self._epoch = 0  # of access control

    def read(self, connection: Connection, data: bytes) -> None:
        """Serve the queries at the head of a read; the handler gets the other requests."""
        used = self._serve(connection, data)
        if used < len(data):
            commands = connection.decode(data[used:])
            if commands:
                self._handler.requests(connection, commands)

    def _serve(self, connection: Connection, data: bytes) -> int:
        machine = self._machine
        if machine.holds(connection) or machine.settings.need_wait_for_service:
            return 0
        kept = machine.routes.kept_route
        host = b""
        if machine.access.is_on:
            host = f"{connection.peer.rpartition(':')[0]} {connection.intake.user or ''} ".encode()
            if self._epoch != machine.access.epoch:
                self._known.clear()
                self._epoch = machine.access.epoch
        answers: list[bytes] = []
        at, end = 0, len(data)
        while end - at > 8:
            size = int.from_bytes(data[at : at + 4])
            stop = at + 4 + size
            if size > FRAME_SIZE_MAX or stop > end:
                break
            header = data[at + 8 : stop]
            before, number, after = header.partition(_NUMBER)
            if not number:
                break
            opaque = after[: after.find(b",")]
            asked = self._known.get(host + before + after[len(opaque) :])
            if asked is None:
                self._learn(connection, data, at, stop, host + before, opaque, after)
                break
            body = kept(asked[0], standard=asked[1])
            if body is None or data[at + 4 : at + 8] != (size - 4).to_bytes(4) or not is_number(opaque):
                break
            head_size = _HEAD_SIZE + len(opaque)
            answers += (_SIZES.pack(4 + head_size + len(body), head_size), _BEFORE, opaque, _AFTER, body)
            at = stop
        if answers:
            connection.reply_frames(b"".join(answers), 0)
        return at

    def _learn(
        self, connection: Connection, data: bytes, at: int, stop: int, before: bytes, opaque: bytes, after: bytes
    ) -> None:
        """Remember the topic of a frame if it is an ordinary route query."""
        if data[at + 4] != _command.JSON_TYPE or not is_number(opaque) or _NUMBER in after:
            return
        try:
            command = _command.decode(data, at + 4, stop)
        except FrameError:
            return
        asked = usual_route(command)
        if asked is None or command.body or str(command.opaque).encode() != opaque:
            return
        if self._machine.access.is_on:
            sent = Asked(connection, command, connection.peer, connection.intake.user)
            if not self._machine.access.allows(sent):
                return
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[before + after[len(opaque) :]] = asked


def is_number(text: bytes) -> bool:
    """Is it an integer in Java's notation and range?"""
    return 0 < len(text) <= 10 and text.isdigit() and (text[0] != 48 or len(text) == 1) and int(text) < 2**31
