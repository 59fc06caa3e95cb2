"""The exception for content that the template cannot hold.

The reference builder writes such a document, in another process, and a metric counts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNUSUAL: Final[Mapping[str, str]] = {
    "unknown_finding": (
        "the result has a finding that the release's manifest does not have any more, or with"
        " another code"
    ),
    "unknown_sop_class": (
        "the image that gives patient and study is of a SOP Class that highdicom does not know as"
        " an image"
    ),
    "template_refused": (
        "the template of the release did not write its samples as the reference writes them"
    ),
    "large_header": (
        "an image's header is larger than 256 KiB, and reading it would hold up the dispatcher"
    ),
    "lapsed": "a process died over this result, so it is built apart from the others",
}
"""The closed list of reasons."""


class Unusual(Exception):
    """Raised instead of filling a template.

    It comes out of other processes, too, so it is made of its arguments.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)

    @property
    def reason(self) -> str:
        """One of UNUSUAL."""
        return str(self.args[0])
