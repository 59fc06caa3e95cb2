"""CPU time of an image at each precision.

A CPU with instructions for bf16 is not always fast with them. AMD since Zen 4 and Intel with AMX
take about half of f32's time. An Intel without AMX, or a virtual machine that hides it, takes more
than f32.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hilum.models.formats.triton_model import Batch, Engine, open_engine

PRECISIONS: Final = ("f32", "bf16")
_TURNS = 6
_CALLS = 2
# of CPU; one turn of a network that takes a second is as precise as six of a small one
_ENOUGH_SECONDS: Final = 10.0
_WORTH: Final = 1.1  # times as fast; a smaller factor may be chance


def measure(artefact: Path, image: Batch) -> dict[str, float]:
    """Return CPU milliseconds of an image (1, C, H, W) by precision, in OpenVINO on one core.

    Raises RuntimeError: this CPU has no bf16.
    """
    return cpu_milliseconds(
        {name: open_engine(artefact, "openvino", name, "all", 1) for name in PRECISIONS}, image
    )


def cpu_milliseconds(
    engines: Mapping[str, Engine], image: Batch, clock: Callable[[], float] = time.process_time
) -> dict[str, float]:
    """Return CPU milliseconds of an image by the name of the engine.

    The best of several turns counts, so that a disturbance of the machine counts in none. A slow
    network has fewer turns, at least one: a build without output for minutes looks as if it hung.
    """
    for engine in engines.values():
        engine(image)  # the first call allocates memory
    turns = list[dict[str, float]]()
    began = clock()
    while len(turns) < _TURNS and not (turns and clock() - began > _ENOUGH_SECONDS):
        turns.append({name: _taken(engine, image, clock) for name, engine in engines.items()})
    return {name: round(min(turn[name] for turn in turns), 2) for name in engines}


def _taken(engine: Engine, image: Batch, clock: Callable[[], float]) -> float:
    began = clock()
    for _ in range(_CALLS):
        engine(image)
    return 1000 * (clock() - began) / _CALLS


def advice(precision: str, milliseconds: Mapping[str, float]) -> str | None:
    """Return advice where another precision is clearly faster than the release's own.

    None: it is not, or nothing was measured.
    """
    if precision not in milliseconds:
        return None
    best = min(milliseconds, key=lambda name: milliseconds[name])
    own = milliseconds[precision]
    if own < _WORTH * milliseconds[best]:
        return None
    return (
        f"{precision} takes {own:.0f} ms of CPU an image and {best} {milliseconds[best]:.0f} on the"
        f" machine that built it: where it serves on such a CPU, a release with precision {best} is"
        " faster"
    )
