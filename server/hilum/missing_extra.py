"""Which extra of the package brings a module that is not installed.

It needs the standard library alone, because all else may be absent. `pip install hilum` brings the
preprocessing library; the server and its tools are extras of pyproject.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SERVER: Final = (
    "alembic",
    "anyio",
    "fastapi",
    "google",
    "grpc",
    "highdicom",
    "jinja2",
    "opentelemetry",
    "orjson",
    "prometheus_client",
    "psycopg",
    "pydantic",
    "pynetdicom",
    "python_multipart",
    "rich",
    "sqlalchemy",
    "starlette",
    "structlog",
    "tritonclient",
    "typer",
    "uvicorn",
    "xxhash",
)
EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(_SERVER, "server"),
        **dict.fromkeys(("onnx", "onnxscript", "safetensors"), "models"),
        # The extra `models` has onnxruntime, too; a host that runs engines wants all of `embedded`.
        **dict.fromkeys(("onnxruntime", "openvino", "pytriton"), "embedded"),
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
    wanted = "server" if extra == "server" else f"server,{extra}"
    return (
        f'{module} is not installed; it comes with the extra "{extra}": pip install'
        f' "hilum[{wanted}]"'
    )
