"""destinations: every kind of destination under every trouble, with real receivers and a real dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from load_tests.load.measure import Goal
from load_tests.proof.destinations.receivers import RECEIVERS, missing
from load_tests.proof.destinations.scene import Scene, scene
from load_tests.proof.destinations.troubles import TROUBLES, Trouble
from load_tests.proof.destinations.verdict import Cell, judge
from load_tests.proof.part import Outcome, Plan
from load_tests.proof.street.street import NotQuiet
from testing import postgres

QUICK_KINDS: Final = ("dicom", "hl7")
QUICK_TROUBLES: Final = ("never answers", "reset", "dispatcher killed")
Table = Mapping[str, Mapping[str, Cell]]
"""What became of the documents, by trouble and kind."""


def destinations(plan: Plan) -> Outcome:
    """All kinds and troubles; the short form two kinds and three troubles."""
    if lacking := missing():
        return Outcome(left_out=f"needs {', '.join(lacking)}")
    kinds = QUICK_KINDS if plan.is_short else tuple(RECEIVERS)
    names = QUICK_TROUBLES if plan.is_short else tuple(TROUBLES)
    table: dict[str, dict[str, Cell]] = {}
    left_out: dict[str, str] = {}
    problems: list[str] = []
    with scene(
        plan.folder,
        plan.tiny,
        kinds,
        int(plan.of(12, 6)),
        with_postgres=not plan.is_short and postgres.is_installed(),
    ) as made:
        for name in names:
            if reason := TROUBLES[name].left_out(made):
                left_out[name] = reason
                continue
            try:
                table[name] = _suffered(made, TROUBLES[name])
            except NotQuiet as error:
                problems.append(f"{name}: {error}")
                break  # its rows would be counted with those of the next trouble
            plan.say(f"{name}: {_in_words(table[name])}")
    planned = sum(
        kind in TROUBLES[name].kinds for name in names if name not in left_out for kind in kinds
    )
    return judged(table, planned, left_out, problems)


def _suffered(made: Scene, trouble: Trouble) -> dict[str, Cell]:
    """Have the scene suffer a trouble, and say what became of its documents."""
    trouble.act(made)
    ended_at = time.time()
    made.wait_for_the_end()
    rows = made.deliveries()
    cells = {}
    for kind, receiver in made.receivers.items():
        if kind in trouble.kinds:
            relay = receiver.relay
            cells[kind] = judge(
                [item for item in rows if item.destination == kind],
                receiver.held(),
                [] if relay is None else list(relay.sent),
                [item for item in made.dead if item.destination == kind],
                ended_at if relay is None else relay.well_since,
            )
    return cells


def judged(
    table: Table, planned: int, left_out: Mapping[str, str], problems: Sequence[str] = ()
) -> Outcome:
    """Goals over all cells. `planned`: how many there should be."""
    cells = [(name, kind, cell) for name, row in table.items() for kind, cell in row.items()]

    def total(figure: Callable[[Cell], int]) -> int:
        return sum(figure(cell) for _, _, cell in cells)

    goals = (
        Goal("documents lost", total(lambda cell: cell.lost), "documents", 0),
        Goal(
            "documents held twice or with other content",
            total(lambda cell: cell.altered),
            "documents",
            0,
        ),
        Goal("deliveries without an end", total(lambda cell: cell.unfinished), "rows", 0),
        Goal("dead deliveries without advice", total(lambda cell: cell.unadvised), "rows", 0),
        Goal("kinds under a trouble", len(cells), "cells", planned, at_most=False),
    )
    figures: dict[str, Any] = {
        "documents": total(lambda cell: cell.documents),
        "documents_repeated": total(lambda cell: cell.repeated),
        "troubles": {
            name: {
                "what": TROUBLES[name].what,
                "kinds": {kind: cell.as_json() for kind, cell in row.items()},
            }
            for name, row in table.items()
        },
        "left_out": dict(left_out),
    }
    wrong = [f"{name}, {kind}: {cell}" for name, kind, cell in cells if not cell.is_clean]
    return Outcome(figures, goals, (*problems, *wrong))


def _in_words(row: Mapping[str, Cell]) -> str:
    longest = max((cell.seconds for cell in row.values()), default=0.0)
    return f"{sum(cell.repeated for cell in row.values())} sent again, {longest:.0f} s"
