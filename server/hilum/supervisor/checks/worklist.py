"""Check of the modality worklist. No order is asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from hilum.retrieve.source import SourceError
from hilum.retrieve.worklist.client import WorklistClient
from hilum.settings import Settings
from hilum.supervisor.checks.check import Check, unless_refused
from hilum.supervisor.checks.peers import tls_files

_NAME: Final = "worklist"
_SECONDS: Final = 10.0  # a person waits


def worklist(settings: Settings) -> Iterator[Check]:
    """Check that it takes our association and offers a worklist."""
    section = settings.worklist
    if not section.host:
        return
    patient = section.model_copy(update={"timeout_seconds": _SECONDS})
    with contextlib.closing(WorklistClient(patient)) as client:
        try:
            client.open()
        except SourceError as error:
            advice = "Studies keep the priority of their rule. See docs/operate/worklist.md."
            yield Check(_NAME, ok=False, detail=error.detail, advice=advice)
        else:
            yield Check(_NAME, ok=True, detail=f"{section.address} offers a modality worklist")
    yield from unless_refused(_NAME, tls_files(_NAME, _NAME, section))
