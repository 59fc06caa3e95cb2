"""The same question after every fault.

Is everything there that was acknowledged, once, unchanged, and nothing left lying?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from load_tests.load.measure import Goal
from load_tests.proof.evidence import Evidence, Report

WITHOUT_ROW = "came, and no row"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, one line a case; all empty: nothing is.

    `repeated`: documents that came again with the same bytes, as they may.
    """

    lost: tuple[str, ...]
    unreported: tuple[str, ...]
    contradicting: tuple[str, ...]
    stuck: tuple[str, ...]
    stray: tuple[str, ...]
    repeated: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether every promise was kept."""
        return not any((self.lost, self.unreported, self.contradicting, self.stuck, self.stray))

    def goals(self) -> list[Goal]:
        """All of them are zero."""
        return [
            Goal("acknowledged images lost", len(self.lost), "images", 0),
            Goal("reports lost", len(self.unreported), "studies", 0),
            Goal("contradicting duplicates", len(self.contradicting), "documents", 0),
            Goal("stuck rows", len(self.stuck), "rows", 0),
            Goal("stray files", len(self.stray), "files", 0),
        ]

    def examples(self) -> list[str]:
        """The first of each kind."""
        kinds = (self.lost, self.unreported, self.contradicting, self.stuck, self.stray)
        return [line for lines in kinds for line in lines[:_SHOWN]]


def judge(
    acknowledged: Mapping[str, str], studies: Mapping[str, frozenset[str]], found: Evidence
) -> Verdict:
    """Hold what was found against what was acknowledged.

    SOP Instance UID to digest, and study to its images.
    """
    return Verdict(
        lost=tuple(_lost(acknowledged, found)),
        unreported=tuple(_unreported(studies, found)),
        contradicting=tuple(_contradicting(found)),
        stuck=tuple(_stuck(found)),
        stray=found.stray_files,
        repeated=found.repeated,
    )


def _lost(acknowledged: Mapping[str, str], found: Evidence) -> Iterable[str]:
    for uid, digest in acknowledged.items():
        if uid not in found.kept:
            yield f"{uid}: acknowledged, and no row"
        elif found.kept[uid] != digest:
            yield (
                f"{uid}: acknowledged, and {'other bytes in' if found.kept[uid] else 'not in'} the"
                " archive"
            )


def _unreported(studies: Mapping[str, frozenset[str]], found: Evidence) -> Iterable[str]:
    for study, images in studies.items():
        reports = found.current.get(study, [])
        if not any(images <= report.images and report.arrived is not None for report in reports):
            yield f"{study}: the PACS has no report on all of its {len(images)} images"


def _contradicting(found: Evidence) -> Iterable[str]:
    yield from (f"{uid}: came with other bytes" for uid in found.changed)
    yield from (f"{uid}: {WITHOUT_ROW}" for uid in found.without_row)
    yield from (f"{study}: two results in one revision" for study in found.same_revision)
    for study, reports in found.current.items():
        if len(reports) > 1:
            yield f"{study}: {len(reports)} current reports"
        yield from (
            f"{report.sop_instance_uid}: came with other bytes than are stored"
            for report in reports
            if _differs(report)
        )


def _differs(report: Report) -> bool:
    return report.arrived is not None and report.arrived != report.digest


def _stuck(found: Evidence) -> Iterable[str]:
    """One line a row: a goal counts them."""
    for kind, count in {**found.open_rows, **found.stuck_rows}.items():
        yield from [kind] * count
