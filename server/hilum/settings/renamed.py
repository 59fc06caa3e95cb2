"""Names of earlier versions, each with the name or the advice that replaces it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# A setting's place: the name that it has now, or a sentence where it is gone or its values changed.
# `*` is a name that the file chooses, as that of a destination.
_SETTINGS: Final[Mapping[str, str]] = {
    "routes.*.lane": "priority",
    "senders.*.lane": "priority",
    "watch.*.lane": "priority",
    "analyse.reads_once": "drop_page_cache",
    "receive.plain": "allow_unencrypted",
    "receive.name_sync": (
        '`name_sync` is now called `durability`: rename it, and write "strict" for "twice"'
    ),
    "receive.listener": "unknown setting; leave it out, there is one listener",
    "receive.direct_io": (
        "unknown setting; leave it out: received objects always go through the page cache, as with"
        " false"
    ),
    "receive.maximum_associations_by_ae": (
        "unknown setting; say it in [senders.<CALLING_AE_TITLE>], as maximum_associations"
    ),
    "studies.quiet_seconds_by_ae": (
        "unknown setting; say it in [senders.<CALLING_AE_TITLE>], as quiet_seconds"
    ),
}
_NAMED: Final = frozenset(place.split(".")[0] for place in _SETTINGS if ".*." in place)
_OPTIONS: Final[Mapping[str, str]] = {"--lane": "--priority"}


def advice_for_setting(place: tuple[str, ...]) -> str | None:
    """Return the advice for a setting of an earlier version; None: there was none."""
    section, *names = place
    if section in _NAMED and len(names) == 2:
        names[0] = "*"
    new = _SETTINGS.get(".".join((section, *names)))
    return _renamed(place[-1], new) if new and new.isidentifier() else new


def advice_for_option(word: str) -> str | None:
    """Return the advice for a command's option of an earlier version, or None."""
    name = word.partition("=")[0]
    return _renamed(name, _OPTIONS[name]) if name in _OPTIONS else None


def _renamed(old: str, new: str) -> str:
    return f"`{old}` is now called `{new}`: rename it"
