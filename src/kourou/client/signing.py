"""Authentication: the signature of every request.

The signature is HMAC-SHA1 over the values of all header fields, in the order of their names, and the body. Both
generations of Apache's access control accept it. Java: AclClientRPCHook, AclSigner.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

from kourou.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


@dataclass(frozen=True)
class Credentials:
    """An access key and its secret. The secret never leaves this process, and is never logged."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, command: Command) -> None:
        """Adds the access key and the signature. To be called when the header and the body are complete."""
        ext = command.ext if command.ext is not None else {}
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = self.access_key
        if self.security_token is not None:
            ext[SECURITY_TOKEN] = self.security_token
        content = "".join(ext[key] for key in sorted(ext)).encode() + command.body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        ext[SIGNATURE] = base64.b64encode(digest).decode()
        command.ext = ext
