"""The `hilum` command. Exit status: 0 done, 1 the answer is no (not found, not analysed, a check failed), 2 wrong use or settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from hilum import __version__
from hilum.errors import ConfigurationError
from hilum.settings import Settings, load
from hilum.wiring.state_folder import hold

app = typer.Typer(
    name="hilum",
    help="Chest radiographs in by DICOM, AI results out as Structured Reports and JSON. For research use only.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models_app = typer.Typer(help="Releases: what they are, and building them for Triton.", no_args_is_help=True)
app.add_typer(models_app, name="models")

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML). Default: $HILUM_CONFIG, ./hilum.toml, /etc/hilum/hilum.toml.")
]


def main() -> None:
    """Entry point of the command."""
    app()


@contextmanager
def _explained() -> Iterator[None]:
    """Every problem of the settings on its own line, exit status 2."""
    try:
        yield
    except ConfigurationError as error:
        for problem in error.problems:
            print(f"hilum: {problem}", file=sys.stderr)
        raise typer.Exit(2) from error


def _settings(config: Path | None) -> Settings:
    with _explained():
        return load(config)


def _version(value: bool) -> None:
    if value:
        print(f"hilum {__version__}")
        raise typer.Exit


@app.callback()
def root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False) -> None:
    """Chest radiographs in by DICOM, AI results out as Structured Reports and JSON. For research use only."""


@app.command()
def serve(
    config: Config = None,
    role: Annotated[str, typer.Option(help="all, or one of listener, analyser, dispatcher, api.")] = "all",
) -> None:
    """Run the server until Ctrl-C or SIGTERM.

    One machine: role all. Several machines: one role each, with ledger.url naming one PostgreSQL, one archive and one Triton.
    """
    if role not in {"all", "listener", "analyser", "dispatcher", "api"}:
        print(f"hilum: unknown role {role!r}; use all, listener, analyser, dispatcher or api", file=sys.stderr)
        raise typer.Exit(2)
    settings = _settings(config)
    with _explained(), hold(settings, role):
        from hilum import telemetry  # noqa: PLC0415 - its metrics go where `hold` has said
        from hilum.supervisor import Supervisor  # noqa: PLC0415 - the same

        telemetry.configure_logging(settings.log.level, settings.log.format, "supervisor")
        raise typer.Exit(Supervisor(settings, role).run())


@app.command()
def check(config: Config = None) -> None:
    """Examine the installation: settings, ports, disk, ledger, Triton, releases, destinations. Says what to do about each problem."""
    settings = _settings(config)
    from hilum.supervisor.doctor import examine  # noqa: PLC0415 - imports every room

    findings = list(examine(settings))
    for finding in findings:
        print(f"{'ok     ' if finding.ok else 'PROBLEM'} {finding.name}: {finding.detail}")
        if not finding.ok and finding.advice:
            print(f"        -> {finding.advice}")
    problems = sum(not finding.ok for finding in findings)
    print(f"{len(findings)} checks, {problems} problem{'' if problems == 1 else 's'}")
    raise typer.Exit(1 if problems else 0)


@app.command()
def send(
    paths: Annotated[list[Path], typer.Argument(help="DICOM files, or folders of them.")],
    to: Annotated[str, typer.Option(help="Where to: AE_TITLE@HOST:PORT.")],
    calling: Annotated[str, typer.Option("--from", help="Our AE Title.")] = "HILUM_SEND",
) -> None:
    """Send DICOM files by C-STORE, as a modality would."""
    from hilum.deliver.send import FileState, SentFile  # noqa: PLC0415 - the same
    from hilum.deliver.send import send as send_files  # noqa: PLC0415 - pynetdicom is not needed elsewhere

    with _explained():
        title, host, port = parse_peer(to)

    def show(item: SentFile, done: int, total: int) -> None:
        print(f"{done}/{total} {item.state:8} {item.path}{f': {item.detail}' if item.detail else ''}", file=sys.stderr)

    report = send_files(paths, host, port, title, calling, show)
    counts = ", ".join(f"{report.count(state)} {state}" for state in FileState)
    print(f"{counts}; {report.sent_bytes / 1e6:.1f} MB in {report.seconds:.2f} s")
    raise typer.Exit(0 if report.is_ok else 1)


@app.command()
def study(
    uid: Annotated[str, typer.Argument(help="Study Instance UID.")],
    config: Config = None,
    tree: Annotated[bool, typer.Option("--tree", help="The current Structured Report as people read it, instead of JSON.")] = False,
) -> None:
    """Show a study: its state, images, results, documents and deliveries as JSON, or its report as a tree."""
    settings = _settings(config)
    from hilum.api.study_answers import StudyAnswer  # noqa: PLC0415 - the same answer as REST gives
    from hilum.report.tree import sr_text  # noqa: PLC0415 - pydicom is not needed elsewhere
    from hilum.store.migrate import require_revision  # noqa: PLC0415 - the same
    from hilum.store.views import LedgerViews  # noqa: PLC0415 - the same

    with _explained():
        require_revision(settings.ledger_url)
    views = LedgerViews(settings.ledger_url)
    detail = views.study(uid)
    if detail is None:
        print(f"hilum: no study {uid} in the ledger; `GET /api/v1/studies` lists what there is", file=sys.stderr)
        raise typer.Exit(1)
    if not tree:
        print(StudyAnswer.model_validate({"disclaimer": settings.report.disclaimer, **detail}).model_dump_json(indent=2))
        return
    reports = [item for item in views.documents(uid) or [] if item["kind"] == "sr"]
    found = views.document(max(item["id"] for item in reports)) if reports else None
    if found is None:
        print(f"hilum: study {uid} has no Structured Report yet; run without --tree to see why", file=sys.stderr)
        raise typer.Exit(1)
    print(sr_text(found["content"]))


@app.command()
def prepare(
    file: Annotated[Path, typer.Argument(help="A DICOM file.")],
    release: Annotated[str, typer.Option(help="Release, name@version.")],
    out: Annotated[Path, typer.Option(help="The wire tensor (C, H, W) as a NumPy file.")],
    png: Annotated[Path | None, typer.Option(help="The same as a picture, stretched to 8 bits.")] = None,
    config: Config = None,
) -> None:
    """Write what a release's model sees of an image, or say why it would not be analysed. JSON on standard output."""
    settings = _settings(config)
    from hilum.wiring.preparing import prepare_file  # noqa: PLC0415 - imports torch

    with _explained():
        answer = prepare_file(settings, file, release, out, png)
    print(json.dumps(answer, indent=2))
    raise typer.Exit(0 if answer["outcome"] == "prepared" else 1)


@app.command()
def requeue(
    stage: Annotated[str, typer.Argument(help="analyse, assemble, report or deliver.")],
    config: Config = None,
    reason: Annotated[str | None, typer.Option(help="Only items that ended for this reason.")] = None,
    study_uid: Annotated[str | None, typer.Option("--study", help="Only items of this Study Instance UID.")] = None,
    destination: Annotated[str | None, typer.Option(help="Only deliveries to this destination.")] = None,
) -> None:
    """Make ended items of a stage due again: failed or not analysed images, failed reports, dead letters."""
    from hilum.pipeline import STAGES  # noqa: PLC0415 - imports the ledger
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - the same
    from hilum.store.migrate import require_revision  # noqa: PLC0415 - the same

    if stage not in STAGES:
        print(f"hilum: unknown stage {stage!r}; use {', '.join(STAGES)}", file=sys.stderr)
        raise typer.Exit(2)
    settings = _settings(config)
    with _explained():
        require_revision(settings.ledger_url)
    count = Ledger(settings.ledger_url).requeue(stage, reason=reason, study_uid=study_uid, destination_name=destination)
    print(f"{count} item{'' if count == 1 else 's'} of {stage} due again")


@models_app.command("list")
def list_models(config: Config = None) -> None:
    """List the releases that have a manifest: trained or not, built or not, reading or not."""
    settings = _settings(config)
    from hilum.models.build import is_built  # noqa: PLC0415 - needs the export tools' folder only
    from hilum.models.catalogue import load_catalogue  # noqa: PLC0415 - the same

    with _explained():
        catalogue = load_catalogue(settings.manifests_dir)
    for name, item in sorted(catalogue.items()):
        words = [
            "trained" if item.is_trained else "UNTRAINED",
            f"{item.engine} {item.precision}",
            "built" if is_built(item, settings.built_dir) else "not built",
            "reads every image" if name in settings.models.releases else "not in models.releases",
        ]
        print(f"{name:32} {', '.join(words)}")


@models_app.command("build")
def build_models(
    releases: Annotated[list[str] | None, typer.Argument(help="Releases, name@version; none: models.releases.")] = None,
    config: Config = None,
    weights: Annotated[Path | None, typer.Option(help="Folder of weights files that you bring.")] = None,
    profile: Annotated[str, typer.Option(help="embedded, or onnxruntime for a Triton that you run.")] = "embedded",
) -> None:
    """Build the Triton model repository from the manifests: ONNX first, then the profile. Nothing is downloaded."""
    settings = _settings(config)
    from hilum.models.build import build  # noqa: PLC0415 - imports torch and onnx

    chosen = tuple(releases or settings.models.releases)
    with _explained():
        build(chosen, settings.manifests_dir, settings.built_dir, profile, weights, lambda line: print(line, file=sys.stderr))
    print(f"{', '.join(chosen)}: built in {settings.built_dir / profile}")


def parse_peer(text: str) -> tuple[str, str, int]:
    """AE_TITLE@HOST:PORT. Raises ConfigurationError."""
    title, at, address = text.rpartition("@")
    host, colon, port = address.rpartition(":")
    if not (at and colon and title and host and port.isdigit() and 0 < int(port) < 65536 and len(title) <= 16):
        raise ConfigurationError([f"--to {text}: give AE_TITLE@HOST:PORT, for example HILUM@127.0.0.1:11112"])
    return title, host.strip("[]"), int(port)
