"""The doctor: examines an installation and gives a remedy for each problem.

It changes nothing. In an object store it puts a small object and deletes it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hilum.domain import RolloutState
from hilum.errors import ConfigurationError, Retry
from hilum.models.build.build import is_built, speed_advice, tree_of
from hilum.receive.association.tls import ServerTls
from hilum.receive.storage import compiled
from hilum.services.releases.releases import active_releases
from hilum.services.releases.rollouts import RolloutVerbs, in_words
from hilum.settings import LOOPBACK, Receive, Sender, Settings, Watch
from hilum.store.archive.archive import Free, free_in
from hilum.store.archive.durable_rename import durable_rename_of
from hilum.store.migrations.revision import (
    ADVICE_IF_NEWER,
    REVISION,
    current_revision,
    is_absent,
    is_newer,
)
from hilum.store.queries.views import LedgerViews
from hilum.store.rollouts.rollouts import CannotRollOut, Rollouts
from hilum.supervisor.checks.access import access, secrets, usable
from hilum.supervisor.checks.api import api_tls, api_tokens, named_tokens
from hilum.supervisor.checks.archive import archive_checks
from hilum.supervisor.checks.audit import collector_files, collector_waits
from hilum.supervisor.checks.check import AS_SERVER, Check, unless_refused
from hilum.supervisor.checks.hosts import clock, other_hosts, waiting
from hilum.supervisor.checks.ledger import (
    ledger_connections,
    ledger_file,
    ledger_server,
    ledger_tls,
)
from hilum.supervisor.checks.peers import authority, certificate, peers, revocations, unserved
from hilum.supervisor.checks.ports import port_checks
from hilum.supervisor.checks.reports import reports, withheld
from hilum.supervisor.checks.retention import retention_checks
from hilum.supervisor.checks.rules import rules
from hilum.supervisor.checks.sources import campaigns, sources
from hilum.supervisor.checks.triton import triton_checks
from hilum.supervisor.checks.workitems import workitem_managers
from hilum.supervisor.checks.worklist import worklist
from hilum_preprocessing.resize import compiled as resizing

_REJECTED: Final = "new associations are rejected"


def examine(settings: Settings, settings_file: Path | None = None) -> Iterator[Check]:
    """Return every check, in the order in which a person would mend the problems.

    `settings_file`: the file of these settings.
    """
    yield Check("settings", ok=True, detail="valid")
    yield from unless_refused("state folder", _state_folder(settings))
    yield from unless_refused("access", access(settings))
    yield from unless_refused("secrets", secrets(settings, settings_file))
    yield from unless_refused("files", usable(settings))
    yield from unless_refused("ledger TLS", ledger_tls(settings))
    yield from (ledger := list(unless_refused("ledger", _ledger(settings))))
    if all(check.ok for check in ledger):
        yield from (file := list(_file_checks(settings)))
        ledger += file
        yield from unless_refused("archive", archive_checks(settings))
    has_ledger = all(check.ok for check in ledger) and not is_absent(settings.ledger_url)
    yield from unless_refused("unindexed", waiting(settings))
    yield from _ports(settings)
    yield Check("receive", ok=True, detail=f"large objects {compiled.loaded()[1]}")
    yield Check("resize", ok=True, detail=resizing.loaded()[1])
    yield from unless_refused("releases", _releases(settings))
    if has_ledger:
        for name, check in _IN_LEDGER.items():
            yield from unless_refused(name, check(settings))
    yield from unless_refused("audit collector", collector_files(settings))
    yield from unless_refused("triton", triton_checks(settings))
    yield from _neighbours(settings)
    yield from unless_refused("rules", rules(settings, has_ledger=has_ledger))
    yield from unless_refused("reports", reports(settings, has_ledger=has_ledger))
    yield from peers(settings)
    yield from sources(settings)
    yield from workitem_managers(settings)
    yield from worklist(settings)


def _file_checks(settings: Settings) -> Iterator[Check]:
    if not is_absent(settings.ledger_url):
        yield from unless_refused("ledger file", ledger_file(settings))
        yield from unless_refused("ledger connections", ledger_connections(settings))
    yield from unless_refused("ledger server", ledger_server(settings))


def _ports(settings: Settings) -> Iterator[Check]:
    """Check the ports, and the access of their callers."""
    yield from port_checks(settings)
    if settings.receive.tls_port:
        yield from unless_refused("receive TLS", _certificates(settings.receive))
    yield _senders_admitted(settings.receive)
    yield from unless_refused("api TLS", api_tls(settings))
    yield from unless_refused("api.token", api_tokens(settings))


def _neighbours(settings: Settings) -> Iterator[Check]:
    """Check the watched folders and the senders, and that there is a destination."""
    for name, watch in settings.watch.items():
        yield from unless_refused(f"watch {name}", _watched(name, watch))
    yield from (_sender(title, sender) for title, sender in settings.senders.items())
    if not settings.destinations:
        advice = "Add [destinations.<name>] to the settings; until then results are only in REST."
        yield Check("destinations", ok=False, detail="none configured", advice=advice)


def _state_folder(settings: Settings) -> Iterator[Check]:
    folder = settings.site.state_dir
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"{AS_SERVER}, make it writable for this user, or set site.state_dir."
        yield Check("state folder", ok=False, detail=f"{folder} is not writable", advice=advice)
        return
    yield Check(
        "state folder",
        ok=True,
        detail=f"{folder.resolve()}{'' if folder.exists() else ' (will be made)'}",
    )
    yield _disk(settings, free_in(existing))


def _disk(settings: Settings, left: Free) -> Check:
    limits = settings.receive
    syncs = durable_rename_of(settings.archive_dir, limits.durability).syncs
    detail = (
        f"{_gigabytes(left.bytes)} free, {_gigabytes(limits.reserve_bytes)} reserved,"
        f" {syncs} sync{'s'[: syncs > 1]} a received object"
    )
    advice = None
    if left.bytes <= limits.reserve_bytes:
        advice = "C-STORE is refused with 0xA700: free space, or lower receive.reserve_bytes."
    elif left.bytes < limits.reject_below_bytes:
        detail += f"; below {_gigabytes(limits.reject_below_bytes)} {_REJECTED}"
        advice = "Free space, or lower receive.reject_bytes (default: twice receive.reserve_bytes)."
    elif left.files is not None and left.files < limits.reject_below_files:
        detail = f"{left.files} inodes free; below {limits.reject_below_files} {_REJECTED}"
        advice = "Delete files in this file system, or lower receive.reserve_files."
    return Check("disk", advice is None, detail, advice or "")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def _ledger(settings: Settings) -> Iterator[Check]:
    url = settings.ledger_url
    yield Check("ledger", ok=True, detail="SQLite, none yet") if is_absent(url) else _revision(url)


def _revision(url: str) -> Check:
    found = current_revision(url)
    if is_newer(found):
        return Check(
            "ledger",
            ok=False,
            detail=f"revision {found} is of a newer version of Hilum than this one",
            advice=ADVICE_IF_NEWER,
        )
    advice = f"This version needs {REVISION}: back up, then run `hilum migrate`."
    return Check("ledger", found in (None, REVISION), f"revision {found or 'none yet'}", advice)


def _senders_admitted(receive: Receive) -> Check:
    """Check the limits on senders: a sender may reject and correct the images of its AE Title."""
    bounds = {
        "receive.peers": receive.peers,
        "receive.calling_ae_titles": receive.calling_ae_titles,
        "receive.tls_client_ca_file": receive.tls_client_ca_file and not receive.allow_unencrypted,
    }
    found = [name for name, value in bounds.items() if value]
    if found or receive.host in LOOPBACK:
        return Check("senders", ok=True, detail=f"bounded by {', '.join(found) or 'receive.host'}")
    detail = (
        "ANYBODY who reaches the port may send under any AE Title, also under that of another"
        " sender, and so reject or correct its images"
    )
    advice = f"set {', '.join(list(bounds)[:-1])}"
    tls = "or tls_client_ca_file with allow_unencrypted = false"
    return Check("senders", ok=True, detail=f"{detail}: {advice}, {tls}")


def _certificates(receive: Receive) -> Iterator[Check]:
    assert receive.tls_certificate_file is not None, "settings refuse tls_port without it"
    ServerTls(receive)
    found = certificate("receive TLS", receive.tls_certificate_file, "receive.tls_certificate_file")
    senders = (
        "must show a certificate"
        if receive.tls_client_ca_file
        else "need no certificate (receive.tls_client_ca_file)"
    )
    detail = f"certificate and key belong together; senders {senders}; {found.detail}"
    yield Check(found.name, found.ok, detail, found.advice)
    if receive.tls_client_ca_file is not None:
        yield authority("receive CA", receive.tls_client_ca_file, "receive.tls_client_ca_file")
    if receive.tls_crl_file is not None:
        yield revocations("receive CRL", receive.tls_crl_file, "receive.tls_crl_file")


def _watched(name: str, watch: Watch) -> Iterator[Check]:
    """Check the access to a watched folder.

    A file that cannot be moved or deleted would be taken once and stay.
    """
    wanted = os.R_OK | os.X_OK | (0 if watch.when_taken == "keep" else os.W_OK)
    is_usable = watch.path.is_dir() and os.access(watch.path, wanted)
    advice = (
        "Make it a folder that this user may"
        f" read{'' if watch.when_taken == 'keep' else ' and write'}, or set watch.{name}.path."
    )
    yield Check(f"watch {name}", is_usable, str(watch.path), advice)


def _sender(title: str, sender: Sender) -> Check:
    """Return the settings that differ for this sender.

    Its references are checked with the settings and the releases.
    """
    own = [name for name, value in sender if value not in (None, ())]
    return Check(
        f"sender {title}", ok=True, detail=f"its own: {', '.join(own)}" if own else "as all others"
    )


def _releases(settings: Settings) -> Iterator[Check]:
    try:
        releases = active_releases(settings)
    except ConfigurationError as error:
        yield Check("releases", ok=False, detail="; ".join(error.problems))
        return
    for name, release in releases.items():
        built = is_built(release, settings.built_dir)
        trained = "trained" if release.is_trained else "UNTRAINED weights: its numbers mean nothing"
        slow = (
            speed_advice(release, tree_of(release, settings.built_dir))
            if built and not settings.triton.addresses
            else None
        )
        detail = "; ".join(filter(None, (f"{'built' if built else 'not built'}, {trained}", slow)))
        yield Check(f"release {name}", built, detail, f"Run `hilum models build {name}`.")


def _rollouts(settings: Settings) -> Iterator[Check]:
    """Check each alias: the release that reads new studies, and the one that is to follow."""
    url = settings.ledger_url
    with (
        contextlib.closing(Rollouts(url)) as rollouts,
        contextlib.closing(LedgerViews(url)) as views,
    ):
        verbs = RolloutVerbs(settings, rollouts, views)
        try:
            found = verbs.list()
        except Retry as error:  # a ledger without tables
            yield Check("rollouts", ok=True, detail=error.detail)
            return
        yield from (_rollout(verbs, item) for item in found)


def _rollout(verbs: RolloutVerbs, item: dict[str, Any]) -> Check:
    name = f"rollout {item['alias']}"
    (_, _, words) = in_words(item).partition(": ")
    if item["state"] == RolloutState.REFUSED:
        advice = f"Mend it and start again, or `hilum rollout stop {item['alias']}`."
        return Check(name, ok=False, detail=words, advice=advice)
    is_over = item["changed_at"] is None or item["state"] == RolloutState.CLOSED
    problem = None if is_over else _not_loadable(verbs, item)
    if problem is None:
        return Check(name, ok=True, detail=words + _edited(verbs, item["configured"]))
    advice = "Put it back, or roll out another release."
    return Check(name, ok=False, detail=f"{words}; {problem}", advice=advice)


def _edited(verbs: RolloutVerbs, configured: str) -> str:
    """Return the edit of a manifest that takes effect at the server's next start.

    A manifest that cannot be read has a check of its own.
    """
    with contextlib.suppress(CannotRollOut):
        if verbs.is_edited(configured):
            return (
                f"; the manifest of {configured} was edited since the server started, and holds"
                " from its next start on"
            )
    return ""


# Checks that read the rows of a ledger.
_IN_LEDGER: Final[Mapping[str, Callable[[Settings], Iterator[Check]]]] = {
    "tokens": named_tokens,
    "clock": clock,
    "hosts": other_hosts,
    "retention": retention_checks,
    "rollouts": _rollouts,
    "campaigns": campaigns,
    "withheld": withheld,
    "destinations": unserved,
    "audit": collector_waits,
}


def _not_loadable(verbs: RolloutVerbs, item: dict[str, Any]) -> str | None:
    """Return the fault of a release that the rollout needs loaded.

    The releases of the settings have a check of their own.
    """
    try:
        for name in (item["serving"], item["previous"], item["candidate"]):
            if name is not None and name != item["configured"]:
                verbs.require_unedited(name)
                verbs.require_built(name)
    except CannotRollOut as error:
        return str(error)
    return None
