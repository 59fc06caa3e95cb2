"""The gate of a source that needs none: files and the archive."""

from __future__ import annotations

from hilum.retrieve.pace.limits import Wait


class OpenGate:
    """A source that may be asked at any time; see `runner.Gate`."""

    def closed(self) -> Wait | None:
        """Return None."""
        return None

    def ended(self, images: int, seconds: float, *, is_outage: bool) -> None:
        """Do nothing."""
