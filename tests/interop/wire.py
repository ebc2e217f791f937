"""Requests by hand: frames as the protocol's description has them, without a line of the code under test."""

import json
import re
import socket
import ssl
import struct
import zlib
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

RESPONSE, ONE_WAY = 1, 2
ROUTE = 105
CONTROLLER_METADATA = 1005

PATIENCE_S = 30.0


@dataclass(frozen=True)
class Answer:
    code: int
    flag: int
    opaque: int
    remark: str | None
    ext: dict[str, str]
    body: bytes = field(repr=False)

    def json(self) -> Any:
        """The body, with fastjson's numeric keys as strings."""
        return json.loads(re.sub(rb"([{,])(-?\d+):", rb'\1"\2":', self.body)) if self.body else None


class Connection:
    """One connection to a server, in plain text or with TLS; requests are answered one by one."""

    def __init__(self, address: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket)
        self._opaque = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", version: int = 513) -> Answer:
        self.send(code, ext, body, version)
        return self.receive()

    def send(
        self, code: int, ext: dict[str, Any] | None = None, body: bytes = b"", version: int = 513, flag: int = 0
    ) -> None:
        self._opaque += 1
        header = {"code": code, "flag": flag, "language": "JAVA", "opaque": self._opaque, "version": version}
        if ext is not None:
            header["extFields"] = {key: str(value) for key, value in ext.items()}
        text = json.dumps(header).encode()
        self.send_bytes(struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> Answer:
        """The answer to the last request."""
        answer = self.receive_any()
        assert answer.opaque == self._opaque
        return answer

    def receive_any(self) -> Answer:
        """Whatever comes next: an answer, or a request of the server."""
        (length,) = struct.unpack(">i", self._exactly(4))
        data = self._exactly(length)
        (marked,) = struct.unpack(">i", data[:4])
        assert marked >> 24 == 0, "answered in another form than JSON"
        header = json.loads(data[4 : 4 + marked])
        return Answer(
            code=header["code"],
            flag=header["flag"],
            opaque=header["opaque"],
            remark=header.get("remark"),
            ext=header.get("extFields") or {},
            body=data[4 + marked :],
        )

    def is_closed_by_peer(self, seconds: float) -> bool:
        """Whether the peer closes, without another word, in that time."""
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            if not piece:
                raise ConnectionError("closed by the server")
            data += piece
        return data


def crc32(body: bytes) -> int:
    """The checksum of a registration: CRC-32 without its highest bit."""
    return zlib.crc32(body) & 0x7FFFFFFF
