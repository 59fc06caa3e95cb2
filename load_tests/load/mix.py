"""The studies of a scenario, drawn and encoded once, and kept in two files that the sender's processes map into memory."""

from __future__ import annotations

import json
import mmap
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.network.negotiation import Kind
from testing.phantoms.encoded import Outgoing, Template, fresh_objects

StudyTemplate = tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of study: how often, from whom, and what it looks like."""

    weight: float
    calling_ae_title: str
    studies: tuple[StudyTemplate, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """All kinds of a scenario.

    Which one study `number` is does not change from run to run; its UIDs do.
    """

    parts: tuple[Part, ...]

    @property
    def wire_kinds(self) -> list[Kind]:
        """SOP Classes and Transfer Syntaxes that associations propose."""
        return sorted(
            {
                (image.sop_class_uid, image.transfer_syntax_uid)
                for part in self.parts
                for study in part.studies
                for image in study
            }
        )

    def study(self, number: int, uids: random.Random) -> tuple[str, str, list[Outgoing]]:
        """Calling AE Title, Study Instance UID and objects of the study with this number."""
        source = random.Random(number)
        part = source.choices(self.parts, [part.weight for part in self.parts])[0]
        study_uid, objects = fresh_objects(source.choice(part.studies), uids)
        return part.calling_ae_title, study_uid, objects

    def mean_bytes(self) -> float:
        """Bytes of the data sets of a study, on average."""
        sizes = [
            sum(image.size for study in part.studies for image in study) / len(part.studies)
            for part in self.parts
        ]
        return sum(part.weight * size for part, size in zip(self.parts, sizes, strict=True)) / sum(
            part.weight for part in self.parts
        )

    def save(self, folder: Path) -> None:
        """`mix.json` and `mix.bin`."""
        with (folder / "mix.bin").open("wb") as content:
            index = [
                {
                    "weight": part.weight,
                    "ae": part.calling_ae_title,
                    "studies": [
                        [_saved(image, content) for image in study] for study in part.studies
                    ],
                }
                for part in self.parts
            ]
        (folder / "mix.json").write_text(json.dumps(index), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Mix:
        """What `save` wrote; pixel data stay in the mapped file, one copy for all processes."""
        with (folder / "mix.bin").open("rb") as content:
            view = memoryview(mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ))
        index = json.loads((folder / "mix.json").read_text(encoding="utf-8"))
        return cls(
            tuple(
                Part(part["weight"], part["ae"], _studies(part["studies"], view)) for part in index
            )
        )


def _saved(image: Template, content: Any) -> dict[str, Any]:  # noqa: ANN401 - a binary file
    start = content.tell()
    content.write(image.head)
    content.write(image.tail)
    return {
        "class": image.sop_class_uid,
        "syntax": image.transfer_syntax_uid,
        "start": start,
        "split": start + len(image.head),
        "end": content.tell(),
        "places": image.places,
    }


def _studies(
    index: Sequence[Sequence[dict[str, Any]]], view: memoryview
) -> tuple[StudyTemplate, ...]:
    return tuple(tuple(_loaded(image, view) for image in study) for study in index)


def _loaded(image: dict[str, Any], view: memoryview) -> Template:
    head = bytes(view[image["start"] : image["split"]])
    tail = view[image["split"] : image["end"]]
    return Template(
        image["class"],
        image["syntax"],
        head,
        tail,
        tuple(tuple(places) for places in image["places"]),
    )
