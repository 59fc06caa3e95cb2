"""Download of a published file, only on request and only with a digest from the user."""

from __future__ import annotations

import hashlib
import http.client
import urllib.request
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError

_PIECE: Final = 1 << 20
_MOST_BYTES: Final = 4 << 30
_SILENCE_SECONDS: Final = 60.0


def fetch(address: str, sha256: str, destination: Path) -> None:
    """Write the file to `destination`.

    Raises ConfigurationError: not reached, or not the file of this digest. Then nothing is at
    `destination`.
    """
    if not address.startswith("https://"):
        raise ConfigurationError([f"{address}: only https is fetched"])
    try:
        found = _write(address, destination)
    except (
        OSError,
        http.client.HTTPException,
        ValueError,
    ) as error:  # ValueError: not an address
        destination.unlink(missing_ok=True)
        raise ConfigurationError(
            [f"{address}: {error}; fetch it by other means and name the file"]
        ) from error
    if found != sha256:
        destination.unlink()
        raise ConfigurationError(
            [f"{address} has sha256 {found}, you said {sha256}: nothing was imported"]
        )


def _write(address: str, destination: Path) -> str:
    digest = hashlib.sha256()
    size = 0
    with (
        # Only https comes here: `fetch` refuses other addresses.
        urllib.request.urlopen(address, timeout=_SILENCE_SECONDS) as answer,  # noqa: S310
        destination.open("xb") as sink,
    ):
        while piece := answer.read(_PIECE):
            size += len(piece)
            if size > _MOST_BYTES:
                raise OSError(f"more than {_MOST_BYTES} bytes")
            digest.update(piece)
            sink.write(piece)
    return digest.hexdigest()
