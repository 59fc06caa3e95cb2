"""The headers of a signed webhook: Standard Webhooks 1.0.0, symmetric signatures (v1)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from hilum.web.credentials import read_secret
from hilum.web.problems import HttpError

_PREFIX: Final = "whsec_"
_KEY_BYTES: Final = range(24, 65)


def message_id(content: bytes) -> str:
    """Return the identity of a document: its bytes hold its UID, and no other has the same."""
    return f"msg_{hashlib.sha256(content).hexdigest()}"


def signed_headers(
    keys: Iterable[bytes], identity: str, at: float, content: bytes
) -> Mapping[str, str]:
    """Return the three headers, with one signature for each key. `at`: seconds of this attempt."""
    timestamp = str(int(at))
    signed = f"{identity}.{timestamp}.".encode() + content
    signatures = (hmac.digest(key, signed, hashlib.sha256) for key in keys)
    return {
        "webhook-id": identity,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(
            f"v1,{base64.b64encode(signature).decode()}" for signature in signatures
        ),
    }


def key_of(file: Path) -> bytes:
    """Return the key in a file: `whsec_` and base64. Raises HttpError, which does not show it."""
    text = read_secret(file).strip()
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(_PREFIX) or len(key) not in _KEY_BYTES:
        raise HttpError(
            f"{file} holds no signing secret: give {_PREFIX} and 24 to 64 random bytes in base64,"
            f' such as `echo "{_PREFIX}$(openssl rand -base64 32)"`',
            is_outage=True,
            is_final=True,
        )
    return key
