"""Label files as the public data sets ship them, small, and exports of scores for them."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

CHEXPERT = [
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
]
FIVE = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")


def write_csv(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def chexpert_valid(folder: Path, studies: int = 24) -> Path:
    """Two views a study, two studies a patient; class k is positive in each study whose number is k modulo 5."""
    rows = []
    for number in range(studies):
        stem = f"CheXpert-v1.0-small/valid/patient{64541 + number // 2}/study{1 + number % 2}"
        labels = [
            float(name in FIVE and number % 5 == FIVE.index(name)) if name in FIVE else 0.0
            for name in CHEXPERT
        ]
        about = ["Male" if number % 2 else "Female", 30 + number]
        rows.append([f"{stem}/view1_frontal.jpg", *about, "Frontal", "AP", *labels])
        rows.append([f"{stem}/view2_lateral.jpg", *about, "Lateral", "", *labels])
    header = ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *CHEXPERT]
    return write_csv(folder / "valid.csv", header, rows)


def nih(folder: Path, rows: Sequence[tuple[str, str, int, str, str, str]]) -> Path:
    """`rows`: image, findings, patient, age, sex, view."""
    header = (
        "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
    )
    return write_csv(
        folder / "Data_Entry_2017.csv",
        [*header.split(","), "OriginalImage[Width", "Height]"],
        [
            [image, found, 0, patient, age, sex, view, 1024, 1024]
            for image, found, patient, age, sex, view in rows
        ],
    )


def export_csv(
    path: Path,
    scores: Mapping[str, Mapping[str, float]],
    release: str = "chest@1",
    points: Mapping[str, float] | None = None,
    *,
    is_trained: bool = True,
) -> Path:
    """The table of `hilum export`, with the columns that matter. `scores`: by origin and finding."""
    rows = [
        [1, f"1.2.{place}", f"1.2.{place}.1", origin, release, finding, score,
         (points or {}).get(finding, ""), str(is_trained).lower(), "true"]
        for place, (origin, said) in enumerate(scores.items())
        for finding, score in said.items()
    ]  # fmt: skip
    header = (
        "format_version,study_instance_uid,sop_instance_uid,origin,release,finding,score,"
        "operating_point,is_trained,is_current"
    )
    return write_csv(path, header.split(","), rows)
