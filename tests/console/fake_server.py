"""A server on loopback that has the pages, and answers of one's choice for the API."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.console.requests import problem_of

STATIC = Path(__file__).parents[2] / "src/kourou/console/static"
KINDS = {".js": "text/javascript", ".css": "text/css", ".json": "application/json", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

Answers = Mapping[str, Any]


def find(answers: Answers, path: str) -> Any:
    """`topics/x/messages` is answered by `topics//messages`, `topics/x` by `topics/`."""
    parts = path.split("/")
    for key in (path, "/".join(part if index % 2 == 0 else "" for index, part in enumerate(parts))):
        if key in answers:
            return answers[key]
    return None


class FakeServer:
    """Serves the pages; `changes` has the requests that were no GETs, as method, path and body.

    `refused` has those that the real server does not take, and why.
    """

    def __init__(self, answers: Answers, change: Callable[[dict[str, Any]], Any], events: Answers) -> None:
        self.answers = dict(answers)
        self.change = change
        self.events = events
        self.changes: list[tuple[str, str, dict[str, Any]]] = []
        self.refused: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if path == "/events":
                    self._stream()
                elif path.startswith("/api/"):
                    found = find(fake.answers, unquote(path.removeprefix("/api/").replace("%2F", "%252F")))
                    missing = {"code": "not_found", "text": f"no answer for {path}", "remedy": ""}
                    self._send(
                        404 if found is None else 200, missing if found is None else {"at": 0, "age_ms": 0, **found}
                    )
                else:
                    self._file(path)

            def _stream(self) -> None:
                lines = ["event: hello\ndata: {}\n\n"]
                lines += [f"event: {name}\ndata: {json.dumps(data)}\n\n" for name, data in fake.events.items()]
                self._head(200, "text/event-stream")
                self.wfile.write("".join(lines).encode())

            def _file(self, path: str) -> None:
                file = STATIC / path.removeprefix("/static/") if path.startswith("/static/") else STATIC / "index.html"
                if not file.is_file():
                    self._head(404, "text/plain")
                    return
                self._head(200, KINDS.get(file.suffix, "text/html; charset=utf-8"))
                self.wfile.write(file.read_bytes())

            def _changed(self) -> None:
                raw = self.rfile.read(int(self.headers["content-length"]))
                path = urlsplit(self.path).path
                if (problem := problem_of(self.command, path, raw)) is not None:
                    fake.refused.append(problem)
                    self._send(400, {"code": "bad_request", "text": problem, "remedy": ""})
                    return
                body = json.loads(raw)
                fake.changes.append((self.command, path, body))
                self._send(200, fake.change(body))

            do_POST = do_PATCH = do_DELETE = _changed  # noqa: N815 -- the names are the base class's

            def _send(self, status: int, content: Any) -> None:
                self._head(status, "application/json")
                self.wfile.write(json.dumps(content).encode())

            def _head(self, status: int, kind: str) -> None:
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-security-policy", POLICY)
                self.end_headers()

        return Handler


@contextmanager
def serving(
    answers: Answers, change: Callable[[dict[str, Any]], Any] = lambda body: {"done": {}}, events: Answers | None = None
) -> Iterator[FakeServer]:
    """Raises AssertionError at the end if a page sent a request that the real server refuses."""
    server = FakeServer(answers, change, events or {})
    try:
        yield server
    finally:
        server.close()
    assert server.refused == []
