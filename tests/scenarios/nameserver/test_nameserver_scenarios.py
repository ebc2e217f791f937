"""Plays the scenarios beside this file: conversations with a name server, and its effects.

A scenario is a text. Lines at the margin are what happens; the indented lines below them are the machine's effects,
all of them, to the byte. The reader learns the protocol from them, and the test compares every line.

    settings supportActingMaster=true                   before anything else: what differs from the defaults
    let a = clusterName=C brokerName=a                  from now on `$a` stands for these words

    client: GET_ROUTEINFO_BY_TOPIC topic=orders v401    a request on the connection `client`, of a peer's version
    | {"some":"body"}                                   its body, if it has one
      client <- SUCCESS                                 the answer, with header fields and remark if it has them
      | {"queueDatas":[]}                               and its body

    @ 120s                                              time passes, and the machine is told so
    client closed                                       a connection is lost
    kv_config saved                                     the save under way came to its end: well,
    settings not saved: the disk is full                or not

A body of the form `topics 3: orders 4/4 rw, bills 8/8 r unit sub` stands for a registration of these topics (read and
write queues, permissions, unit flags) in data version 3 (`topics 2.3:` with state version 2). Words that are no header
field say how a request is sent: `v401` the version, `one-way`, `binary` header, `compressed` body, `checked` with CRC.
Of settings that are saved, the defaults are not shown.

Set KOUROU_REWRITE_SCENARIOS=1 to write the effects into the files anew; then read what changed.
"""

import json
import os
import re
import shlex
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kourou.nameserver.events import (
    Asked,
    Close,
    Effect,
    Event,
    Gone,
    Kept,
    NotSaved,
    Reply,
    Save,
    Saved,
    Tell,
    Tick,
    Turn,
)
from kourou.nameserver.machine import NameServer
from kourou.nameserver.settings import Settings, other_properties
from kourou.protocol.codes import CommandFlag, RequestCode, ResponseCode, Version
from kourou.protocol.command import Command

HERE = Path(__file__).parent
REWRITE = os.environ.get("KOUROU_REWRITE_SCENARIOS") == "1"


DEFAULTS = {f"  | {key}={value}".rstrip() for key, value in Settings().to_properties().items()}


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    written = path.read_text().splitlines()
    played = list(Scenario().play(written))
    if REWRITE:
        path.write_text("".join(f"{line}\n" for line in played))
    assert played == written


@dataclass
class Step:
    """A line at the margin, and the body under it."""

    line: str
    body: list[str] = field(default_factory=list)


class Scenario:
    """One name server, and the words that a text has defined."""

    def __init__(self) -> None:
        self._machine = NameServer(Settings(), {}, 0)
        self._now_ms = 0
        self._words: dict[str, str] = {}
        self._saving: dict[Kept, int] = {}  # document -> the version that is being written

    def play(self, lines: list[str]) -> Iterator[str]:
        """The same text, with the effects that really follow."""
        for step in _steps(lines):
            yield step.line
            yield from (f"| {text}".rstrip() for text in step.body)
            for event in self._events(step):
                effects = self._machine.step([event], self._now_ms)
                while self._machine.is_busy:
                    effects += self._machine.step([Turn()], self._now_ms)
                yield from self._told(effects) if effects else ["  nothing"]
                self._machine.check()

    # ── What happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def _events(self, step: Step) -> list[Event]:
        line = re.sub(r"\$(\w+)", lambda word: self._words[word[1]], step.line)
        match line.split(maxsplit=2):
            case [] | ["#", *_]:
                return []
            case ["let", name, words]:
                self._words[name] = words.removeprefix("= ")
                return []
            case ["@", time]:
                self._now_ms += int(time.removesuffix("s")) * 1000
                return [Tick()]
            case [connection, "closed"]:
                return [Gone(connection)]
            case [document, "saved"]:
                return [Saved(Kept(document), self._saving.pop(Kept(document)))]
            case [document, "not", how] if how.startswith("saved: "):
                version = self._saving.pop(Kept(document))
                return [NotSaved(Kept(document), version, how.removeprefix("saved: "))]
            case ["settings", *assignments]:
                properties = dict(word.split("=", 1) for word in " ".join(assignments).split())
                settings = Settings().with_properties(properties)
                self._machine = NameServer(settings, {}, self._now_ms, other_properties(properties))
                return []
            case [connection, _, *_]:
                command = _request(shlex.split(line.partition(":")[2]), "\n".join(step.body))
                return [Asked(connection.removesuffix(":"), command)]
            case _:
                raise ValueError(f"not understood: {line}")

    # ── What follows ──────────────────────────────────────────────────────────────────────────────────────────────

    def _told(self, effects: list[Effect]) -> Iterator[str]:
        for effect in effects:
            match effect:
                case Reply(connection, command):
                    assert command.is_response
                    remark = ": " + command.remark.replace("\n", "\\n") if command.remark else ""
                    yield " ".join([f"  {connection} <-", ResponseCode(command.code).name, *_fields(command)]) + remark
                    yield from _shown(command.body.decode())
                case Close(connection, reason):
                    yield f"  close {connection}: {reason}"
                case Tell(address, command):
                    assert command.is_one_way
                    yield " ".join([f"  tell {address}", RequestCode(command.code).name, *_fields(command)])
                case Save(document, version, content):
                    assert isinstance(content, str)
                    assert document not in self._saving, "one write at a time"
                    self._saving[document] = version
                    yield f"  save {document.value}"
                    yield from (line for line in _shown(content) if document is Kept.KV_CONFIG or line not in DEFAULTS)


def _steps(lines: list[str]) -> list[Step]:
    steps: list[Step] = []
    for line in lines:
        if line.startswith("|"):
            steps[-1].body.append(line[2:])
        elif not line.startswith("  "):
            steps.append(Step(line))
    return steps


def _fields(command: Command) -> list[str]:
    return [f"{key}={shlex.quote(value)}" for key, value in (command.ext or {}).items()]


def _shown(text: str) -> list[str]:
    return [f"  | {line}".rstrip() for line in text.splitlines()]


# ── Requests ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _request(words: list[str], body: str) -> Command:
    name, *rest = words
    ext = dict(word.split("=", 1) for word in rest if "=" in word)
    how = {word for word in rest if "=" not in word}
    versions = [int(word[1:]) for word in how if re.fullmatch(r"v\d+", word)]
    version = versions[0] if versions else Version.V5_5_0
    unknown = how - {"one-way", "binary", "compressed", "checked", f"v{version}"}
    assert not unknown, f"not understood: {unknown}"
    data = _registration(body, version, "compressed" in how) if body.startswith("topics ") else body.encode()
    if "compressed" in how:
        ext["compressed"] = "true"
    if "checked" in how:
        ext["bodyCrc32"] = str(zlib.crc32(data) & 0x7FFFFFFF)
    return Command(
        code=int(name) if name.isdecimal() else RequestCode[name],
        flag=CommandFlag.ONE_WAY if "one-way" in how else 0,
        version=version,
        language="JAVA",
        ext=ext,
        body=data,
        binary="binary" in how,
    )


def _registration(text: str, version: int, compressed: bool) -> bytes:
    """The registration that a Java broker of this version sends for `topics 3: orders 4/4 rw, bills 8/8 r`."""
    number, _, listed = text.removeprefix("topics ").partition(":")
    state, _, counter = number.rpartition(".")
    data_version = {"counter": int(counter), "stateVersion": int(state or 0), "timestamp": 1700000000000}
    topics = [_topic(words) for words in listed.split(",") if words.strip()]
    if compressed:
        return _compressed(data_version, topics, with_mappings=version >= Version.V5_0_0)
    wrapper = {"dataVersion": data_version, "topicConfigTable": {topic["topicName"]: topic for topic in topics}}
    whole = wrapper if version < Version.V3_0_11 else {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(whole).encode()


def _topic(words: str) -> dict[str, Any]:
    name, queues, perm, *flags = words.split()
    reads, _, writes = queues.partition("/")
    return {
        "order": False,
        "perm": ("r" in perm) * 4 + ("w" in perm) * 2,
        "readQueueNums": int(reads),
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": ("unit" in flags) * 1 + ("sub" in flags) * 2,
        "writeQueueNums": int(writes),
    }


def _compressed(data_version: dict[str, int], topics: list[dict[str, Any]], *, with_mappings: bool) -> bytes:
    keys = ("topicName", "readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    parts = [json.dumps(data_version)], [" ".join(str(topic[key]) for key in keys) for topic in topics], ["[]"]
    sized = [b"".join(struct.pack(">i", len(part)) + part.encode() for part in each) for each in parts]
    count, no_mappings = struct.pack(">i", len(topics)), struct.pack(">i", 0) if with_mappings else b""
    return zlib.compress(sized[0] + count + sized[1] + sized[2] + no_mappings)
