"""Sentences for people beside the numbers, in the structured report and in JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from hilum.domain import REASONS, Decision, Outcome, Release, Result, SourceImage
from hilum.report.context import HeatMap, ReportContext
from hilum_preprocessing.errors import flag_meaning

_LONG_STRING: Final = 64  # characters of LO (PS3.5 6.2)
_LIST_COLUMN: Final = 32  # characters that worklists of viewers show
# An image and its number in the order of arrival, by which JSON, REST and the page list it.
_Numbered = tuple[int, SourceImage]
_Key = TypeVar("_Key")
DECISIONS: Final[Mapping[Decision, str]] = {
    Decision.PRESENT: "Present",
    Decision.ABSENT: "Absent",
    Decision.UNDECIDED: "Undetermined",
}


def series_description(result: Result, title: str = "AI CXR") -> str:
    """Return Series Description: a PACS shows this line before the report is opened, and cuts it.

    Its first 32 characters are whole words: that it is AI, its state, and the release.
    """
    is_analysed = result.outcome is not Outcome.NOT_ANALYSED
    words = [] if result.is_trained else ["untrained"]
    words += ["unverified"]
    words += (
        ["uncalibrated"] if is_analysed and not result.is_calibrated else []
    )  # else there is no number
    first, *others = words if is_analysed else ["not analysed", *words]
    after = f" ({', '.join(others)})" if others else ""
    return _with_release(f"{title} {first}, ", result.release, _LIST_COLUMN) + after


def not_analysed(result: Result) -> str:
    """Why a study has no findings, and that this is no finding."""
    return (
        f"Not analysed ({result.reason}): {meaning_of(result.reason)} That nothing is reported here"
        " does not mean that nothing is there."
    )


def picture_description(result: Result, title: str) -> str:
    """Series Description of heat maps and result sheets."""
    words = [] if result.is_calibrated else ["uncalibrated"]
    words += [] if result.is_trained else ["untrained"]
    after = f" ({', '.join(words)})" if words else ""
    return (
        _with_release(f"{title}, not for diagnosis, ", result.release, _LONG_STRING - len(after))
        + after
    )


def _with_release(before: str, release: str, most: int) -> str:
    """Return at most `most` characters: the release may be cut, the words before it never."""
    room = most - len(before)
    if len(release) <= room:
        return f"{before}{release}"
    end = room // 2  # both ends: names differ at the beginning, versions at the end
    return f"{before}{release[: room - 1 - end]}~{release[-end:]}"


def caveats(
    result: Result, release: Release, context: ReportContext, heat_map: HeatMap | None = None
) -> list[str]:
    """Return the caveats that a reader needs before a number, one or two sentences each."""
    said = [
        context.disclaimer,
        "Preliminary and unverified: no physician has confirmed this report.",
    ]
    if result.findings and not result.is_calibrated:
        said.append("Uncalibrated: a score is the output of the model, not a probability.")
    if not result.is_trained:
        said.append(
            "Untrained: the weights of this release are not trained. For technical tests only; no"
            " finding is called present or absent."
        )
    said += doubts_of(result)
    if release.intended_use:
        said.append(f"Intended use: {release.intended_use}")
    if heat_map is not None and heat_map.left_out:
        said.append(f"No heat map: {heat_map.left_out}")
    if result.has_several_orders:
        said.append(
            "The images name different Accession Numbers; this report has that of the image that"
            " gives it the patient."
        )
    return [*said, *_not_in_findings(result, release)]


def meaning_of(reason: str | None) -> str | None:
    """The sentence that belongs to a reason; a reason of a later version stands for itself."""
    if reason is None:
        return None
    return REASONS[reason].meaning if reason in REASONS else reason


def doubts_of(result: Result) -> list[str]:
    """Return those caveats that are about images: not used, or in doubt."""
    return [*_unused_images(result), *_doubts(result)]


def _unused_images(result: Result) -> Iterator[str]:
    """Of each reason why images were not used: its sentence, and the images."""
    total = len(result.source_images)
    unused = _grouped(result, lambda image: () if image.is_used else (image.reason,))
    for reason, images in unused.items():
        how_many = f"{len(images)} of {total} images" if total > 1 else "The only image"
        yield f"{how_many} not used ({reason}): {meaning_of(reason)}{_which(images, total)}"


def _doubts(result: Result) -> Iterator[str]:
    """Of each flag: its sentence, and the images."""
    total = len(result.source_images)
    for flag, images in _grouped(result, lambda image: image.flags).items():
        is_of_all = len(images) == total > 1
        which = f" All {total} images." if is_of_all else _which(images, total)
        yield f"In doubt ({flag}): {flag_meaning(flag)}{which}"


def _grouped(
    result: Result, keys_of: Callable[[SourceImage], Sequence[_Key]]
) -> dict[_Key, list[_Numbered]]:
    """Return the images with their numbers, by each of their keys."""
    grouped: dict[_Key, list[_Numbered]] = defaultdict(list)
    for number, image in enumerate(result.source_images, 1):
        for key in keys_of(image):
            grouped[key].append((number, image))
    return grouped


def _which(images: Sequence[_Numbered], total: int) -> str:
    """The images by number, view and UID; nothing where all are meant."""
    if len(images) == total:
        return ""
    return "".join(f" Image {number} of {total}: {_named(image)}." for number, image in images)


def _named(image: SourceImage) -> str:
    view = "view unknown" if image.view in (None, "", "UNKNOWN") else f"view {image.view}"
    return f"{view}, SOP Instance UID {image.sop_instance_uid}"


def _not_in_findings(result: Result, release: Release) -> Iterator[str]:
    """Return the images that were analysed but that no finding uses, by the aggregation."""
    analysed = [image.sop_instance_uid for image in result.source_images if image.is_used]
    left = set(analysed).difference(
        *(finding.source_sop_instance_uids for finding in result.findings)
    )
    if result.findings and left:
        images = (
            f"{len(left)} of {len(analysed)} analysed images {'is' if len(left) == 1 else 'are'}"
        )
        yield (
            f"{images} not in the findings ({release.aggregation}): they rest on the others alone."
        )
