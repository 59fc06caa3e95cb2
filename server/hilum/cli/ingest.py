"""Files into the archive without a network, and files of the archive that have no row."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
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
    require_known,
)
from hilum.settings import is_ae_title
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.receive.files.folder import FileOutcome, TakenFile
    from hilum.store.intake.record import RecordOutcome

_PRIORITIES = ("reanalysis", "live", "urgent", "route")


@app.command()
@performs(Verb.INGEST)
def ingest(
    paths: Annotated[list[Path], typer.Argument(help="DICOM files, or folders of them.")],
    config: Config = None,
    priority: Annotated[
        str,
        typer.Option(
            help=(
                "reanalysis (after all else), live, urgent; route: as set for --from, else for"
                " --to."
            )
        ),
    ] = "reanalysis",
    to: Annotated[
        str,
        typer.Option(
            help="Called AE Title whose route applies. Default: the first of receive.ae_titles."
        ),
    ] = "",
    calling: Annotated[
        str, typer.Option("--from", help="AE Title that the files are said to come from.")
    ] = "HILUM_INGEST",
    jobs: Annotated[
        int, typer.Option(min=1, max=64, help="Files at once; the disk merges their syncs.")
    ] = 4,
) -> None:
    """Store DICOM files in the archive, with the checks of C-STORE. Repeat it safely.

    A file that is stored already is not written again. The releases and destinations of the route
    take part, as with C-STORE. To read files once by one release, without reports, use `hilum
    campaign plan NAME --folder`.

    A line on standard error for each file that was not taken, with the reason. Exit status 0: all
    DICOM objects are in. 1: some are not; or a link to a folder was not followed; or other pixels
    under a known SOP Instance UID wait in quarantine (`hilum conflicts list`).

    Files of this installation itself (its state folder, ledger, models and folder destinations) are
    passed over, with a line.
    """
    settings = migrated_settings(config)
    to = to or settings.receive.ae_titles[0]
    require_known("priority", priority, _PRIORITIES)
    _require_ae_title(calling)
    require_known("Called AE Title", to, settings.receive.ae_titles)
    from hilum.domain import Priority  # noqa: PLC0415 - the same
    from hilum.observability import telemetry  # noqa: PLC0415 - not needed by other commands
    from hilum.receive.files.folder import FileOutcome  # noqa: PLC0415 - the same
    from hilum.services import ingest as ingesting  # noqa: PLC0415 - the same
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same

    with explained():
        require_same_user(settings)
    telemetry.configure_logging("error", settings.log.format, "ingest")
    origin = ingesting.FileOrigin(
        calling, to, None if priority == "route" else Priority[priority.upper()]
    )
    began = time.monotonic()
    with (
        explained(),
        acting(settings, None, Thing.SENDER, calling) as deed,
        _IngestProgress() as progress,
    ):
        try:
            fates = ingesting.ingest(settings, paths, origin, jobs, progress.note, progress.waiting)
        except KeyboardInterrupt:
            progress.say(f"stopped   {_counted(progress.counts, began)}; the same command goes on")
            raise
        finally:
            deed.count = progress.counts[FileOutcome.STORED]
            deed.detail = f"to {to}"
    print(_counted(fates, began))
    if count := fates[FileOutcome.CONFLICT]:
        _say_conflicts(count, progress.counts[FileOutcome.CONFLICT])
    raise typer.Exit(0 if _is_all_in(fates) else 1)


def _say_conflicts(count: int, named: int) -> None:
    """Print the number of conflicts; `named`: those that have a line of their own."""
    from hilum.receive.files.folder import IN_CONFLICT  # noqa: PLC0415 - not needed by other commands

    # A first object is known to be the first only when it gets its row.
    advice = "" if count == named else "; the same command, once more, names each"
    files = f"{count} file{'' if count == 1 else 's'}"
    print(f"hilum: {files}: {IN_CONFLICT}{advice}", file=sys.stderr)


def _require_ae_title(calling: str) -> None:
    """Exit status 2 for a text that is no AE Title."""
    if not is_ae_title(calling):
        raise ended(
            2,
            "--from: an AE Title has 1 to 16 characters of ASCII, none of them a backslash"
            " (PS3.5 6.2)",
        )


def _is_all_in(fates: Counter[FileOutcome]) -> bool:
    """Return whether every DICOM object is in the archive, and there was one."""
    from hilum.receive.files.folder import FileOutcome  # noqa: PLC0415 - not needed by other commands

    left = (FileOutcome.REFUSED, FileOutcome.FAILED, FileOutcome.CONFLICT)
    return not any(fates[fate] for fate in left) and fates.total() > fates[FileOutcome.SKIPPED]


def _counted(fates: Counter[FileOutcome], began: float) -> str:
    from hilum.receive.files.folder import FileOutcome  # noqa: PLC0415 - not needed by other commands

    return (
        ", ".join(f"{fates[fate]} {fate}" for fate in FileOutcome)
        + f" in {time.monotonic() - began:.1f} s"
    )


class _IngestProgress:
    """A line that is rewritten on a terminal; elsewhere only files that were not taken."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - a fifth of a second

        # The same.
        from rich.progress import (  # noqa: PLC0415
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        self._console = Console(
            stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._line = self._bar.add_task("", total=None)
        self.counts: Counter[FileOutcome] = Counter()

    def __enter__(self) -> _IngestProgress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def note(self, taken: TakenFile) -> None:
        """One file."""
        # Not needed by other commands.
        from hilum.receive.files.skipped_files import (  # noqa: PLC0415
            plain,
        )

        self.counts[taken.fate] += 1
        if taken.detail:
            self.say(f"{taken.fate:9} {plain(taken.path)}: {taken.detail}")
        self._bar.update(
            self._line,
            description=", ".join(f"{count} {fate}" for fate, count in self.counts.items()),
        )

    def waiting(self, reason: str) -> None:
        """Nothing goes on for the moment."""
        self.say(f"waiting   {reason}")

    def say(self, line: str) -> None:
        """On standard error, above the line that counts."""
        self._console.print(line)


@app.command()
@performs(Verb.RECOVER)
def recover(
    config: Config = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Apply the change; without it, they are only counted.")
    ] = False,
) -> None:
    """Take objects of the archive that no row names.

    They came after the backup whose ledger was restored (docs/operate/operations.md). They are read
    and reported like new objects, also while the server runs. Safe to repeat.

    Exit status 1: there are some, and they were only counted; or the ledger refuses some, which go
    to quarantine.
    """
    settings = migrated_settings(config)
    from hilum.observability import telemetry  # noqa: PLC0415 - not needed by other commands
    from hilum.services.recover import orphans_of, recover_orphans  # noqa: PLC0415 - the same
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.store.intake.record import RecordOutcome  # noqa: PLC0415 - the same

    telemetry.configure_logging("error", settings.log.format, "recover")
    with explained(), acting(settings) as deed:
        files = orphans_of(settings)
        outcomes = Counter[RecordOutcome]()
        deed.count = len(files)
        deed.detail = None if yes else "only counted"
        if yes:
            require_same_user(settings)  # it moves files, and may be stopped on the way
            outcomes = recover_orphans(settings, files)
    print(_recovered(len(files), outcomes) if yes else _left_alone(len(files)))
    raise typer.Exit(1 if outcomes.total() < len(files) else 0)


def _left_alone(count: int) -> str:
    return f"{count} objects have no row{': give --yes to take them' if count else ''}"


def _recovered(count: int, outcomes: Mapping[RecordOutcome, int]) -> str:
    each = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
    return f"{count} objects had no row{f': {each}' if each else ''}"
