"""Sentences for people: what stands in the structured report and in JSON beside the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from hilum.domain import Decision, Outcome, Reason, Release, Result
from hilum.report.context import HeatMap, ReportContext

_LONG_STRING: Final = 64  # characters of LO (PS3.5 6.2)
DECISIONS: Final[Mapping[Decision, str]] = {
    Decision.PRESENT: "Present",
    Decision.ABSENT: "Absent",
    Decision.UNDECIDED: "Undetermined",
}


def series_description(result: Result) -> str:
    """Series Description: the line that a PACS shows before anybody opens the report."""
    words = ["unverified"]
    words += [] if result.is_calibrated else ["uncalibrated"]
    words += [] if result.is_trained else ["untrained"]
    what = "not analysed" if result.outcome is Outcome.NOT_ANALYSED else "findings"
    return _with_release(f"AI CXR {what}, ", result.release, f" ({', '.join(words)})")


def not_analysed(result: Result) -> str:
    """Why a study has no findings, and that this is no finding."""
    return f"Not analysed ({result.reason}): {meaning_of(result.reason)} That nothing is reported here does not mean that nothing is there."


def heat_map_description(result: Result) -> str:
    """Series Description of heat maps."""
    words = [] if result.is_calibrated else ["uncalibrated"]
    words += [] if result.is_trained else ["untrained"]
    return _with_release("AI heat map, not for diagnosis, ", result.release, f" ({', '.join(words)})" if words else "")


def _with_release(before: str, release: str, after: str) -> str:
    """One value of LO. Reports of several releases lie side by side; what must be known of their numbers is never cut, a release is."""
    room = _LONG_STRING - len(before) - len(after)
    if len(release) <= room:
        return f"{before}{release}{after}"
    end = room // 2  # both ends: names differ at the beginning, versions at the end
    return f"{before}{release[: room - 1 - end]}~{release[-end:]}{after}"


def caveats(result: Result, release: Release, context: ReportContext, heat_map: HeatMap | None = None) -> list[str]:
    """What a reader must know before reading a number, one sentence or two each."""
    said = [context.disclaimer, "Preliminary and unverified: no physician has confirmed this report."]
    if not result.is_calibrated:
        said.append("Uncalibrated: a score is the output of the model, not a probability.")
    if not result.is_trained:
        said.append(
            "Untrained: the weights of this release are not trained. For technical tests only; no finding is called present or absent."
        )
    if release.intended_use:
        said.append(f"Intended use: {release.intended_use}")
    if heat_map is not None and heat_map.left_out:
        said.append(f"No heat map: {heat_map.left_out}")
    if result.has_several_orders:
        said.append("The images name different Accession Numbers; this report has that of the image that gives it the patient.")
    return [*said, *_unused(result), *_not_in_findings(result, release)]


def meaning_of(reason: str | None) -> str | None:
    """The sentence that belongs to a reason; a reason of a later version stands for itself."""
    if reason is None:
        return None
    return Reason(reason).meaning if reason in Reason._value2member_map_ else reason


def _unused(result: Result) -> Iterator[str]:
    total = len(result.source_images)
    counted = Counter(image.reason for image in result.source_images if not image.is_used)
    for reason, count in counted.items():
        images = f"{count} of {total} images" if total > 1 else "The only image"
        yield f"{images} not used ({reason}): {meaning_of(reason)}"


def _not_in_findings(result: Result, release: Release) -> Iterator[str]:
    """Images that were analysed and that no finding rests on, because the aggregation takes others."""
    analysed = [image.sop_instance_uid for image in result.source_images if image.is_used]
    left = set(analysed).difference(*(finding.source_sop_instance_uids for finding in result.findings))
    if result.findings and left:
        images = f"{len(left)} of {len(analysed)} analysed images {'is' if len(left) == 1 else 'are'}"
        yield f"{images} not in the findings ({release.aggregation}): they rest on the others alone."
