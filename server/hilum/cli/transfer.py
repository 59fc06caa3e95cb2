"""Send files as a modality would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from hilum.cli.frame import (
    app,
    explained,
)
from hilum.errors import ConfigurationError
from hilum.verbs import OF_FILES, performs


@app.command()
@performs(OF_FILES)
def send(
    paths: Annotated[list[Path], typer.Argument(help="DICOM files, or folders of them.")],
    to: Annotated[str, typer.Option(help="Where to: AE_TITLE@HOST:PORT.")],
    calling: Annotated[str, typer.Option("--from", help="Our AE Title.")] = "HILUM_SEND",
) -> None:
    """Send DICOM files by C-STORE, as a modality would."""
    from hilum.deliver.send import FileState, SentFile  # noqa: PLC0415 - the same
    from hilum.deliver.send import send as send_files  # noqa: PLC0415 - pynetdicom is not needed elsewhere

    with explained():
        title, host, port = parse_peer(to)

    def show(item: SentFile, done: int, total: int) -> None:
        print(f"{done}/{total} {item.state:8} {item.path}{f': {item.detail}' if item.detail else ''}", file=sys.stderr)

    report = send_files(paths, host, port, title, calling, show)
    counts = ", ".join(f"{report.count(state)} {state}" for state in FileState)
    print(f"{counts}; {report.sent_bytes / 1e6:.1f} MB in {report.seconds:.2f} s")
    raise typer.Exit(0 if report.is_ok else 1)


def parse_peer(text: str) -> tuple[str, str, int]:
    """AE_TITLE@HOST:PORT. Raises ConfigurationError."""
    title, at, address = text.rpartition("@")
    host, colon, port = address.rpartition(":")
    if not (at and colon and title and host and port.isdigit() and 0 < int(port) < 65536 and len(title) <= 16):
        raise ConfigurationError([f"--to {text}: give AE_TITLE@HOST:PORT, for example HILUM@127.0.0.1:11112"])
    return title, host.strip("[]"), int(port)
