"""Named tokens in the ledger: made, revoked and looked up.

The ledger holds the SHA-256 of each secret, never the secret. A secret is 256 random bits, so a
plain digest cannot be reversed by guessing. A slow digest would only delay each request.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, RowMapping, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from hilum.domain import AccessToken, Scope
from hilum.store.database.engines import open_engine
from hilum.store.schema.tables import access_token

PREFIX: Final = "hilum_"
_SECRET_BYTES: Final = 32
_DAY_SECONDS: Final = 86400.0
_USE_SECONDS: Final = 3600.0


class NameTaken(Exception):
    """A token has this name, or had it."""


def new_secret() -> str:
    """Make a random token. Its prefix lets scanners find one that was committed by mistake."""
    return PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def has_form(secret: str) -> bool:
    """Whether the text has the form of our tokens: only those are looked up."""
    return secret.startswith(PREFIX) and len(secret) == len(PREFIX) + 43


def digest_of(secret: str) -> str:
    """The digest that the ledger holds of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


class AccessTokens:
    """Verbs on the tokens of the ledger at an SQLAlchemy URL.

    Thread-safe. `LedgerViews` looks tokens up.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self._engine = open_engine(url)
        self._clock = clock

    def close(self) -> None:
        """Give the connections back."""
        self._engine.dispose()

    def create(self, name: str, scope: Scope, days: float | None) -> str:
        """Create a token and return its secret, to be shown once. Raises NameTaken."""
        secret = new_secret()
        now = self._clock()
        ends = None if days is None else now + days * _DAY_SECONDS
        row = {
            "name": name,
            "scope": scope.value,
            "digest": digest_of(secret),
            "created_at": now,
            "expires_at": ends,
        }
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(access_token).values(row))
        except IntegrityError as error:
            raise NameTaken(name) from error
        return secret

    def revoke(self, name: str) -> bool:
        """End a token now; False: there is no valid one of this name."""
        now = self._clock()
        lives = or_(access_token.c.expires_at.is_(None), access_token.c.expires_at > now)
        ended = (
            update(access_token)
            .where(access_token.c.name == name, access_token.c.revoked_at.is_(None), lives)
            .values(revoked_at=now)
        )
        with self._engine.begin() as connection:
            return connection.execute(ended).rowcount > 0

    def note_use(self, token: AccessToken) -> None:
        """Write down that a token was used, at most once an hour."""
        now = self._clock()
        if token.last_used_at is not None and now - token.last_used_at < _USE_SECONDS:
            return
        unnoted = or_(
            access_token.c.last_used_at.is_(None), access_token.c.last_used_at <= now - _USE_SECONDS
        )
        with self._engine.begin() as connection:
            connection.execute(
                update(access_token)
                .where(access_token.c.name == token.name, unnoted)
                .values(last_used_at=now)
            )


def find(connection: Connection, *, digest: str = "", name: str = "") -> AccessToken | None:
    """The token of this digest or name, valid or not."""
    column, wanted = (access_token.c.digest, digest) if digest else (access_token.c.name, name)
    row = connection.execute(select(access_token).where(column == wanted)).mappings().one_or_none()
    return None if row is None else _token(row)


def all_tokens(connection: Connection) -> list[AccessToken]:
    """Every token, also those that have ended, by name."""
    return [
        _token(row)
        for row in connection.execute(select(access_token).order_by(access_token.c.name)).mappings()
    ]


def _token(row: RowMapping) -> AccessToken:
    return AccessToken(**{**row, "scope": Scope(row["scope"])})
