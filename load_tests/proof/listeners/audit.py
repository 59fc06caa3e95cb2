"""Is what was acknowledged there byte for byte, is every object whole, and do the ledger and the archive name the same ones?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import create_engine, select

from hilum.store.schema.tables import instance
from load_tests.load.measure import Goal
from load_tests.proof.evidence import digest_of_file, stray_files
from load_tests.proof.listeners.senders import Objects

_PART = ".part"


@dataclass(slots=True)
class Broken:
    """Promises that were not kept, one line a case, each once however often it is seen."""

    lost: set[str] = field(default_factory=set)
    torn: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)

    def goals(self) -> list[Goal]:
        """All of them are zero."""
        return [
            Goal("acknowledged objects lost, or with other bytes", len(self.lost), "objects", 0),
            Goal("partial files under a final name", len(self.torn), "files", 0),
            Goal(
                "differences between ledger and archive after the scan",
                len(self.different),
                "files",
                0,
            ),
        ]

    def examples(self) -> list[str]:
        """The first of each kind."""
        return [
            line for lines in (self.lost, self.torn, self.different) for line in sorted(lines)[:5]
        ]


def add_goals(sums: dict[str, Goal], goals: Iterable[Goal]) -> None:
    """What several audits found, by name."""
    for goal in goals:
        before = sums[goal.name].value if goal.name in sums else 0
        sums[goal.name] = Goal(goal.name, before + goal.value, goal.unit, goal.goal)


@dataclass(slots=True)
class Left:
    """What dead listeners left behind: that the kills meet objects on their way."""

    half_received: int = 0
    without_place: int = 0


class Auditor:
    """Of one archive and its ledger, while nobody receives."""

    def __init__(self, archive: Path, ledger_url: str, objects: Objects) -> None:
        self.broken = Broken()
        self.left = Left()
        self._archive = archive
        self._ledger_url = ledger_url
        self._objects = objects
        self._digests: dict[str, str] = {}

    def look_into(self, inbox: Iterable[Path]) -> None:
        """As a dead listener has left it, before the next one scans it."""
        whole = set(self._objects.sent.values())
        for file in inbox:
            if file.suffix == _PART:
                self.left.half_received += 1
                continue
            self.left.without_place += 1
            if digest_of_file(file) not in whole:
                self.broken.torn.add(f"{file.name}: after the kill")

    def audit(self, *, is_last: bool = False) -> int:
        """After the scan; objects in the ledger.

        Bytes are read once, and at the last time all of them once more.
        """
        if is_last:
            self._digests.clear()
        paths = self._paths()
        kept = {uid: self._digest(path) for uid, path in paths.items()}
        self._find_lost(kept)
        self._find_torn(kept)
        self.broken.different |= {
            f"{name}: no row" for name in stray_files(self._archive, set(paths.values()))
        }
        self.broken.different |= {
            f"{path}: no file" for path in paths.values() if not self._digest(path)
        }
        return len(paths)

    def _find_lost(self, kept: Mapping[str, str]) -> None:
        for uid in self._objects.acknowledged:
            if kept.get(uid) != self._objects.sent[uid]:
                self.broken.lost.add(
                    f"{uid}: acknowledged, and {'other bytes' if kept.get(uid) else 'not'} in the"
                    " archive"
                )

    def _find_torn(self, kept: Mapping[str, str]) -> None:
        """Also among those that were stored and not acknowledged."""
        self.broken.torn |= {
            f"{uid}: in its place"
            for uid, digest in kept.items()
            if digest and digest != self._objects.sent.get(uid)
        }

    def _paths(self) -> dict[str, str]:
        engine = create_engine(self._ledger_url)
        try:
            with engine.connect() as connection:
                return {
                    row.sop_instance_uid: row.path
                    for row in connection.execute(
                        select(instance.c.sop_instance_uid, instance.c.path)
                    )
                }
        finally:
            engine.dispose()

    def _digest(self, path: str) -> str:
        if path not in self._digests:
            self._digests[path] = digest_of_file(self._archive / path)
        return self._digests[path]
