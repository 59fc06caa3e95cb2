"""The salt of an installation: the key of digests of erased UIDs, and of patients in the audit."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from sqlalchemy import Connection, insert, select

from hilum.store.schema.tables import installation

_KEY: Final = "erasure_salt"


def salt(connection: Connection) -> bytes:
    """Return the salt; it is minted when it is first needed."""
    if (known := known_salt(connection)) is not None:
        return known
    minted = secrets.token_hex(32)
    connection.execute(insert(installation).values(key=_KEY, value=minted))
    return bytes.fromhex(minted)


def known_salt(connection: Connection) -> bytes | None:
    """Return the salt; None: it was never needed."""
    known = connection.execute(
        select(installation.c.value).where(installation.c.key == _KEY)
    ).scalar_one_or_none()
    return None if known is None else bytes.fromhex(known)


def digest_of(key: bytes, text: str) -> str:
    """The audit's digest of a text: the first 128 bits of its HMAC-SHA256."""
    return hmac.new(key, f"audit {text}".encode(), hashlib.sha256).digest()[:16].hex()


class Tombstones:
    """UIDs that stand for those of one erased study.

    The original UIDs cannot be found without the salt. The study's row number is part of the
    digest, because a study that is sent again may be erased again.
    """

    def __init__(self, salt: bytes, study_id: int) -> None:
        self._key = salt + str(study_id).encode()

    def of(self, uid: str) -> str:
        """The UID that stands for one: 2.25 and 128 bits (PS3.5 B.2)."""
        return (
            f"2.25.{int.from_bytes(hashlib.sha256(self._key + uid.encode()).digest()[:16], 'big')}"
        )
