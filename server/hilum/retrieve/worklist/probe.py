"""A probe of a worklist: whether it answers us, and the priority of one order."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from hilum.retrieve.source import ProbeLine, SourceError
from hilum.retrieve.worklist.client import WorklistClient
from hilum.retrieve.worklist.entries import OrderPriority
from hilum.settings import Worklist


def probe(settings: Worklist, accession: str) -> Sequence[ProbeLine]:
    """Return the answer about an order that `is_askable`. Never raises SourceError.

    Only the priority of the order is shown.
    """
    with contextlib.closing(WorklistClient(settings)) as client:
        return list(_lines(settings, client, accession))


def _lines(settings: Worklist, client: WorklistClient, accession: str) -> Iterator[ProbeLine]:
    started = time.monotonic()
    try:
        client.open()
    except SourceError as error:
        yield ProbeLine("association", error.detail, is_ok=False)
        return
    offer = f"accepted for our AE Title {settings.calling_ae_title}, with a modality worklist"
    yield ProbeLine("association", offer, is_ok=True)
    try:
        found = client.ask(accession)
    except SourceError as error:
        yield ProbeLine("C-FIND", error.detail, is_ok=False)
        return
    seconds = time.monotonic() - started
    spent = f"answered within {seconds:.3f} s, and {settings.timeout_seconds:g} s are allowed"
    yield ProbeLine("C-FIND", spent, is_ok=True)
    yield _order_line(found)


def _order_line(found: OrderPriority) -> ProbeLine:
    if not found.entries:
        text = "the worklist has no entry with this Accession Number; is it there already, or gone?"
        return ProbeLine("order", text)
    number = "1 entry" if found.entries == 1 else f"{found.entries} entries"
    if not found.words:
        text = f"{number}, without a priority that is known; see worklist.urgent_words"
        return ProbeLine("order", text)
    effect = "urgent" if found.is_urgent else "not urgent"
    return ProbeLine("order", f"{number}, {', '.join(found.words)}: {effect}", is_ok=True)
