"""Plans of files: DICOM files of a folder or a bucket, and lists of pictures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from hilum.retrieve.files.address import open_tree
from hilum.retrieve.files.picture_layout import PictureColumns
from hilum.retrieve.files.picture_list import PictureList
from hilum.retrieve.files.picture_plan import plan_pictures
from hilum.retrieve.files.plan import plan_files
from hilum.retrieve.files.scan import scan
from hilum.settings import Settings
from hilum.store.campaigns.campaigns import PlanPart, SkippedOrigin
from hilum.store.ledger import Ledger


def plan_folder(settings: Settings, address: str, after: str) -> Iterator[PlanPart]:
    """Yield the plan of a folder, or of a bucket, behind a path. Raises SourceError."""
    with contextlib.closing(open_tree(address, settings.own_paths)) as tree:
        for batch in plan_files(scan(tree, after)):
            skipped = [
                SkippedOrigin(item.origin, item.reason, item.detail) for item in batch.skipped
            ]
            yield PlanPart(batch.cursor, batch.series, skipped=skipped)


def pictures_of(settings: Settings, request: Mapping[str, Any]) -> PictureList:
    """Return the list of pictures of a request. Raises SourceError."""
    columns = PictureColumns(
        path=str(request.get("path_column", "")), study=str(request.get("study_column", ""))
    )
    return PictureList(str(request["list"]), columns, patient_key=key_of(settings))


def plan_list(settings: Settings, request: Mapping[str, Any], after: str) -> Iterator[PlanPart]:
    """Yield the plan of a list of pictures behind a row. Raises SourceError."""
    for batch in plan_pictures(pictures_of(settings, request), after):
        yield PlanPart(batch.cursor, batch.series, rows=batch.rows)


def key_of(settings: Settings) -> bytes:
    """Return the installation's secret, for digests of identifiers."""
    with contextlib.closing(Ledger(settings.ledger_url)) as ledger:
        return ledger.digest_seed.to_bytes(16, "big")
