"""A new release reads an archive that is already read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import datetime
from itertools import compress
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    app,
    ended,
    explained,
    migrated_settings,
    performs,
    seconds_of,
)
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.store.admin.reanalyse import Count


@app.command()
@performs(Verb.REANALYSE)
def reanalyse(
    release: Annotated[
        str,
        typer.Argument(
            help="Release that shall read, name@version: of models.releases, or rolled out."
        ),
    ],
    config: Config = None,
    study_uids: Annotated[
        list[str] | None, typer.Option("--study", help="Only this Study Instance UID; repeatable.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="Only studies whose last image came at this time of this machine's clock or later."
        ),
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(help="Only studies whose last image came before this time.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Only studies that came to this Called AE Title, whose route applies to them."
        ),
    ] = None,
    calling: Annotated[
        str | None,
        typer.Option("--from", help="Only studies that came from this Calling AE Title."),
    ] = None,
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Nothing leaves: results are compared with those reported."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count.")] = False,
) -> None:
    """Have a release read all closed studies that it has not read, with priority reanalysis.

    The routes of a study do not matter. Reports go to the destinations of each study, beside those
    of other releases, which are not sent again. With --shadow nothing is sent; `hilum rollout show
    ALIAS` says how far both agree.

    For numbers that stay in Hilum, with a progress and a pause, use `hilum campaign plan NAME
    --archive`.

    Stop it at any moment and repeat it safely: begun studies are read, and a repeat goes on with
    the rest. The server reads meanwhile; live images go first. Exit status 1: there is nothing to
    read.
    """
    settings = migrated_settings(config)
    from hilum.services.reanalyse import CannotReanalyse  # noqa: PLC0415 - the same
    from hilum.services.reanalyse import reanalyse as begin  # noqa: PLC0415 - the same
    from hilum.store.admin.reanalyse import ReanalysisRequest  # noqa: PLC0415 - imports the ledger

    order = ReanalysisRequest(
        release,
        tuple(dict.fromkeys(study_uids or ())),
        seconds_of(since),
        seconds_of(until),
        calling,
        to,
        is_shadow=shadow,
    )
    with (
        explained(),
        acting(settings, None, Thing.RELEASE, release) as deed,
        _ReanalyseProgress() as progress,
    ):
        deed.detail = " ".join(compress(("shadow", "dry run"), (shadow, dry_run))) or None
        try:
            count = begin(settings, order, progress.note, is_dry_run=dry_run)
        except CannotReanalyse as error:
            raise ended(2, f"{error}") from error
        deed.count = count.studies
    verb = "would be due" if dry_run else "due"
    print(f"{_words(count)} {verb} for {release}{' as a shadow' if shadow else ''}")
    for line in _left_out(count):
        print(f"hilum: {line}", file=sys.stderr)
    if not count.studies:
        raise ended(
            1,
            f"no closed study is left for {release}: it has read them all, or none is as you said",
        )


def _words(count: Count) -> str:
    return f"{_many(count.images, 'image')} of {_many(count.studies, 'study')}"


def _many(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else {'study': 'studies'}.get(what, f'{what}s')}"


def _left_out(count: Count) -> Iterator[str]:
    """Yield a line for each kind of study that was not begun, with the remedy."""
    if count.open_studies:
        yield (
            f"left out: {_many(count.open_studies, 'study')} not closed; repeat it later (`hilum"
            " check` names what is stuck)"
        )
    if count.incomparable:
        yield (
            f"left out: {_many(count.incomparable, 'study')} for which no other release has spoken:"
            " there is nothing to compare with"
        )
    if count.without_pixels:
        yield (
            f"left out: {_many(count.without_pixels, 'image')} whose pixels have left the archive;"
            " send them again, then repeat it"
        )


class _ReanalyseProgress:
    """A line that is written over on a terminal; elsewhere nothing."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - a fifth of a second

        # The same.
        from rich.progress import (  # noqa: PLC0415
            BarColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        columns = BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal)
        self._line = self._bar.add_task("", total=1.0)

    def __enter__(self) -> _ReanalyseProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, share: float, count: Count) -> None:
        """So much of the ledger is looked through."""
        self._bar.update(self._line, completed=share, description=_words(count))
