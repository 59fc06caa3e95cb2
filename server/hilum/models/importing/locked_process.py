"""The caller's side of the locked process in which `convert` reads a pickle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.models.importing import convert

_TIME_OUT_SECONDS: Final = 600.0
_COMMAND: Final = (sys.executable, "-I", "-m", "hilum.models.importing.convert")


def to_safetensors(source: Path, destination: Path) -> None:
    """Write the tensors of a torch file as safetensors.

    Raises ConfigurationError; then nothing is at `destination`.
    """
    with source.open("rb") as given, destination.open("xb") as sink:
        try:
            done = subprocess.run(  # noqa: S603 - our own module
                _COMMAND,
                stdin=given,
                stdout=sink,
                stderr=subprocess.PIPE,
                env={},
                cwd="/",
                timeout=_TIME_OUT_SECONDS,
                check=False,
            )
            problem = _problem(done)
        except subprocess.TimeoutExpired:
            problem = f"it was not read in {_TIME_OUT_SECONDS:g} s"
    if problem:
        destination.unlink()
        raise ConfigurationError([f"{source}: {problem}"])


def _problem(done: subprocess.CompletedProcess[bytes]) -> str | None:
    if not done.returncode:
        return None
    said = (done.stderr.decode("ascii", "replace").splitlines() or ["it said nothing"])[-1]
    return (
        said
        if done.returncode == convert.REFUSED
        else f"the process that reads pickles ended with status {done.returncode}: {said[:300]}"
    )
