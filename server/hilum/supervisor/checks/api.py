"""Access to REST and the pages: TLS, and the tokens."""

from __future__ import annotations

import socket
import stat
import time
from collections.abc import Iterator, Sequence
from typing import Final

from hilum.api.auth.local_token import local_token_file
from hilum.api.tls import WebTls
from hilum.dicom.own_certificate import is_named
from hilum.domain import AccessToken
from hilum.settings import Api, Settings
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import Check
from hilum.supervisor.checks.peers import certificate

_GUESSABLE: Final = 24  # characters; `openssl rand -hex 16` gives 32
_SOON_SECONDS: Final = 14 * 86400.0


def api_tls(settings: Settings) -> Iterator[Check]:
    """Check whether tokens cross the network in clear, and when our certificate expires."""
    api = settings.api
    if api.tls_certificate_file is not None:
        WebTls(api)
        yield certificate("api TLS", api.tls_certificate_file, "api.tls_certificate_file")
        yield from _names(api)
    elif api.is_public and not api.proxies:
        advice = (
            "Set api.tls_certificate_file and tls_key_file, or put a proxy with TLS in front and"
            " name it in api.proxies."
        )
        yield Check(
            "api TLS",
            ok=False,
            detail=f"{api.host} is reached without TLS: tokens cross the network in clear",
            advice=advice,
        )
    else:
        yield Check(
            "api TLS",
            ok=True,
            detail="a proxy ends it" if api.proxies else "none: only this machine is served",
        )


def _names(api: Api) -> Iterator[Check]:
    """Check whether our certificate holds for the names by which clients reach this server."""
    assert api.tls_certificate_file is not None
    assert api.tls_key_file is not None
    names = api.names or ((socket.gethostname(),) if api.is_public else ())
    wrong = [
        name for name in names if not is_named(api.tls_certificate_file, api.tls_key_file, name)
    ]
    if wrong:
        advice = (
            "Clients that use such a name refuse it: get a certificate with them as Subject"
            " Alternative Names, or correct api.names."
        )
        detail = f"our certificate does not hold for {', '.join(wrong)}"
        yield Check("api TLS name", ok=False, detail=detail, advice=advice)


def api_tokens(settings: Settings) -> Iterator[Check]:
    """Check the token of the settings, and that of this host."""
    yield _of_settings(settings.api)
    file = local_token_file(settings)
    if file.exists() and file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        advice = f"Delete it and restart: rm {file}"
        yield Check(
            "local token",
            ok=False,
            detail=f"others may read {file}, which opens everything",
            advice=advice,
        )


def _of_settings(api: Api) -> Check:
    named = "named tokens end and can be revoked: hilum token create"
    if 0 < len(api.token) < _GUESSABLE:
        return Check(
            "api.token",
            ok=False,
            detail=f"it has less than {_GUESSABLE} characters and may be guessed",
            advice=f"{named}.",
        )
    return Check(
        "api.token",
        ok=True,
        detail=f"it opens everything; {named}" if api.token else "none, named tokens only",
    )


def named_tokens(settings: Settings) -> Iterator[Check]:
    """Check the tokens in the ledger; a token that ends soon is named."""
    now = time.time()
    valid = [
        token for token in LedgerViews(settings.ledger_url).access_tokens() if token.is_valid(now)
    ]
    ending = [
        token.name
        for token in valid
        if token.expires_at is not None and token.expires_at - now < _SOON_SECONDS
    ]
    soon = f"; of these end within two weeks: {', '.join(ending)}" if ending else ""
    yield Check("tokens", ok=True, detail=f"{_count(valid)} valid{soon}")


def _count(tokens: Sequence[AccessToken]) -> str:
    return f"{len(tokens)} named token{'' if len(tokens) == 1 else 's'}"
