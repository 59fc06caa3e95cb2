"""From a stored object to wire tensors, in a decode process: the seam between the server and the preprocessing library."""

from __future__ import annotations

import time

from pydicom import Dataset

from hilum.analyse.worker import Answer, NotReady, Ready, Request
from hilum_preprocessing import Flag, InputSpec, NotAnalysable, StoredValues, check_tags, decode, prepare_stored, read_file


def prepare_for_releases(request: Request) -> Answer:
    """A wire tensor or a reason for each release. Tags are checked first: an image that no release wants is never decoded."""
    try:
        dataset = read_file(request.path)
    except NotAnalysable as error:
        return dict.fromkeys(request.input_specs, _not_ready(error))
    answer: Answer = {}
    wanted: dict[str, tuple[InputSpec, str]] = {}
    for name, mapping in request.input_specs.items():
        spec = InputSpec.from_mapping(mapping)
        try:
            wanted[name] = spec, check_tags(dataset, spec)
        except NotAnalysable as error:
            answer[name] = _not_ready(error)
    return answer | (_prepare_wanted(request, dataset, wanted) if wanted else {})


def _prepare_wanted(request: Request, dataset: Dataset, wanted: dict[str, tuple[InputSpec, str]]) -> Answer:
    started = time.perf_counter()
    try:
        stored = decode(dataset, request.maximum_pixels)
    except NotAnalysable as error:
        return dict.fromkeys(wanted, _not_ready(error))
    seconds = time.perf_counter() - started
    return {name: _prepare_one(request, stored, spec, view, seconds) for name, (spec, view) in wanted.items()}


def _prepare_one(request: Request, stored: StoredValues, spec: InputSpec, view: str, decode_seconds: float) -> Ready | NotReady:
    started = time.perf_counter()
    try:
        tensor = prepare_stored(stored, spec, request.device)
    except NotAnalysable as error:
        return _not_ready(error)
    flags = (*stored.flags, Flag.VIEW_UNKNOWN.value) if view == "UNKNOWN" else stored.flags
    return Ready(tensor.cpu().numpy(), view, flags, spec.version, decode_seconds, time.perf_counter() - started)


def _not_ready(error: NotAnalysable) -> NotReady:
    return NotReady(error.reason.value, error.detail)
