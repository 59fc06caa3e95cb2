"""Access control: tokens, sessions, login links, and a counter of wrong tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException

from hilum.api.auth.credentials import Credential
from hilum.api.auth.local_token import ensure_local_token
from hilum.api.auth.login_links import LoginLinks
from hilum.api.auth.sessions import Session, Sessions
from hilum.api.auth.tokens import Authenticator, KnownTokens, host_token, settings_token
from hilum.api.auth.wrong_tokens import Guesses
from hilum.domain import AccessToken, Actor, Channel
from hilum.observability.telemetry import REQUESTS_NOT_ADMITTED
from hilum.settings import Settings
from hilum.store.audit.access_tokens import AccessTokens, has_form
from hilum.store.audit.log import AuditLog
from hilum.store.queries.views import LedgerViews
from hilum.verbs import Verb

STRANGER = "stranger"
CHALLENGE = {"WWW-Authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Access:
    """The one set of these objects of an application. `audit`: where a lock-out becomes a row."""

    tokens: Authenticator
    sessions: Sessions
    links: LoginLinks
    guesses: Guesses
    local: AccessToken
    cookie_name: str
    audit: AuditLog | None = None

    def token_of(self, credential: Credential, address: str) -> AccessToken:
        """The valid token of a credential. Raises HTTPException 401 or 429, and Retry. Blocks.

        While an address is locked out, only tokens of Hilum's own form are looked at. Those cannot
        be guessed. So others at that address, as all accounts of one machine are, go on working.
        """
        locked = self.guesses.locked_seconds(address)
        is_looked_at = not locked or has_form(credential.secret)
        token = self.tokens.by_secret(credential.secret) if is_looked_at else None
        if token is not None:
            return token
        if credential.secret:
            self._note_wrong(address)
        if locked:
            raise refusal(
                429,
                "locked_out",
                "Too many wrong tokens came from this address.",
                {"Retry-After": str(math.ceil(locked))},
            )
        reason = "wrong_token" if credential.secret else "no_token"
        raise refusal(
            401,
            reason,
            "Give a valid token: Authorization: Bearer <token>. `hilum token create` makes one.",
            CHALLENGE,
        )

    def _note_wrong(self, address: str) -> None:
        if self.guesses.note(address) and self.audit is not None:
            self.audit.note(Verb.LOCK_OUT, Actor(STRANGER, Channel.REST, address))

    def session_of(self, cookie: str) -> tuple[Session, AccessToken] | None:
        """The session of a cookie and its token, if both are valid. Raises Retry. Blocks."""
        session = self.sessions.read(cookie)
        token = self.tokens.by_name(session.token_name) if session else None
        if session is None or token is None or not self.sessions.is_of(session, token):
            return None
        return session, token


def refusal(
    status: int, reason: str, detail: str, headers: dict[str, str] | None = None
) -> HTTPException:
    """The answer to a request that is not admitted, counted by its reason."""
    REQUESTS_NOT_ADMITTED.labels(reason).inc()
    return HTTPException(status, detail, headers)


def open_access(
    settings: Settings,
    views: LedgerViews,
    ledger: AccessTokens,
    clock: Callable[[], float] = time.time,
    audit: AuditLog | None = None,
) -> Access:
    """For a web process of this host. Raises OSError where the state folder cannot be written."""
    secret = ensure_local_token(settings)
    local = host_token(secret)
    fixed = [local, *([settings_token(settings.api.token)] if settings.api.token else [])]
    return Access(
        tokens=KnownTokens(fixed, views, ledger, clock),
        sessions=Sessions(secret, clock),
        links=LoginLinks(settings, clock),
        guesses=Guesses(),
        local=local,
        # a browser sends cookies to every port of a host
        cookie_name=f"hilum_session_{settings.api.port}",
        audit=audit,
    )
