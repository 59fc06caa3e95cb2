"""What the demo prints: progress, the study's JSON shortened, the time of each stage.

At most 80 columns wide.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

WIDTH = 80
DUE = {"due", "leased"}
_STARTED = time.monotonic()


def step(text: str) -> None:
    """Progress, with the seconds since the start."""
    print(f"{time.monotonic() - _STARTED:6.1f} s  {text}", flush=True)


def heading(text: str) -> None:
    """What comes next."""
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def what_is_open(study: dict[str, Any]) -> str:
    """What the study waits for; empty when it waits for nothing."""
    if study["open_readings"]:
        return (
            f"{study['images']} images received, being read"
            if isinstance(study["images"], int)
            else "images are being read"
        )
    if study["state"] in DUE:
        return "images are read; the quiet period runs"
    current = [result for result in study["results"] if result["is_current"]]
    if any(result["state"] in DUE for result in current):
        return "the report is being written"
    deliveries = [
        item
        for result in current
        for document in result["documents"]
        for item in document["deliveries"]
    ]
    return "the report is on its way" if any(item["state"] in DUE for item in deliveries) else ""


def shortened(study: dict[str, Any]) -> dict[str, Any]:
    """The part of the JSON that fits a screen: the three highest scores of each current result."""
    keep = ("disclaimer", "study_instance_uid", "state", "calling_ae_title")
    results = [_shortened_result(result) for result in study["results"] if result["is_current"]]
    return {**{name: study[name] for name in keep}, "results": results}


def _shortened_result(result: dict[str, Any]) -> dict[str, Any]:
    keep = ("release", "is_trained", "is_calibrated", "outcome", "reason", "preprocessing_version")
    ranked = sorted(result["findings"], key=lambda item: -item["score"])
    findings = [
        {"key": item["key"], "score": round(item["score"], 4), "decision": item["decision"]}
        for item in ranked[:3]
    ]
    more = [f"and {len(ranked) - 3} more"] if len(ranked) > 3 else []
    sources = [
        {name: item[name] for name in ("view", "is_used", "reason")}
        for item in result["source_images"]
    ]
    return {
        **{name: result[name] for name in keep},
        "findings": [*findings, *more],
        "source_images": sources,
    }


def json_lines(value: object, indent: int = 0) -> Iterator[str]:
    """JSON, objects of single values on one line each.

    What is wider than the screen ends in an ellipsis.
    """
    pad = " " * indent
    if isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values()):
        yield f"{pad}{{"
        for number, (name, item) in enumerate(value.items(), start=1):
            first, *rest = json_lines(item, indent + 2)
            lines = [f"{pad}  {json.dumps(name)}: {first.strip()}", *rest]
            yield from _with_comma(lines, is_last=number == len(value))
        yield f"{pad}}}"
    elif isinstance(value, list) and value:
        yield f"{pad}["
        for number, item in enumerate(value, start=1):
            yield from _with_comma(list(json_lines(item, indent + 2)), is_last=number == len(value))
        yield f"{pad}]"
    else:
        yield _cut(pad + json.dumps(value, ensure_ascii=False))


def _with_comma(lines: list[str], *, is_last: bool) -> Iterator[str]:
    yield from (_cut(line) for line in lines[:-1])
    yield _cut(lines[-1] + ("" if is_last else ","))


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else line[: WIDTH - 1] + "…"


def shortened_tree(text: str, groups: int = 2) -> Iterator[str]:
    """A report's tree with the first measurement groups only.

    There is one for each label, and they look alike.
    """
    seen = 0
    is_left_out = False
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip("│├└─ "))
        if depth <= 6:
            is_group = line.endswith("Measurement Group")
            seen += is_group
            is_left_out = is_group and seen > groups
            if not is_group and seen > groups:
                yield f"│  ┊  and {seen - groups} more measurement groups"
                seen = 0
        if not is_left_out:
            yield line


def times(study: dict[str, Any]) -> Iterator[str]:
    """When each boundary was passed, in seconds after the last image."""
    timing = study["timing"]
    zero = _seconds(timing["received_last"])
    names = {
        "received_first": "first image received",
        "received_last": "last image received",
        "analysed": "last image analysed",
        "quiet_until": "quiet period over",
        "result_stored": "result stored",
        "documents_stored": "SR stored",
        "first_delivered": "SR accepted by the destination",
    }
    for key, text in names.items():
        if timing.get(key):
            yield f"{_seconds(timing[key]) - zero:+9.3f} s  {text}"
    for image in study["images"]:
        for reading in image["readings"]:
            taken = {
                name.removesuffix("_seconds"): value
                for name, value in (reading["timings"] or {}).items()
                if name.endswith("_seconds")
            }
            steps = ", ".join(f"{name} {1000 * value:.0f} ms" for name, value in taken.items())
            yield (
                f"             {reading['view'] or reading['reason']}{': ' if steps else ''}{steps}"[
                    :WIDTH
                ]
            )


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
