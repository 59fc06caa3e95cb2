"""The environment of the embedded Triton."""

from __future__ import annotations

import sys

import typer

from hilum.cli.frame import app
from hilum.triton import installation
from hilum.verbs import NoVerb, performs

triton_app = typer.Typer(help="The embedded Triton.", no_args_is_help=True)
app.add_typer(triton_app, name="triton")


@triton_app.callback()
def _group() -> None:
    """A group, though it has one command."""


@triton_app.command("install")
@performs(NoVerb("it installs programs, and touches no study"))
def install() -> None:
    """Install the embedded Triton in an environment of its own, with numpy 1.

    Only files whose hash the lock names are installed. Nothing is done where it is up to date.
    """
    try:
        installation.install()
    except installation.NotInstalled as reason:
        print(f"hilum: {reason}", file=sys.stderr)
        raise typer.Exit(1) from reason
