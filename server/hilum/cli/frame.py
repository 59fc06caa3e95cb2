"""What all commands share: the applications, the settings option, and how problems are said."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hilum import __version__
from hilum.errors import ConfigurationError
from hilum.settings import Settings, load

app = typer.Typer(
    name="hilum",
    help="Chest radiographs in by DICOM, AI results out as Structured Reports and JSON. For research use only.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(help="Releases: what they are, and building them for Triton.", no_args_is_help=True)
app.add_typer(models_app, name="models")
destinations_app = typer.Typer(help="Receivers of reports.", no_args_is_help=True)
app.add_typer(destinations_app, name="destinations")
conflicts_app = typer.Typer(
    help="Other pixels under a known SOP Instance UID: what lies in quarantine, and what becomes of it.", no_args_is_help=True
)
app.add_typer(conflicts_app, name="conflicts")
rollout_app = typer.Typer(
    help="From one release to another while the server runs: shadow, canary, switch, and the way back.", no_args_is_help=True
)
app.add_typer(rollout_app, name="rollout")
studies_app = typer.Typer(help="Single studies.", no_args_is_help=True)
app.add_typer(studies_app, name="studies")
images_app = typer.Typer(help="Single images.", no_args_is_help=True)
app.add_typer(images_app, name="images")

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML). Default: $HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml.")
]


@contextmanager
def explained() -> Iterator[None]:
    """Every problem of the settings on its own line, exit status 2."""
    try:
        yield
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"hilum: {problem}", file=sys.stderr)
        raise typer.Exit(2) from error


def settings_of(config: Path | None) -> Settings:
    """The settings, or every problem with them and exit status 2."""
    with explained():
        return load(config)


def migrated_settings(config: Path | None) -> Settings:
    """Settings of an installation whose ledger is there."""
    settings = settings_of(config)
    from hilum.store.migrate import require_revision  # noqa: PLC0415 - imports the ledger

    with explained():
        require_revision(settings.ledger_url)
    return settings


def _version(value: bool) -> None:
    if value:
        print(f"hilum {__version__}")
        raise typer.Exit


@app.callback()
def root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """Chest radiographs in by DICOM, AI results out as Structured Reports and JSON. For research use only."""
