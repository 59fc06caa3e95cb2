"""From a stored object to wire tensors, in a decode process.

This is the seam between the server and the preprocessing library.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

from pydicom import Dataset

from hilum.analyse.decode.worker import (
    Answer,
    Checked,
    DecodedImage,
    DecodedPicture,
    DecodeRequest,
    NotReady,
    Ready,
    SpecAccepted,
    SpecCheck,
)
from hilum.observability import telemetry
from hilum_preprocessing import (
    Decoding,
    InputSpec,
    NotAnalysable,
    PixelHeader,
    PixelLimits,
    StoredValues,
    admitted,
    check_pixels,
    check_tags,
    decoding_for,
    level_flags,
    prepare_array,
    read_file,
    tag_flags,
)
from hilum_preprocessing.guard.doubts import require_no_doubt
from hilum_preprocessing.header.body_parts import SiteWords
from hilum_preprocessing.self_check import self_check


def answer_request(request: DecodeRequest | SpecCheck) -> Answer | DecodedImage | Checked:
    """Return a decode process's result: tensors, or stored values for a device to prepare."""
    if isinstance(request, SpecCheck):
        return check_spec(request)
    return (
        decode_for_releases(request) if request.is_decoded_only else prepare_for_releases(request)
    )


def check_spec(check: SpecCheck) -> Checked:
    """Prepare the known pictures with a release's InputSpec.

    Another library, or a driver in another precision, shows before any patient's image.
    """
    return Checked(self_check(InputSpec.from_mapping(check.input_spec), check.device))


@dataclass(frozen=True, slots=True)
class _Known:
    """A parsed InputSpec with its mapping and version.

    Reading and digesting it takes longer than checking an image's tags.
    """

    mapping: Mapping[str, Any]
    spec: InputSpec
    version: str


_KNOWN: dict[str, _Known] = {}
"""By release: every release that this process has read with."""


def _known(release: str, mapping: Mapping[str, Any]) -> _Known:
    known = _KNOWN.get(release)
    if known is None or known.mapping != mapping:
        spec = InputSpec.from_mapping(mapping)
        known = _KNOWN[release] = _Known(mapping, spec, spec.version)
    return known


def prepare_for_releases(request: DecodeRequest) -> Answer:
    """Return a wire tensor or a reason for each release."""
    decoded = _decode(request)
    return prepare_decoded(request, decoded) if isinstance(decoded, DecodedImage) else decoded


def decode_for_releases(request: DecodeRequest) -> Answer | DecodedImage:
    """Return the stored values, if at least one release takes the image.

    Tags are checked first, so an image that no release takes is never decoded.
    """
    decoded = _decode(request)
    if not isinstance(decoded, DecodedImage):
        return decoded
    return replace(
        decoded,
        pictures=tuple(
            [
                replace(item, facts=replace(item.facts, array=item.array[:0]))
                for item in decoded.pictures
            ]
        ),
    )


def _decode(request: DecodeRequest) -> Answer | DecodedImage:
    """Return the same, with the array still in the facts of each picture."""
    with telemetry.cpu("decode"):
        return _decode_charged(request)


def _decode_charged(request: DecodeRequest) -> Answer | DecodedImage:
    try:
        dataset = read_file(
            request.path,
            drops_page_cache=request.drops_page_cache,
            wants=partial(_is_wanted, request),
        )
    except NotAnalysable as error:
        return dict.fromkeys(request.input_specs, _not_ready(error))
    not_ready: dict[str, NotReady] = {}
    site = _site(request.site_words)
    wanted: dict[Decoding, dict[str, SpecAccepted]] = {}
    for name, mapping in request.input_specs.items():
        spec = _known(name, mapping).spec
        try:
            view, header = admitted(dataset, spec, site)
            decoding = decoding_for(dataset, spec)
        except NotAnalysable as error:
            not_ready[name] = _not_ready(error)
        else:
            wanted.setdefault(decoding, {})[name] = SpecAccepted(
                view, tag_flags(dataset, spec, view, site)
            )
    pictures = tuple(_pictures(request, dataset, header, wanted, not_ready)) if wanted else ()
    return DecodedImage(pictures, not_ready) if pictures else dict(not_ready)


def _is_wanted(request: DecodeRequest, dataset: Dataset) -> bool:
    """Return whether a release takes the image.

    A lateral view, for example, need not be read from the disk as a whole.
    """
    site = _site(request.site_words)
    return any(
        _takes(name, mapping, dataset, site) for name, mapping in request.input_specs.items()
    )


def _takes(release: str, mapping: Mapping[str, Any], dataset: Dataset, site: SiteWords) -> bool:
    try:
        check_tags(dataset, _known(release, mapping).spec, site)
    except NotAnalysable:
        return False
    except Exception:  # noqa: BLE001 - an error of our own, which the file's reader would take for the file's; it recurs outside
        return True
    return True


def _pictures(
    request: DecodeRequest,
    dataset: Dataset,
    header: PixelHeader,
    wanted: Mapping[Decoding, Mapping[str, SpecAccepted]],
    not_ready: dict[str, NotReady],
) -> Iterator[DecodedPicture]:
    """Return a picture for each way of decoding that a release wants.

    Releases whose decoding fails are added to `not_ready`.
    """
    for decoding, accepted in wanted.items():
        started = time.perf_counter()
        try:
            stored = decoding.of(dataset, request.maximum_pixels, header)
            doubts = check_pixels(
                stored, PixelLimits(**request.pixel_limits), request.refused_flags
            )
        except NotAnalysable as error:
            not_ready.update(dict.fromkeys(accepted, _not_ready(error)))
            continue
        flagged = dict(_flagged(request, stored, doubts, accepted, not_ready))
        if flagged:
            yield DecodedPicture(stored.array, stored, flagged, time.perf_counter() - started)


def _flagged(
    request: DecodeRequest,
    stored: StoredValues,
    doubts: tuple[str, ...],
    accepted: Mapping[str, SpecAccepted],
    not_ready: dict[str, NotReady],
) -> Iterator[tuple[str, SpecAccepted]]:
    """Return each release with its image's flags; refused ones are added to `not_ready`."""
    for name, item in accepted.items():
        of_levels = level_flags(stored, _known(name, request.input_specs[name]).spec)
        flags = (*stored.flags, *doubts, *of_levels, *item.flags)
        try:
            require_no_doubt(flags, request.refused_flags, request.refused_together)
        except NotAnalysable as error:
            not_ready[name] = _not_ready(error)
        else:
            yield name, SpecAccepted(item.view, flags)


@lru_cache(8)
def _site(words: tuple[tuple[str, ...], tuple[str, ...]]) -> SiteWords:
    """Return site words, normalised once and not for each image."""
    return SiteWords.of(*words)


def prepare_decoded(request: DecodeRequest, decoded: DecodedImage) -> Answer:
    """Return the tensors of an image from its stored values, on the request's device."""
    answer: Answer = dict(decoded.not_ready)
    for picture in decoded.pictures:
        facts: StoredValues = picture.facts
        stored = facts if facts.array is picture.array else replace(facts, array=picture.array)
        for name, accepted in picture.accepted.items():
            known = _known(name, request.input_specs[name])
            answer[name] = _prepare_one(
                stored, known, accepted, request.device, picture.decode_seconds
            )
    return answer


def _prepare_one(
    stored: StoredValues, known: _Known, accepted: SpecAccepted, device: str, decode_seconds: float
) -> Ready | NotReady:
    started = time.perf_counter()
    try:
        with telemetry.cpu("prepare"):
            tensor = prepare_array(stored, known.spec, device)
    except NotAnalysable as error:
        return _not_ready(error)
    seconds = time.perf_counter() - started
    return Ready(tensor, accepted.view, accepted.flags, known.version, decode_seconds, seconds)


def _not_ready(error: NotAnalysable) -> NotReady:
    return NotReady(error.reason.value, error.detail)
