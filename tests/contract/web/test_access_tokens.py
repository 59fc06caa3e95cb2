"""Named tokens in the ledger, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from hilum.domain import AccessToken, Scope
from hilum.store.audit.access_tokens import AccessTokens, NameTaken, digest_of, has_form
from hilum.store.queries.views import LedgerViews
from tests.support.ledger.street import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(ledger_url: str, clock: Clock) -> Iterator[AccessTokens]:
    with closing(AccessTokens(ledger_url, clock)) as opened:
        yield opened


def test_a_token_is_found_by_its_digest_and_by_its_name(
    tokens: AccessTokens, views: LedgerViews, clock: Clock
) -> None:
    secret = tokens.create("night", Scope.OPERATE, 2)
    made = AccessToken(
        "night", Scope.OPERATE, digest_of(secret), clock.now, expires_at=clock.now + 2 * 86400
    )
    assert views.access_token(digest=digest_of(secret)) == views.access_token(name="night") == made
    assert views.access_token(digest=digest_of("another")) is None
    assert views.access_tokens() == [made]
    assert has_form(secret)


def test_each_token_is_another(tokens: AccessTokens) -> None:
    assert len({tokens.create(f"n{number}", Scope.READ, None) for number in range(50)}) == 50


def test_a_name_is_given_once(tokens: AccessTokens, views: LedgerViews) -> None:
    tokens.create("night", Scope.READ, None)
    assert tokens.revoke("night")
    with pytest.raises(NameTaken):
        tokens.create("night", Scope.ERASE, None)
    (kept,) = views.access_tokens()
    assert (kept.scope, kept.is_valid(kept.created_at)) == (Scope.READ, False)


def test_only_a_valid_token_is_revoked(tokens: AccessTokens, clock: Clock) -> None:
    tokens.create("night", Scope.READ, 1)
    assert not tokens.revoke("day")
    clock.now += 86400
    assert not tokens.revoke("night"), "it has ended by itself"


def test_its_use_is_written_at_most_once_an_hour(
    tokens: AccessTokens, views: LedgerViews, clock: Clock
) -> None:
    """Also by hosts that do not know of each other."""
    tokens.create("night", Scope.READ, None)
    (stale,) = views.access_tokens()
    first = clock.now
    for later, expected in ((0, first), (3599, first), (3600, first + 3600)):
        clock.now = first + later
        tokens.note_use(stale)
        assert views.access_tokens()[0].last_used_at == expected
