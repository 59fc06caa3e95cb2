"""Small radiographs that are drawn and encoded once.

A study with new UIDs costs three replaced UIDs.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass

from testing.network.negotiation import Kind
from testing.phantoms import phantom
from testing.phantoms.encoded import Outgoing, encode, fresh_objects

_PIXELS = 128


@dataclass(frozen=True, slots=True)
class Image:
    """One SOP Instance as it goes out."""

    study_instance_uid: str
    outgoing: Outgoing

    @property
    def sop_instance_uid(self) -> str:
        """Its name in every row."""
        return self.outgoing.sop_instance_uid

    @property
    def kind(self) -> Kind:
        """SOP Class and Transfer Syntax."""
        return self.outgoing.sop_class_uid, self.outgoing.transfer_syntax_uid

    @property
    def digest(self) -> str:
        """sha256 of the data set: what the archive must hold, byte for byte."""
        return hashlib.sha256(b"".join(self.outgoing.pieces)).hexdigest()


class Supply:
    """Studies without end, the same for the same seed."""

    def __init__(self, seed: int, views: Sequence[str] = ("PA", "AP"), pictures: int = 4) -> None:
        self._random = random.Random(seed)
        self._studies = [
            [
                encode(phantom.make_instance(n, view, rows=_PIXELS, columns=_PIXELS))
                for view in views
            ]
            for n in range(pictures)
        ]

    def study(self) -> list[Image]:
        """The images of a study under new UIDs."""
        study, objects = fresh_objects(self._random.choice(self._studies), self._random)
        return [Image(study, outgoing) for outgoing in objects]
