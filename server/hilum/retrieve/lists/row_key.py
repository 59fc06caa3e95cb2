"""The keyed digest that stands for a row's value in the ledger."""

from __future__ import annotations

import hashlib

_DIGEST_BYTES = 16
_LONGEST_SALT = 64


def row_key(value: str, salt: bytes) -> str:
    """Return 32 hexadecimal digits: BLAKE2b of the value, keyed with the installation's salt.

    Without the salt, the few possible accession numbers cannot be tried. Raises ValueError for an
    empty salt or one over 64 bytes.
    """
    if not 1 <= len(salt) <= _LONGEST_SALT:
        raise ValueError(f"the salt must have 1 to {_LONGEST_SALT} bytes")
    return hashlib.blake2b(value.encode(), key=salt, digest_size=_DIGEST_BYTES).hexdigest()
