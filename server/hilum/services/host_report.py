"""Facts of this host, for the heartbeat of its server and for checks before its start."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import Final

from hilum import __version__
from hilum.domain import HostFacts
from hilum.services import roles
from hilum.services.shared_settings import shared_digests
from hilum.settings import Settings
from hilum.store.database.clocks import ClockReading
from hilum.store.migrations.revision import REVISION

_DIGITS: Final = 16
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")


@functools.cache
def machine() -> str:
    """Return the identity of this machine or container, whichever name it has.

    It is that of the running kernel and of the namespace of our process ids. A machine that starts
    again has a new one. Empty where a sandbox shows neither: then nothing tells two machines apart.
    """
    try:
        own = f"{_BOOT.read_text(encoding='ascii').strip()} {_NAMESPACE.readlink()}"
    except OSError:
        return ""
    return hashlib.sha256(own.encode()).hexdigest()[:_DIGITS]


def host_facts(
    settings: Settings, role: str, clock: ClockReading | None, archive: str | None
) -> HostFacts:
    """Return the facts of this host. `archive`: as in `HostFacts`."""
    return HostFacts(
        machine=machine(),
        roles=role,
        version=__version__,
        revision=REVISION,
        clock_offset_seconds=None if clock is None else round(clock.offset_seconds, 3),
        round_trip_seconds=None if clock is None else round(clock.round_trip_seconds, 4),
        settings=shared_digests(settings),
        archive=archive,
    )


def needs_archive(role: str) -> bool:
    """Return whether these roles use stored objects. A dispatcher does not see them."""
    return roles.of(role) != {"dispatcher"}
