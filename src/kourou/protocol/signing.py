"""The signature of a request: identifies its sender, and proves that its header fields and body are unchanged.

The signature is HMAC-SHA1 over the values of all header fields, in the order of their names, and the body. Both
generations of Apache's access control accept it. Code, flag, opaque, version and remark are not covered, so a request
can be replayed by anyone who can read it. Java: AclClientRPCHook, AclSigner.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kourou.protocol.codes import Version
from kourou.protocol.command import Command

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"

SIGNATURE_FIELDS: Final = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN))
"""The fields that a signature adds to a request."""

_UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""A field that senders up to 4.9.3 add after they have signed."""


@dataclass(frozen=True)
class Credentials:
    """An access key and its secret. The secret never leaves this process, and is never logged."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: Command) -> None:
        """Adds the access key and the signature. To be called when the header and the body are complete."""
        ext = command.ext if command.ext is not None else {}
        ext[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            ext[SECURITY_TOKEN] = self.security_token
        ext[SIGNATURE] = _signature(ext, command.body, self.secret_key)
        command.ext = ext

    def have_signed(self, command: Command) -> bool:
        """Was this request signed with these credentials, and has it not been changed since?"""
        ext = command.ext or {}
        if ext.get(ACCESS_KEY) != self.access_key:
            return False
        if command.version < Version.V4_9_4:
            ext = {key: value for key, value in ext.items() if key != _UNIQUE_KEY_QUERY}
        expected = _signature(ext, command.body, self.secret_key)
        return hmac.compare_digest(expected.encode(), ext.get(SIGNATURE, "").encode("utf-8", "replace"))


def _signature(ext: Mapping[str, str], body: bytes, secret_key: str) -> str:
    content = "".join(ext[key] for key in sorted(ext) if key != SIGNATURE).encode("utf-8", "replace") + body
    return base64.b64encode(hmac.digest(secret_key.encode(), content, hashlib.sha1)).decode()
