"""Decisions of a person on single images, over the ledger and the archive of an installation."""

from __future__ import annotations

from pathlib import Path

from hilum.domain import Instance
from hilum.receive.indexing import same_bytes
from hilum.receive.indexing.describe import describe
from hilum.receive.statuses import CannotUnderstand
from hilum.settings import Settings
from hilum.store.admin.decisions import CannotResolve, Decisions
from hilum.store.archive.archives import open_archive


def open_decisions(settings: Settings) -> Decisions:
    """Return the decisions of an installation, to be closed after use.

    The ledger must have its revision.
    """
    return Decisions(settings.ledger_url, open_archive(settings), _described, sha256_of)


def _described(file: Path, seed: int) -> Instance:
    """Return the description of a file in quarantine.

    It could be read when it came, so an unreadable file has been damaged since.
    """
    try:
        return describe(file, seed)
    except CannotUnderstand as error:
        raise CannotResolve(
            f"The file in quarantine cannot be read any more: {error.comment}."
        ) from error


def sha256_of(file: Path) -> str:
    """Return the digest of the data set; empty: it cannot be read any more and equals no other."""
    try:
        return same_bytes.sha256_of(file)
    except CannotUnderstand:
        return ""
