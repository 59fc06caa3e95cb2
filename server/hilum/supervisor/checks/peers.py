"""Checks of peers: destinations, requesters of storage commitment, and removed destinations."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from hilum.deliver import probe_destination
from hilum.dicom.own_certificate import all_expire_at, crls_expire_at, expires_at, key_problem
from hilum.errors import Retry
from hilum.settings import (
    CommitmentPeer,
    CStoreDestination,
    Destination,
    HttpPeer,
    Settings,
    TlsClient,
)
from hilum.settings.service import Syslog
from hilum.store.queries.views import LedgerViews
from hilum.supervisor.checks.check import AS_SERVER, Check, accepts, unless_refused
from hilum.supervisor.checks.commitment import commitment

_ANSWER_SECONDS: Final = 10.0  # for each message: a person waits
_AT_ONCE: Final = 16
_DAY_SECONDS: Final = 86400.0
_RENEW_DAYS: Final = 30  # as in the alert HilumCertificateExpires
_SECRETS: Final = ("password_file", "token_file", "oauth_secret_file")


def peers(settings: Settings) -> Iterator[Check]:
    """Check all peers at once, because one that is down takes long.

    Return them in settings order.
    """
    looks: list[tuple[str, Callable[[], Iterator[Check]]]] = [
        *(
            (f"destination {name}", partial(_destination, name, item))
            for name, item in settings.destinations.items()
        ),
        *(
            (f"destination {name} commitment", partial(commitment, name, item, settings))
            for name, item in settings.destinations.items()
            if isinstance(item, CStoreDestination) and item.commitment
        ),
        *(
            (f"commitment {title}", partial(_requester, title, item))
            for title, item in settings.commitment.items()
        ),
    ]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = threads.map(lambda look: list(unless_refused(look[0], look[1]())), looks)
        yield from (check for checks in found for check in checks)


def _destination(name: str, destination: Destination) -> Iterator[Check]:
    """Check as `hilum destinations probe` does, with a shorter time limit."""
    title = f"destination {name}"
    found = probe_destination(name, destination, _ANSWER_SECONDS)
    where = f"{found.address}: "
    detail = found.detail if found.detail.startswith(where) else where + found.detail
    yield Check(title, found.is_ok, detail, found.advice)
    peer = destination.tls_client
    if isinstance(peer, HttpPeer):
        yield from secret_files(title, f"destinations.{name}", peer)
    if peer is not None:
        yield from tls_files(title, f"destinations.{name}", peer)


def _requester(title: str, peer: CommitmentPeer) -> Iterator[Check]:
    """Check that a requester accepts connections.

    Whether it takes reports is known only when one is due.
    """
    advice = (
        "Nothing answers there: check host, port and firewall; reports of storage commitment wait"
        " for receive.commitment_hours."
    )
    where = f"{peer.ae_title or title}@{peer.host}:{peer.port}"
    yield Check(f"commitment {title}", accepts(peer.host, peer.port), where, advice)
    yield from tls_files(f"commitment {title}", f"commitment.{title}", peer)


def secret_files(title: str, section: str, peer: HttpPeer) -> Iterator[Check]:
    """Check that each file of a secret can be read."""
    for key in _SECRETS:
        path: Path | None = getattr(peer, key)
        if path is None:
            continue
        try:
            with path.open("rb"):
                problem = ""
        except OSError as error:
            problem = error.strerror or type(error).__name__
        advice = f"{AS_SERVER}, make it readable for this user, or set {section}.{key}."
        detail = f"{key}: {path} {f'cannot be read: {problem}' if problem else 'can be read'}"
        yield Check(title, not problem, detail, advice)


def tls_files(title: str, section: str, peer: TlsClient | HttpPeer | Syslog) -> Iterator[Check]:
    """Check when the certificates of a TLS client expire, and whether its key fits."""
    if peer.certificate_file is not None:
        setting = f"{section}.certificate_file"
        yield certificate(f"{title} TLS", peer.certificate_file, setting, peer.key_file)
    if peer.ca_file is not None:
        yield authority(f"{title} CA", peer.ca_file, f"{section}.ca_file")


def certificate(title: str, file: Path, setting: str, key: Path | None = None) -> Check:
    """Check when one of our certificates expires, and whether `key` fits. Raises OSError."""
    moment = expires_at(file)
    if key is not None and (problem := key_problem(file, key)):
        return Check(
            title,
            ok=False,
            detail=problem,
            advice=f"Give {setting} the certificate that was made for the key, or its key.",
        )
    if moment <= time.time():
        return Check(
            title,
            ok=False,
            detail=f"our certificate expired on {_day(moment)}",
            advice=f"Others refuse it: renew {setting}.",
        )
    return Check(
        title,
        ok=True,
        detail=f"our certificate holds until {_day(moment)}{_warning(moment, setting)}",
    )


def authority(title: str, file: Path, setting: str) -> Check:
    """Check when the certificates of authorities expire. Raises OSError.

    One of several may be a former one, which is no longer needed.
    """
    ends = all_expire_at(file)
    holding = [moment for moment in ends if moment > time.time()]
    if not holding:
        advice = (
            "Nobody whose certificate it has signed is believed: put the authority's new one into"
            f" {setting}."
        )
        return Check(
            title,
            ok=False,
            detail=f"the authority's certificate expired on {_day(max(ends))}",
            advice=advice,
        )
    gone = (
        f"; {len(ends) - len(holding)} of {len(ends)} in {file} expired"
        if len(holding) < len(ends)
        else ""
    )
    return Check(
        title,
        ok=True,
        detail=(
            "the authority's certificate holds until"
            f" {_day(min(holding))}{_warning(min(holding), setting)}{gone}"
        ),
    )


def revocations(title: str, file: Path, setting: str) -> Check:
    """Check when the lists of revoked certificates expire. Raises OSError.

    OpenSSL accepts no certificate of an authority whose list has expired.
    """
    first = min(crls_expire_at(file))
    if first <= time.time():
        advice = (
            "Nobody whose authority it is of gets in by TLS: put the authority's new list into"
            f" {setting}, which takes no restart."
        )
        return Check(
            title,
            ok=False,
            detail=f"a list of revoked certificates expired on {_day(first)}",
            advice=advice,
        )
    ends = "for ever" if math.isinf(first) else f"until {_day(first)}"
    return Check(title, ok=True, detail=f"the list of revoked certificates holds {ends}")


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


def _warning(moment: float, setting: str) -> str:
    days = (moment - time.time()) / _DAY_SECONDS
    return f", in {days:.0f} days: RENEW {setting}" if days < _RENEW_DAYS else ""


def unserved(settings: Settings) -> Iterator[Check]:
    """Check for destinations that are paused, and for those outside the settings with deliveries.

    Their documents are not sent, and their pixels are not deleted.
    """
    with contextlib.closing(LedgerViews(settings.ledger_url)) as views:
        try:
            found = views.destination_states(settings.destinations)
        except Retry:  # a ledger without tables
            return
    for item in found:
        words = [f"{item[name]} {name}" for name in ("due", "waiting", "leased") if item[name]]
        if item["is_paused"] and item["is_configured"]:
            yield _paused(item["name"], words, item["detail"])
        words += [f"{count} dead: {reason}" for reason, count in item["dead"].items()]
        if words and not item["is_configured"]:
            detail = f"not in the settings, and deliveries to it are open: {', '.join(words)}"
            advice = (
                "Nobody sends them. Put it back, or give them up: `hilum destinations forget"
                f" {item['name']}`."
            )
            yield Check(f"destination {item['name']}", ok=False, detail=detail, advice=advice)


def _paused(name: str, waiting: Sequence[str], problem: str | None) -> Check:
    parts = [", ".join(waiting), problem or ""]
    detail = "; ".join(["paused", *filter(None, parts)])
    advice = (
        "Nothing is sent to it. When its receiver takes documents: `hilum destinations resume"
        f" {name}`."
    )
    return Check(f"destination {name}", ok=False, detail=detail, advice=advice)
