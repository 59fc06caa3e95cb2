"""Loading of a user's weights into a network of ours, when building, never by the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from torch import Tensor, nn

from hilum.errors import ConfigurationError
from hilum.models.formats import safetensors
from hilum.models.networks import checkpoint_names

_SHOWN: Final = 8


def read(path: Path, architecture: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by our names.

    Raises ConfigurationError: damaged, or of another architecture.
    """
    tensors = safetensors.read(path)
    try:
        return checkpoint_names.canonical(architecture, tensors)
    except ConfigurationError as error:
        raise ConfigurationError(
            [f"{path.name}: {problem}" for problem in error.problems]
        ) from error


def load_into(network: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Set the network's weights and put it into evaluation mode.

    Raises ConfigurationError that names the tensors that do not fit.
    """
    problems = [f"{origin}{problem}" for problem in _misfits(network.state_dict(), tensors)]
    if problems:
        more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
        raise ConfigurationError(problems[:_SHOWN] + more)
    network.load_state_dict(dict(tensors), strict=False)
    network.eval()


def _misfits(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[str]:
    needed = {name for name in own if not name.endswith("num_batches_tracked")}
    yield from (f" lacks {name}" for name in sorted(needed - set(given)))
    yield from (
        f" has {name}, which the architecture does not" for name in sorted(set(given) - set(own))
    )
    for name in sorted(needed & set(given)):
        yield from _tensor_problems(name, own[name], given[name])


def _tensor_problems(name: str, own: Tensor, given: Tensor) -> Iterator[str]:
    if given.shape != own.shape:
        yield f": {name} is {tuple(given.shape)}, the architecture needs {tuple(own.shape)}"
    elif not given.isfinite().all():
        yield f": {name} holds NaN or infinity; the weights are damaged"
