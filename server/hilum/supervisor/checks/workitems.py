"""Checks of worklist managers. No request is sent to one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from hilum.settings import Settings, WorkitemManager
from hilum.supervisor.checks.check import Check, accepts, unless_refused
from hilum.supervisor.checks.peers import secret_files, tls_files

_PORTS: Final = {"https": 443, "http": 80}


def workitem_managers(settings: Settings) -> Iterator[Check]:
    """Check whether each manager accepts connections, and its files."""
    for name, section in settings.workitems.items():
        yield from unless_refused(f"work items {name}", _manager(name, section))


def _manager(name: str, section: WorkitemManager) -> Iterator[Check]:
    title = f"work items {name}"
    url = urlsplit(section.url)
    place = url.hostname or "", url.port or _PORTS[url.scheme]
    advice = (
        "Nothing answers there: check `url` and the firewall; its items wait. `hilum workitems"
        " list` shows its last answer."
    )
    yield Check(title, accepts(*place), f"{section.kind}, {section.url}", advice)
    yield from secret_files(title, f"workitems.{name}", section)
    yield from tls_files(title, f"workitems.{name}", section)
