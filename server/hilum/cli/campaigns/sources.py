"""Sources of old studies."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hilum.cli.frame import Config, acting, explained, performs, settings_of, sources_app
from hilum.verbs import NoVerb, Thing, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.retrieve.source import ProbeLine
    from hilum.settings import SourceSection

_MARKS: Final = {True: "ok ", False: "NO ", None: "-- "}


@sources_app.command("list")
@declare_verb(NoVerb("it shows settings, and no study"))
def list_sources(config: Config = None) -> None:
    """List the sources of the settings: kind, address, and when they may be asked."""
    settings = settings_of(config)
    if not settings.sources:
        print("no sources in the settings; add a section [sources.NAME]")
    for name, section in settings.sources.items():
        hours = f"{', '.join(section.hours)} {section.time_zone}" if section.hours else "any time"
        print(f"{name:16} {section.kind:9} {section.address}, {hours}")


@sources_app.command("probe")
@performs(Verb.PROBE)
def probe_source(
    name: Annotated[str, typer.Argument(help="As in the settings, sources.NAME.")],
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Ask a source for its services, and find the keys of a query that it honours.

    Fetches no image.
    """
    settings = settings_of(config)
    from hilum.services.sources import open_source  # noqa: PLC0415 - imports the rooms

    with (
        explained(),
        acting(settings, None, Thing.SOURCE, name),
        contextlib.closing(open_source(settings, name)) as source,
    ):
        lines = source.probe()
    if as_json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        _show(name, settings.sources[name], lines)
    raise typer.Exit(1 if any(line.is_ok is False for line in lines) else 0)


def _show(name: str, section: SourceSection, lines: Sequence[ProbeLine]) -> None:
    print(f"{name}: {section.kind}, {section.address}")
    show_lines(lines)


def show_lines(lines: Sequence[ProbeLine]) -> None:
    """Print the lines of a probe."""
    for line in lines:
        print(f"  {_MARKS[line.is_ok]} {line.topic}: {line.text}")
