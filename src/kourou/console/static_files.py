"""The pages: files of one folder, read once. All other paths are views of the one page: /topics/orders."""

import gzip
import hashlib
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kourou.console.errors import ConsoleError

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".txt": "text/plain; charset=utf-8",
}
PREFIX: Final = "static/"
INDEX: Final = "index.html"


class File(msgspec.Struct, frozen=True):
    """One file in memory."""

    data: bytes
    packed: bytes | None
    """The same with gzip; None if it would not be smaller."""
    kind: str
    tag: str


class StaticFiles:
    """All files, by their path in the folder. Files that are added to the folder later are not served."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            str(path.relative_to(folder)): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.suffix in KINDS
        }

    async def serve(self, request: Request) -> Response:
        file = self._find(request.path_params["path"])
        if file is None:
            error = ConsoleError("not_found", "there is no such page")
            return Response(error.to_json(), status_code=error.status, media_type="application/json")
        headers = {"etag": file.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.packed, media_type=file.kind, headers={**headers, "content-encoding": "gzip"})
        return Response(file.data, media_type=file.kind, headers=headers)

    def _find(self, path: str) -> File | None:
        if path.startswith(PREFIX):
            return self._files.get(path.removeprefix(PREFIX))
        if path.startswith("api/") or path == "events":
            return None
        return self._files.get(INDEX)


def _read(path: Path) -> File:
    data = path.read_bytes()
    packed = gzip.compress(data, 6, mtime=0)
    return File(
        data,
        packed if len(packed) < len(data) else None,
        KINDS[path.suffix],
        f'"{hashlib.sha256(data).hexdigest()[:32]}"',
    )
