"""How two brokers prove to each other that they have the same secret, before the first byte of a log is sent.

    caller   → listener   magic, nonce of the caller
    listener → caller     nonce of the listener, HMAC of both nonces as the listener
    caller   → listener   HMAC of both nonces as the caller

The secret itself is never sent. An answer can't be replayed or reflected to its sender: the nonces are new each time,
and the two ends and the two kinds of ports have different labels. The data that follows is not protected; use TLS for
that.
"""

import hmac
from typing import Final

from kourou.protocol.errors import ProtocolError

MAGIC: Final = b"KOUROU\x00\x01"
NONCE_SIZE: Final = 32
PROOF_SIZE: Final = 32


class Greeting:
    """One end of the exchange."""

    def __init__(self, secret: bytes, purpose: str, nonce: bytes, *, is_caller: bool) -> None:
        """`purpose` is the kind of port; `nonce` has NONCE_SIZE random bytes."""
        assert len(nonce) == NONCE_SIZE
        self._secret = secret
        self._purpose = purpose
        self._nonce = nonce
        self._is_caller = is_caller
        self._rest = b""
        self._awaited = NONCE_SIZE + PROOF_SIZE if is_caller else len(MAGIC) + NONCE_SIZE
        self._expected: bytes | None = None  # the proof that a listener waits for
        self.is_over = False

    def start(self) -> bytes:
        """The first bytes to send; a listener has none."""
        return MAGIC + self._nonce if self._is_caller else b""

    def receive(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes that follow the greeting, and bytes to send. Raises ProtocolError if the peer's proof is wrong."""
        self._rest += data
        answer = b""
        if not self._is_caller and not MAGIC.startswith(self._rest[: len(MAGIC)]) and self._expected is None:
            raise ProtocolError("it did not prove that it has the secret: set haSecretFile on both sides")
        while not self.is_over and len(self._rest) >= self._awaited:
            part, self._rest = self._rest[: self._awaited], self._rest[self._awaited :]
            answer += self._take(part)
        if not self.is_over:
            return b"", answer
        rest, self._rest = self._rest, b""
        return rest, answer

    def _take(self, part: bytes) -> bytes:
        if self._is_caller:
            nonce, proof = part[:NONCE_SIZE], part[NONCE_SIZE:]
            self._check(proof, self._proof(b"listener", self._nonce, nonce))
            return self._proof(b"caller", self._nonce, nonce)
        if self._expected is None:
            nonce = part[len(MAGIC) :]
            self._expected, self._awaited = self._proof(b"caller", nonce, self._nonce), PROOF_SIZE
            return self._nonce + self._proof(b"listener", nonce, self._nonce)
        self._check(part, self._expected)
        return b""

    def _check(self, proof: bytes, expected: bytes) -> None:
        if not hmac.compare_digest(proof, expected):
            raise ProtocolError("it has a different secret: haSecretFile must have the same contents on both sides")
        self.is_over = True

    def _proof(self, end: bytes, callers: bytes, listeners: bytes) -> bytes:
        return hmac.digest(
            self._secret, b"\0".join((b"kourou", self._purpose.encode(), end, callers + listeners)), "sha256"
        )
