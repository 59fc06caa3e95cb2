"""Tokens for REST and the pages.

These commands work on the ledger and the state folder, and ask no server.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    actor_here,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    settings_of,
    token_app,
)
from hilum.domain import Scope
from hilum.services.state_dir import make_state_folder
from hilum.verbs import NoVerb, Thing, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.domain import AccessToken
    from hilum.settings import Settings

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
TokenName = Annotated[str, typer.Argument(help="At most 32 letters, digits, and the signs . _ -")]


@token_app.command("create")
@performs(Verb.CREATE_TOKEN)
def create_token(
    name: TokenName,
    config: Config = None,
    scope: Annotated[
        Scope,
        typer.Option(
            help="read; operate: also requeue, pause, decide, send images; erase: also erase."
        ),
    ] = Scope.READ,
    days: Annotated[float, typer.Option(min=0, help="Days until it ends; 0: never.")] = 90.0,
) -> None:
    """Make a token and print it. It is shown this once: the ledger keeps its digest alone."""
    settings = migrated_settings(config)
    # Imports the ledger.
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.store.audit.access_tokens import (  # noqa: PLC0415
        AccessTokens,
        NameTaken,
    )

    _require_name(name)
    with explained():
        require_same_user(settings)
        with acting(settings, thing=Thing.TOKEN, name=name):
            try:
                print(AccessTokens(settings.ledger_url).create(name, scope, days or None))
            except NameTaken as error:
                raise ended(
                    1,
                    f"a token is, or was, named {name}: take another name, so that records"
                    " stay clear",
                ) from error


@token_app.command("list")
@declare_verb(NoVerb("it lists names of tokens, and no study"))
def list_tokens(config: Config = None) -> None:
    """List the named tokens: scope, end, and the hour of the last use.

    Their secrets are kept nowhere.
    """
    settings = migrated_settings(config)
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    with explained():
        found = LedgerViews(settings.ledger_url).access_tokens()
    for token in found:
        used = f"used {_day(token.last_used_at)}" if token.last_used_at else "not used"
        print(f"{token.name:32} {token.scope.value:8} {_state(token):24} {used}")


@token_app.command("revoke")
@performs(Verb.REVOKE_TOKEN)
def revoke_token(name: TokenName, config: Config = None) -> None:
    """End a token now, on all hosts, with the sessions that were begun with it."""
    settings = migrated_settings(config)
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.store.audit.access_tokens import AccessTokens  # noqa: PLC0415 - imports the ledger

    with explained():
        require_same_user(settings)
        with acting(settings, thing=Thing.TOKEN, name=name):
            if not AccessTokens(settings.ledger_url).revoke(name):
                raise ended(1, f"no valid token is named {name}")
    print(f"{name} is revoked")


@app.command()
@declare_verb(NoVerb("it makes a link to log in"))
def login(config: Config = None) -> None:
    """Print a link that logs a browser in, once and within ten minutes.

    For the user of the server.
    """
    settings = settings_of(config)
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - imports the ledger

    with explained():
        require_same_user(settings)
        make_state_folder(settings)
        print(login_link(settings))


def login_link(settings: Settings) -> str:
    """Return a new link for the person at the terminal. Raises OSError."""
    from hilum.api.auth.login_links import LoginLinks  # noqa: PLC0415 - no other command needs it

    return LoginLinks(settings).make(actor_here().name)


def _state(token: AccessToken) -> str:
    if token.revoked_at is not None:
        return f"revoked {_day(token.revoked_at)}"
    if token.expires_at is None:
        return "never ends"
    return f"{'ends' if token.is_valid(time.time()) else 'ended'} {_day(token.expires_at)}"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _require_name(name: str) -> None:
    from hilum.api.auth.tokens import RESERVED_NAMES  # noqa: PLC0415 - imports the ledger

    if not re.fullmatch(_NAME, name) or name in RESERVED_NAMES:
        problem = (
            "is kept for a token of Hilum's own"
            if name in RESERVED_NAMES
            else "is no name for a token"
        )
        raise ended(2, f"{name!r} {problem}: take letters, digits, and the signs . _ -")
