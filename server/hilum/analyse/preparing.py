"""From a stored object to wire tensors, in a decode process: the seam between the server and the preprocessing library."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pydicom import Dataset

from hilum import telemetry
from hilum.analyse.worker import Answer, NotReady, Ready, Request
from hilum_preprocessing import InputSpec, NotAnalysable, StoredValues, check_tags, decode, prepare_stored, read_file, tag_flags


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A release that takes the image, going by its tags."""

    spec: InputSpec
    view: str
    flags: tuple[str, ...]


def prepare_for_releases(request: Request) -> Answer:
    """A wire tensor or a reason for each release. Tags are checked first: an image that no release wants is never decoded."""
    try:
        with telemetry.cpu("decode"):
            dataset = read_file(request.path)
    except NotAnalysable as error:
        return dict.fromkeys(request.input_specs, _not_ready(error))
    answer: Answer = {}
    wanted: dict[str, _Wanted] = {}
    for name, mapping in request.input_specs.items():
        spec = InputSpec.from_mapping(mapping)
        try:
            view = check_tags(dataset, spec)
        except NotAnalysable as error:
            answer[name] = _not_ready(error)
        else:
            wanted[name] = _Wanted(spec, view, tag_flags(dataset, spec, view))
    return answer | (_prepare_wanted(request, dataset, wanted) if wanted else {})


def _prepare_wanted(request: Request, dataset: Dataset, wanted: Mapping[str, _Wanted]) -> Answer:
    started = time.perf_counter()
    try:
        with telemetry.cpu("decode"):
            stored = decode(dataset, request.maximum_pixels)
    except NotAnalysable as error:
        return dict.fromkeys(wanted, _not_ready(error))
    seconds = time.perf_counter() - started
    return {name: _prepare_one(request, stored, item, seconds) for name, item in wanted.items()}


def _prepare_one(request: Request, stored: StoredValues, wanted: _Wanted, decode_seconds: float) -> Ready | NotReady:
    started = time.perf_counter()
    try:
        with telemetry.cpu("prepare"):
            tensor = prepare_stored(stored, wanted.spec, request.device)
    except NotAnalysable as error:
        return _not_ready(error)
    flags = (*stored.flags, *wanted.flags)
    seconds = time.perf_counter() - started
    return Ready(tensor.cpu().numpy(), wanted.view, flags, wanted.spec.version, decode_seconds, seconds)


def _not_ready(error: NotAnalysable) -> NotReady:
    return NotReady(error.reason.value, error.detail)
