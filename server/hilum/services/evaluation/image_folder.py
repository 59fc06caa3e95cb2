"""A folder of images that a campaign shall read: which labelled images are in it."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hilum.errors import ConfigurationError
from hilum.evaluate.cases.scores import ORIGIN, ImageIndex
from hilum.evaluate.cases.truth import LabelChoices, LabelledCase, read_truth
from hilum.evaluate.protocol.protocol import Protocol

_PICTURES: Final = (".png", ".jpg", ".jpeg")
_VIEWS: Final = {"PA": "PA", "AP": "AP", "LL": "LL", "RL": "RL", "LATERAL": "LL", "LL/RL": "LL"}
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class ImagesOfLabels:
    """The labelled images of a folder. `plan_option`: with which a campaign is planned.

    `missing`: the first names without a file.
    """

    labelled: int
    found: int
    missing: tuple[str, ...]
    plan_option: str


def look_for_images(
    protocol: Protocol, choices: LabelChoices, labels: Sequence[Path], folder: Path
) -> ImagesOfLabels:
    """Find the labelled images below a folder, and write a list of pictures for a campaign.

    The list is `<protocol>-pictures.csv` in the working folder; DICOM files need none. Raises
    ConfigurationError and OSError.
    """
    if not folder.is_dir():
        raise ConfigurationError([f"--images {folder}: it is no folder"])
    truth = read_truth(protocol, labels, choices)
    found, missing = _found(protocol, truth.cases, folder)
    if not found:
        raise ConfigurationError(
            [f"--images {folder}: it holds none of the {len(truth.cases)} labelled images"]
        )
    return ImagesOfLabels(
        len(truth.cases),
        len(truth.cases) - len(missing),
        tuple(missing[:_SHOWN]),
        _plan_option(protocol, folder, found),
    )


def _found(
    protocol: Protocol, cases: Sequence[LabelledCase], folder: Path
) -> tuple[list[tuple[Path, LabelledCase]], list[str]]:
    """Return the files of labelled cases, and the names without a file."""
    files = _files(folder)
    by_study = protocol.labelled == "study"
    index = ImageIndex(ORIGIN, [str(path) for path in files], is_folder=by_study)
    names = _names(cases, by_study=by_study)
    rows = [index.find(name) for name in names]
    found = [(files[row], case) for case, each in zip(cases, rows, strict=True) for row in each]
    return found, [name for name, each in zip(names, rows, strict=True) if not each]


def _names(cases: Sequence[LabelledCase], *, by_study: bool) -> list[str]:
    return [case.study if by_study else case.image for case in cases]


def _files(folder: Path) -> list[Path]:
    return sorted(path.absolute() for path in folder.rglob("*") if path.is_file())


def _plan_option(
    protocol: Protocol, folder: Path, found: Sequence[tuple[Path, LabelledCase]]
) -> str:
    pictures = [(path, case) for path, case in found if path.suffix.lower() in _PICTURES]
    if not pictures:
        return f"--folder {shlex.quote(str(folder.absolute()))}"
    listed = Path(f"{protocol.name}-pictures.csv").absolute()
    _write_list(listed, pictures)
    return f"--pictures {shlex.quote(str(listed))}"


def _write_list(path: Path, pictures: Sequence[tuple[Path, LabelledCase]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "study", "view"])
        for picture, case in pictures:
            writer.writerow([picture, case.study, _VIEWS.get(case.view.upper(), "")])
