"""Which extra of the package brings a module that is not installed.

`pip install hilum` brings the server; engines and the tools that build releases are extras of
pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(("onnx", "onnxscript", "safetensors"), "models"),
        # The extra `models` has onnxruntime, too; a host that runs engines wants all of `embedded`.
        **dict.fromkeys(("onnxruntime", "openvino"), "embedded"),
        "duckdb": "parquet",
        "s3fs": "s3",
        "obstore": "object-store",
    }
)
"""Top-level module, as it is imported, and the extra that brings it."""


def in_words(error: Exception) -> str:
    """Of an optional engine's error: the command where its extra is missing, else its own words."""
    return (sentence(error) if isinstance(error, ImportError) else None) or str(error)


def sentence(error: ImportError) -> str | None:
    """Return the missing module and its install command. None: it belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(module) if isinstance(error, ModuleNotFoundError) else None
    if extra is None:
        return None
    return (
        f'{module} is not installed; it comes with the extra "{extra}": pip install'
        f' "hilum[{extra}]"'
    )
