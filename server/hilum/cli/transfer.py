"""Send files as a modality would."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from hilum.cli.frame import Config, app, explained, settings_of
from hilum.errors import ConfigurationError, Retry
from hilum.settings import DicomDestination
from hilum.verbs import OF_FILES, performs

if TYPE_CHECKING:
    from hilum.deliver.send import SendReport, SentFile

_CALLING = "HILUM_SEND"


@app.command()
@performs(OF_FILES)
def send(
    paths: Annotated[list[Path], typer.Argument(help="DICOM files, or folders of them.")],
    to: Annotated[str | None, typer.Option(help="Where to: AE_TITLE@HOST:PORT.")] = None,
    destination: Annotated[
        str | None,
        typer.Option(help="Where to: a DICOM destination of the settings, with its TLS."),
    ] = None,
    calling: Annotated[
        str | None,
        typer.Option(
            "--from", help=f"Our AE Title. Default: {_CALLING}, or that of the destination."
        ),
    ] = None,
    tls: Annotated[
        bool,
        typer.Option("--tls", help="TLS 1.2 or later; the receiver's certificate is verified."),
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option(help="PEM file of the authority that signed it. Default: the system's."),
    ] = None,
    certificate_file: Annotated[
        Path | None,
        typer.Option(help="PEM file of our certificate, for receivers that ask for one."),
    ] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="PEM file of the key to it, not encrypted.")
    ] = None,
    tls_server_name: Annotated[
        str, typer.Option(help="Name in the receiver's certificate, where it is not HOST.")
    ] = "",
    wait: Annotated[
        float,
        typer.Option(
            min=0, help="Seconds to wait until the receiver listens, such as a server that starts."
        ),
    ] = 0.0,
    config: Config = None,
) -> None:
    """Send DICOM files by C-STORE, as a modality would.

    It shows the receiver's answer to each, with its own comment.

    Exit status 0 when all DICOM files were stored, 1 when one was not or there was none, 2 for
    wrong use.
    """
    options = {
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "tls_server_name": tls_server_name,
    }
    given = {name: value for name, value in options.items() if value}
    with explained():
        receiver = (
            _named(destination, to, given, config, tls=tls)
            if destination
            else _addressed(to, given, tls=tls)
        )
        if calling:
            receiver = _checked({**receiver.model_dump(), "calling_ae_title": calling})
        _wait_for(receiver, wait)
        report = _send(paths, receiver)
    _summarise(report, paths)
    raise typer.Exit(0 if report.is_ok else 1)


def _named(
    name: str, to: str | None, given: dict[str, Any], config: Path | None, *, tls: bool
) -> DicomDestination:
    """Raises ConfigurationError."""
    if to or tls or given:
        raise ConfigurationError(
            [
                (
                    "--destination has address and TLS in the settings: leave out --to, --tls and"
                    " the options of TLS"
                )
            ]
        )
    known = {
        key: item
        for key, item in settings_of(config).destinations.items()
        if isinstance(item, DicomDestination)
    }
    if name not in known:
        raise ConfigurationError(
            [
                (
                    f"--destination {name}: no DICOM destination; the settings have"
                    f" {', '.join(known) or 'none'}"
                )
            ]
        )
    return known[name]


def _addressed(to: str | None, given: dict[str, Any], *, tls: bool) -> DicomDestination:
    """Raises ConfigurationError."""
    if to is None:
        raise ConfigurationError(
            ["where to? Give --to AE_TITLE@HOST:PORT, or --destination NAME of the settings"]
        )
    if given and not tls:
        raise ConfigurationError([f"{', '.join(map(_option, given))}: goes with --tls"])
    title, host, port = parse_peer(to)
    return _checked(
        {
            "host": host,
            "port": port,
            "ae_title": title,
            "calling_ae_title": _CALLING,
            "tls": tls,
            **given,
        }
    )


def _checked(values: dict[str, Any]) -> DicomDestination:
    """As a destination of the settings is. Raises ConfigurationError."""
    try:
        return DicomDestination.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            [_words(item["loc"], item["msg"]) for item in error.errors()]
        ) from error


def _words(place: tuple[int | str, ...], message: str) -> str:
    options = {"calling_ae_title": "--from", "ae_title": "--to", "host": "--to", "port": "--to"}
    name = str(place[0]) if place else "tls"
    return f"{options.get(name, _option(name))}: {message.removeprefix('Value error, ')}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _wait_for(receiver: DicomDestination, seconds: float) -> None:
    """Return when the receiver accepts connections, or when the time is up.

    Then the sender says why not.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            socket.create_connection((receiver.host, receiver.port), left).close()
        except OSError:
            time.sleep(min(0.5, left))
        else:
            return


def _send(paths: list[Path], receiver: DicomDestination) -> SendReport:
    """Raises ConfigurationError where files of TLS are not usable."""
    # Pynetdicom is not needed elsewhere.
    from hilum.deliver.send import (  # noqa: PLC0415
        send as send_files,
    )
    from hilum.dicom.tls_client import tls_of  # noqa: PLC0415 - as above

    if (tls := tls_of(receiver, receiver.host)) is not None:
        try:
            tls.context()
        except Retry as error:
            raise ConfigurationError([error.detail]) from error
    titles = receiver.ae_title, receiver.calling_ae_title
    return send_files(
        paths, receiver.host, receiver.port, *titles, _show, receiver.timeout_seconds, tls
    )


def _show(item: SentFile, done: int, total: int) -> None:
    status = "" if item.status is None else f" 0x{item.status:04X}"
    print(
        f"{done}/{total} {item.state:8}{status}"
        f" {item.path}{f': {item.detail}' if item.detail else ''}",
        file=sys.stderr,
    )


def _summarise(report: SendReport, paths: list[Path]) -> None:
    from hilum.deliver.send import FileState  # noqa: PLC0415 - as above

    counts = ", ".join(f"{report.count(state)} {state}" for state in FileState)
    print(f"{counts}; {report.sent_bytes / 1e6:.1f} MB in {report.seconds:.2f} s")
    if report.count(FileState.SKIPPED) == len(report.files):
        what = "no DICOM file" if report.files else "no file"
        print(f"hilum: nothing to send: {what} in {', '.join(map(str, paths))}", file=sys.stderr)


def parse_peer(text: str) -> tuple[str, str, int]:
    """AE_TITLE@HOST:PORT. Raises ConfigurationError."""
    title, at, address = text.rpartition("@")
    host, colon, port = address.rpartition(":")
    if not (
        at
        and colon
        and title
        and host
        and port.isdigit()
        and 0 < int(port) < 65536
        and len(title) <= 16
    ):
        raise ConfigurationError(
            [f"--to {text}: give AE_TITLE@HOST:PORT, for example HILUM@127.0.0.1:11112"]
        )
    return title, host.strip("[]"), int(port)
