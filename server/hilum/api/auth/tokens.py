"""The known tokens: that of the settings, that of this host, and the named ones of the ledger."""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sqlalchemy.exc import SQLAlchemyError

from hilum.api.auth import local_token
from hilum.domain import AccessToken, Scope
from hilum.errors import Retry
from hilum.observability import telemetry
from hilum.store.audit.access_tokens import AccessTokens, digest_of, has_form
from hilum.store.queries.views import LedgerViews

SETTINGS_NAME: Final = "settings"
RESERVED_NAMES: Final = frozenset({SETTINGS_NAME, local_token.NAME})
_OUTAGE_SECONDS: Final = 3600.0
_USE_SECONDS: Final = 3600.0
log = telemetry.logger("api")


class Authenticator(Protocol):
    """Finds the holder of a credential. A directory of users would be another implementation."""

    def by_secret(self, secret: str) -> AccessToken | None:
        """The valid token with this secret. Raises Retry. Blocks."""

    def by_name(self, name: str) -> AccessToken | None:
        """The valid token of this name. Raises Retry. Blocks."""


class KnownTokens:
    """See `Authenticator`. Thread-safe. `fixed` are known without the ledger."""

    def __init__(
        self,
        fixed: Sequence[AccessToken],
        views: LedgerViews,
        ledger: AccessTokens,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fixed = fixed
        self._views = views
        self._ledger = ledger
        self._clock = clock
        self._met: dict[str, tuple[AccessToken, float]] = {}  # by name; as many as the ledger has
        self._noted: dict[str, float] = {}

    def by_secret(self, secret: str) -> AccessToken | None:
        """The valid token with this secret."""
        digest = digest_of(secret)
        for token in self._fixed:
            if hmac.compare_digest(token.digest, digest):
                return token
        if not has_form(secret):
            return None
        return self._of_ledger(
            lambda token: hmac.compare_digest(token.digest, digest), digest=digest
        )

    def by_name(self, name: str) -> AccessToken | None:
        """The valid token of this name."""
        for token in self._fixed:
            if token.name == name:
                return token
        return self._of_ledger(lambda token: token.name == name, name=name)

    def _of_ledger(
        self, is_it: Callable[[AccessToken], bool], *, digest: str = "", name: str = ""
    ) -> AccessToken | None:
        try:
            found = self._views.access_token(digest=digest, name=name)
        except Retry:
            if (found := self._met_lately(is_it)) is None:
                raise
        return self._admitted(found)

    def _met_lately(self, is_it: Callable[[AccessToken], bool]) -> AccessToken | None:
        """Return a token that was valid within the last hour.

        It serves while the ledger does not respond. Then no token can be revoked, and monitoring
        has to see the outage.
        """
        since = self._clock() - _OUTAGE_SECONDS
        return next(
            (
                token
                for token, met_at in list(self._met.values())
                if met_at > since and is_it(token)
            ),
            None,
        )

    def _admitted(self, token: AccessToken | None) -> AccessToken | None:
        now = self._clock()
        if token is None or not token.is_valid(now):
            return None
        known = self._met.get(token.name)
        if known is None or known[0] is not token:  # the ledger has just answered
            self._met[token.name] = token, now
            self._note_use(token, now)
        return token

    def _note_use(self, token: AccessToken, now: float) -> None:
        """Record the use of a token, in a thread, so that no request waits for the ledger's lock.

        It runs once an hour, whether it succeeds or not.
        """
        last = max(token.last_used_at or 0.0, self._noted.get(token.name, 0.0))
        if now - last >= _USE_SECONDS:
            self._noted[token.name] = now
            threading.Thread(
                target=self._write_use, args=[token], name="token-use", daemon=True
            ).start()

    def _write_use(self, token: AccessToken) -> None:
        try:
            self._ledger.note_use(token)
        except SQLAlchemyError as error:
            log.warning(
                "token_use_not_recorded",
                token=token.name,
                problem=type(error).__name__,
                advice="tried again in an hour",
            )


def settings_token(secret: str) -> AccessToken:
    """That of the settings."""
    return AccessToken(SETTINGS_NAME, Scope.ERASE, digest_of(secret), 0.0)


def host_token(secret: str) -> AccessToken:
    """That of this host."""
    return AccessToken(local_token.NAME, Scope.ERASE, digest_of(secret), 0.0)
