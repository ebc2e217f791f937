"""Writes docs/rpc.md, the page of all requests, from the table in `kourou.protocol.headers`.

python tools/rpc_table.py            write the page
python tools/rpc_table.py --check    say whether the page is what the table gives; exit code 1 if not
"""

import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, get_args, get_origin

import msgspec

from kourou.protocol.headers import REQUESTS, Access, Direction, Header, Int32, RequestInfo

PAGE = Path(__file__).parents[1] / "docs" / "rpc.md"

INTRODUCTION = """\
# Requests

<!-- Written by tools/rpc_table.py from kourou.protocol.headers. Change that, then run the tool. -->

This page lists all requests of the protocol, by sender and receiver. A header is a map of strings (`extFields`): `int`
and `long` are decimal numbers, `bool` is `true` or `false`. Fields with `*` are required; others may be omitted. Any
request may also have the fields `ns`, `nsd`, `bname`, `oway` and `lo`
(`Common` in [client.py](../src/kourou/protocol/headers/client.py)).

*Needs* is what access control requires: one of the rights, on each of the resources. Bodies in `this type` are JSON,
declared in [bodies](../src/kourou/protocol/bodies/__init__.py).
"""


def render() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for direction in Direction:
        infos = sorted(info for info in REQUESTS.values() if info.direction is direction)
        parts.append(f"\n## {direction.value[0].upper()}{direction.value[1:]}\n")
        parts += map(entry, infos)
    return "".join(parts)


def entry(info: RequestInfo) -> str:
    """One request."""
    lines = [f"\n### {info.code} {info.name}\n", info.about]
    if info.header:
        lines.append(f"- Header `{info.header.__name__}`: {fields(info.header)}")
    if info.body:
        lines.append(f"- Body: {body(info.body)}")
    if info.one_way:
        lines.append("- One-way: senders do not wait for an answer")
    if info.answer:
        lines.append(f"- Answer `{info.answer.__name__}`: {fields(info.answer)}")
    if info.answer_body:
        lines.append(f"- Answer's body: {body(info.answer_body)}")
    if info.access:
        needed = [access(part, info.header) for part in info.access.parts]
        lines.append(f"- Needs {', and '.join(needed)}")
    head, about, *items = lines
    return f"{head}\n{about}\n" + ("\n" + "\n".join(items) + "\n" if items else "")


def fields(header: type[Header]) -> str:
    """The fields of a header, those that must be there first."""
    told = [
        f"`{field.encode_name}`{'*' if field.required else ''} {type_name(field.type)}"
        for field in sorted(msgspec.structs.fields(header), key=lambda field: not field.required)
    ]
    return ", ".join(told)


def type_name(declared: object) -> str:
    """Java's name for the type of a field."""
    if isinstance(declared, UnionType) or type(None) in get_args(declared):
        (declared,) = (arm for arm in get_args(declared) if arm is not type(None))
    if get_origin(declared) is Annotated:
        return "int" if declared == Int32 else "long"
    return "bool" if declared is bool else "text"


def body(declared: type | str) -> str:
    """A body's type, or the words for it."""
    return declared if isinstance(declared, str) else f"`{declared.__name__}`"


def access(needed: Access, header: type[Header] | None) -> str:
    """The rights and what they are about."""
    keys = {field.name: field.encode_name for field in msgspec.structs.fields(header)} if header else {}
    rights = " or ".join(right.name or "" for right in needed.rights)
    targets = [
        f"the {resource.value} in `{keys[attribute]}`" if attribute else f"the {resource.value}"
        for resource, attribute, _ in needed.targets
    ]
    return f"{rights} on {' and '.join(targets) if targets else 'the resources that the body names'}"


def main() -> int:
    """Write or check the page."""
    page = render()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    current = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page
    if not current:
        print(f"{PAGE.name} is not what the table gives: run tools/rpc_table.py", file=sys.stderr)
    return 0 if current else 1


if __name__ == "__main__":
    sys.exit(main())
