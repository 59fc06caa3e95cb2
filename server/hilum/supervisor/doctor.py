"""The doctor: examines an installation and says what to do about each problem. It changes nothing."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hilum.errors import ConfigurationError
from hilum.models.build import is_built
from hilum.settings import Destination, Settings
from hilum.store.migrate import current_revision, expected_revision
from hilum.triton.runtime import preflight
from hilum.wiring.releases import active_releases
from hilum.wiring.sockets import bind

_CONNECT_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    advice: str = ""


def examine(settings: Settings) -> Iterator[Check]:
    """Every check, in the order in which a person would mend them."""
    yield Check("settings", ok=True, detail="valid")
    yield from _state_folder(settings)
    yield _ledger(settings)
    yield _port("receive", settings.receive.host, settings.receive.port)
    yield _port("api", settings.api.host, settings.api.port)
    yield from _releases(settings)
    yield from _triton(settings)
    if not settings.destinations:
        advice = "Add [destinations.<name>] to the settings; until then results are only in REST."
        yield Check("destinations", ok=False, detail="none configured", advice=advice)
    for name, destination in settings.destinations.items():
        yield _destination(name, destination)


def _state_folder(settings: Settings) -> Iterator[Check]:
    folder = settings.site.state_dir
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        yield Check(
            "state folder", ok=False, detail=f"{folder} is not writable", advice="Make it writable for this user, or set site.state_dir."
        )
        return
    yield Check("state folder", ok=True, detail=f"{folder}{'' if folder.exists() else ' (will be made)'}")
    free, reserve = shutil.disk_usage(existing).free, settings.receive.reserve_bytes
    detail = f"{free / 1e9:.1f} GB free, {reserve / 1e9:.1f} GB reserved"
    yield Check("disk", free > reserve, detail, "C-STORE is refused with 0xA700: free space, or lower receive.reserve_bytes.")


def _ledger(settings: Settings) -> Check:
    url = settings.ledger_url
    if url.startswith("sqlite") and not Path(url.partition("///")[2]).exists():
        return Check("ledger", ok=True, detail="SQLite, will be made at the first start")
    return _unless_refused("ledger", lambda: _revision(url))


def _revision(url: str) -> Check:
    found, expected = current_revision(url), expected_revision()
    advice = f"This version needs {expected}: back up, then `hilum serve` migrates."
    return Check("ledger", found in (None, expected), f"revision {found or 'none yet'}", advice)


def _port(section: str, host: str, port: int) -> Check:
    title, where = f"{section} port", f"{host}:{port}"
    try:
        bind(section, host, port).close()
    except ConfigurationError as error:
        if _accepts(_reachable(host), port):
            return Check(title, ok=True, detail=f"{where} is in use and answers; if that is not Hilum, set {section}.port")
        return Check(title, ok=False, detail="; ".join(error.problems))
    return Check(title, ok=True, detail=f"{where} is free, so no server runs there now")


def _reachable(host: str) -> str:
    """The wildcard addresses are for binding; to look at them, loopback."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def _releases(settings: Settings) -> Iterator[Check]:
    try:
        releases = active_releases(settings)
    except ConfigurationError as error:
        yield Check("releases", ok=False, detail="; ".join(error.problems))
        return
    for name, release in releases.items():
        built = is_built(release, settings.built_dir)
        trained = "trained" if release.is_trained else "UNTRAINED weights: its numbers mean nothing"
        yield Check(f"release {name}", built, f"{'built' if built else 'not built'}, {trained}", f"Run `hilum models build {name}`.")


def _triton(settings: Settings) -> Iterator[Check]:
    if settings.triton.url:
        host, _, port = settings.triton.url.rpartition(":")
        ok = port.isdigit() and _accepts(host, int(port))
        yield Check("triton", ok, settings.triton.url, "Nothing answers there: start that Triton, or set triton.url (empty: embedded).")
        return
    problems = preflight()
    yield from (Check("triton", ok=False, detail=problem) for problem in problems)
    if not problems:
        yield Check("triton", ok=True, detail="embedded tritonserver can start")


def _destination(name: str, destination: Destination) -> Check:
    title = f"destination {name}"
    if destination.kind == "folder":
        path = destination.path or Path()
        ok = os.access(path if path.exists() else path.parent, os.W_OK)
        return Check(title, ok, f"folder {path}", "Make it writable for this user.")
    if destination.kind == "sender":
        return Check(title, ok=True, detail=f"back to {', '.join(destination.ports)}, wherever their studies come from")
    where = f"{destination.ae_title}@{destination.host}:{destination.port}"
    advice = "Nothing answers there: check host, port and firewall; results wait until it does."
    return Check(title, _accepts(destination.host, destination.port), where, advice)


def _accepts(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=_CONNECT_SECONDS):
            return True
    except OSError:
        return False


def _unless_refused(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except ConfigurationError as error:
        return Check(name, ok=False, detail="; ".join(error.problems))
