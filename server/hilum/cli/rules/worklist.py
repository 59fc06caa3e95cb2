"""The modality worklist that names priorities."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from hilum.cli.campaigns.sources import show_lines
from hilum.cli.frame import Config, acting, ended, explained, performs, settings_of, worklist_app
from hilum.verbs import Thing, Verb

_NOT_ASKED: Final = (
    "this Accession Number is not asked for: it is empty, longer than 64 characters, not ASCII, or"
    " holds * ? or a backslash, which a server takes for a pattern"
)


@worklist_app.command("probe")
@performs(Verb.PROBE)
def probe_worklist(
    accession: Annotated[
        str, typer.Argument(help="Accession Number of an order; -: read it from standard input.")
    ],
    config: Config = None,
) -> None:
    """Ask the worklist for the priority of one order.

    Nothing else of the order is shown. No study is changed.
    """
    settings = settings_of(config)
    section = settings.worklist
    if not section.host:
        raise ended(1, "there is no worklist in the settings; add [worklist] with its host")
    value = (sys.stdin.readline() if accession == "-" else accession).strip()
    from hilum.retrieve.worklist.entries import is_askable  # noqa: PLC0415 - imports pynetdicom
    from hilum.retrieve.worklist.probe import probe  # noqa: PLC0415 - the same

    if not is_askable(value):
        raise ended(1, _NOT_ASKED)
    with explained(), acting(settings, None, Thing.ACCESSION, value):
        lines = probe(section, value)
    print(section.address)
    show_lines(lines)
    raise typer.Exit(1 if any(line.is_ok is False for line in lines) else 0)
