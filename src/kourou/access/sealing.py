"""The form of the users' file on disk: clear JSON, or sealed with a key.

Signatures need the passwords in clear, so a hash is not enough. Where a key is given, the file is encrypted with
AES-256-GCM; without the key it can be neither read nor changed.

    KOUROU SEALED 1\\n   12 bytes nonce   ciphertext and tag
"""

import base64
import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kourou.access.errors import AccessFileError

KEY_BYTES = 32
_MAGIC = b"KOUROU SEALED 1\n"
_NONCE_BYTES = 12


def parse_key(text: str, origin: str) -> bytes:
    """The key in a file or an environment variable. Raises AccessFileError."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise AccessFileError(
            f"the key in {origin} is not {KEY_BYTES} bytes in base64; make one with: openssl rand -base64 {KEY_BYTES}"
        )
    return key


def seal(content: bytes, key: bytes | None) -> bytes:
    """The bytes of the file."""
    if key is None:
        return content
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return _MAGIC + nonce + AESGCM(key).encrypt(nonce, content, _MAGIC)


def is_clear(data: bytes) -> bool:
    """True if the content can be read without a key."""
    return bool(data) and not data.startswith(_MAGIC)


def unseal(data: bytes, key: bytes | None, path: str) -> bytes:
    """The content of the file. Raises AccessFileError."""
    if not data.startswith(_MAGIC):
        return data
    if key is None:
        raise AccessFileError(f"{path} is sealed; give its key with usersKeyFile or KOUROU_USERS_KEY")
    start = len(_MAGIC) + _NONCE_BYTES
    try:
        return AESGCM(key).decrypt(data[len(_MAGIC) : start], data[start:], _MAGIC)
    except (InvalidTag, ValueError):
        raise AccessFileError(
            f"{path} can't be opened with this key: it was written with another key, or changed; "
            "give the key with which it was written, or restore the file from a backup"
        ) from None
