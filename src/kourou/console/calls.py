"""The input and output of a route: a call with its viewer, parameters and body; an answer with its age."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import Response

from kourou.console.errors import ConsoleError
from kourou.console.facts import Look, now_ms
from kourou.console.limits import JSON_SIZE_MAX, QUERY_TEXT_MAX
from kourou.console.sessions import Role, Viewer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kourou.console.state import Console

Kind = TypeVar("Kind")


class _MayBePreview(msgspec.Struct):
    preview: bool = False


class Call:
    """One request that has passed the guard."""

    def __init__(
        self,
        console: "Console",
        viewer: Viewer | None,
        path: "Mapping[str, str]",
        query: "Mapping[str, str]",
        body: bytes,
        address: str,
        cookie: str | None = None,
        raw_query: "Sequence[tuple[str, str]]" = (),
    ) -> None:
        self.console = console
        self.path = path
        self.address = address
        self.cookie = cookie
        self.look: Look = console.facts.look()
        self._viewer = viewer
        self._query = query
        self._raw_query = raw_query
        self._body = body

    @property
    def viewer(self) -> Viewer:
        assert self._viewer is not None, "the route needs no session"
        return self._viewer

    @property
    def visitor(self) -> Viewer | None:
        """The viewer, if any; for routes that need no session."""
        return self._viewer

    @property
    def sees_bodies(self) -> bool:
        return self.viewer.may(Role.BODIES)

    # ── Parameters ────────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, name: str, default: str = "") -> str:
        """A parameter of the URL. Raises ConsoleError."""
        found = self._query.get(name, default)
        if len(found) > QUERY_TEXT_MAX:
            raise ConsoleError("bad_request", f"{name} has more than {QUERY_TEXT_MAX} characters")
        return found

    def raw(self, name: str) -> str:
        """A parameter of the URL, still percent-encoded. Raises ConsoleError."""
        found = next((value for key, value in self._raw_query if key == name), "")
        if len(found) > QUERY_TEXT_MAX:
            raise ConsoleError("bad_request", f"{name} has more than {QUERY_TEXT_MAX} characters")
        return found

    def choice(self, name: str, *choices: str) -> str:
        """A parameter that is one of these; the first by default. Raises ConsoleError."""
        found = self.text(name) or choices[0]
        if found not in choices:
            raise ConsoleError("bad_request", f"{name}={found[:50]}: one of {', '.join(choices)} is expected")
        return found

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number of the URL. Raises ConsoleError."""
        found = self.text(name)
        if not found:
            return default
        if not (found.removeprefix("-").isascii() and found.removeprefix("-").isdigit()) or len(found) > 20:
            raise ConsoleError("bad_request", f"{name}={found[:50]}: a whole number is expected")
        if not low <= int(found) <= high:
            raise ConsoleError("bad_request", f"{name}={found}: a number from {low} to {high} is expected")
        return int(found)

    def names(self, name: str, most: int) -> list[str]:
        """A list of names, separated by commas. Raises ConsoleError."""
        found = [word for word in self._query.get(name, "").split(",") if word]
        if len(found) > most:
            raise ConsoleError("bad_request", f"{name}: at most {most} names")
        return list(dict.fromkeys(found))

    def read(self, kind: type[Kind]) -> Kind:
        """The JSON body as a value. Raises ConsoleError."""
        try:
            return msgspec.json.decode(self._body or b"{}", type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConsoleError("bad_request", f"the body is not valid: {error}") from None

    @property
    def is_preview(self) -> bool:
        """Whether the request only asks what a change would do."""
        try:
            return msgspec.json.decode(self._body or b"{}", type=_MayBePreview).preview
        except (msgspec.DecodeError, RecursionError):
            return False

    # ── Audit and confirmation ────────────────────────────────────────────────────────────────────────────────────

    def note(self, action: str, what: str, *, ok: bool = True, text: str = "", cli: str = "") -> None:
        """An entry of the audit log."""
        viewer = self.viewer
        self.console.audit.note(viewer.user, viewer.role.label, self.address, action, what, ok=ok, text=text, cli=cli)

    def confirm(self, given: str | None, expected: str) -> None:
        """Raises ConsoleError unless the name was typed."""
        if given != expected:
            raise ConsoleError("confirm_needed", f"type the name to continue: {expected}", args={"confirm": expected})


Handler = Callable[[Call], Awaitable[Any]]


class Way(msgspec.Struct, frozen=True):
    """One route, with the role that it needs and its handler."""

    method: str
    path: str
    handler: Handler
    role: Role | None = Role.SEE
    """None: no session is needed."""
    size_max: int = JSON_SIZE_MAX
    is_session: bool = False
    """Signing in and out, which is also allowed in a read-only console."""

    @property
    def is_change(self) -> bool:
        return self.method != "GET"


class Preview(msgspec.Struct, frozen=True, omit_defaults=False):
    """The effect of a change, the equivalent command, and the name to type."""

    preview: Any
    cli: str
    confirm: str | None = None


class Done(msgspec.Struct, frozen=True):
    """The result of a change."""

    done: Any
    cli: str


def framed(look: Look, answer: Any) -> bytes:
    """An answer as JSON, preceded by its age, and by the brokers that did not answer."""
    raw = msgspec.json.encode(answer)
    if look.at_ms is None or raw[:1] != b"{":
        return raw
    age = max(now_ms() - look.at_ms, 0)
    head = b'{"at":%d,"age_ms":%d' % (look.at_ms, age)
    if look.without:
        head += b',"without":' + msgspec.json.encode(sorted(look.without))
    return head + (b"}" if raw == b"{}" else b"," + raw[1:])


def to_response(look: Look, answer: Any) -> Response:
    """The response for the result of a handler."""
    if isinstance(answer, Response):
        return answer
    return Response(framed(look, answer), media_type="application/json")
