"""The secret seed of an installation's digests, and the mark of it in each digest.

xxh3-128 without a seed is public: an attacker can make two pictures with the same digest. The seed
is in the ledger, so that all hosts of an installation share it, and a backup has it beside the
digests. Rows from before the seed have digests without it. They are known by their form, and are
never rewritten, because results are named after them.
"""

from __future__ import annotations

import secrets
from typing import Final

from sqlalchemy import Connection, insert, select

from hilum.store.schema.tables import installation

_KEY: Final = "digest_seed"
_SEEDED: Final = "s1-"
_BY_SHA256: Final = "sha256-"
_DIGITS: Final = 32
_BITS: Final = 64


def mint(connection: Connection) -> None:
    """Draw the seed, once in the life of a ledger."""
    if (
        connection.execute(select(installation.c.value).where(installation.c.key == _KEY)).first()
        is None
    ):
        drawn = secrets.randbelow((1 << _BITS) - 1) + 1  # 0 means no seed
        connection.execute(insert(installation).values(key=_KEY, value=f"{drawn:016x}"))


def read(connection: Connection) -> int:
    """The installation's seed. Raises NoResultFound in a ledger from before it."""
    return int(
        connection.execute(
            select(installation.c.value).where(installation.c.key == _KEY)
        ).scalar_one(),
        16,
    )


def written(digits: str, seed: int) -> str:
    """A digest as rows hold it. `seed`: the seed it was made with; 0: none."""
    return f"{_SEEDED}{digits}" if seed else digits


def seed_of(digest: str, seed: int) -> int:
    """The seed that this digest of a row was made with: the installation's, or 0."""
    return seed if digest.startswith(_SEEDED) else 0


def by_sha256(sha256: str) -> str:
    """A digest for bytes whose usual one is that of other bytes."""
    return f"{_BY_SHA256}{sha256[:_DIGITS]}"
