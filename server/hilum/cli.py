"""The `hilum` command. Exit status: 0 done, 1 the answer is no (not found, not analysed, a check failed), 2 wrong use or settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilum import __version__
from hilum.errors import ConfigurationError
from hilum.settings import Settings, load
from hilum.wiring.state_folder import hold

if TYPE_CHECKING:
    from hilum.store.decisions import Decisions

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
studies_app = typer.Typer(help="Single studies.", no_args_is_help=True)
app.add_typer(studies_app, name="studies")
images_app = typer.Typer(help="Single images.", no_args_is_help=True)
app.add_typer(images_app, name="images")

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
def migrate(config: Config = None) -> None:
    """Bring the ledger to the revision of this version. `hilum serve` (role all) does it by itself; back up first."""
    settings = _settings(config)
    from hilum.store.migrate import migrate as migrate_ledger  # noqa: PLC0415 - imports the ledger

    with _explained():
        settings.site.state_dir.mkdir(parents=True, exist_ok=True)
        print(f"ledger at revision {migrate_ledger(settings.ledger_url)}")


@app.command()
def requeue(
    stage: Annotated[str, typer.Argument(help="analyse, assemble, report or deliver.")],
    config: Config = None,
    reason: Annotated[str | None, typer.Option(help="Only items that ended for this reason.")] = None,
    study_uid: Annotated[str | None, typer.Option("--study", help="Only items of this Study Instance UID.")] = None,
    destination: Annotated[str | None, typer.Option(help="Only deliveries to this destination.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every ended item of the stage, also what ended for good reason.")] = False,
) -> None:
    """Make ended items of a stage due again: failed or not analysed images, failed reports, dead letters. Say which, or --all."""
    from hilum.pipeline import STAGES  # noqa: PLC0415 - imports the ledger
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - the same
    from hilum.store.migrate import require_revision  # noqa: PLC0415 - the same

    if stage not in STAGES:
        print(f"hilum: unknown stage {stage!r}; use {', '.join(STAGES)}", file=sys.stderr)
        raise typer.Exit(2)
    if not (everything or reason or study_uid or destination):
        print("hilum: say which: --reason, --study, --destination, or --all", file=sys.stderr)
        raise typer.Exit(2)
    if destination and stage != "deliver":
        print("hilum: --destination belongs to the stage deliver", file=sys.stderr)
        raise typer.Exit(2)
    settings = _settings(config)
    with _explained():
        require_revision(settings.ledger_url)
    count = Ledger(settings.ledger_url).requeue(stage, reason=reason, study_uid=study_uid, destination_name=destination)
    print(f"{count} item{'' if count == 1 else 's'} of {stage} due again")


@destinations_app.command("probe")
def probe_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Ask a destination what it would accept, before the first study: C-ECHO, SR classes, Transfer Syntaxes. Sends no object."""
    settings = _settings(config)
    from hilum.deliver.probe import probe  # noqa: PLC0415 - pynetdicom is not needed elsewhere

    if name not in settings.destinations:
        print(f"hilum: no destination {name!r} in the settings; known: {', '.join(settings.destinations) or 'none'}", file=sys.stderr)
        raise typer.Exit(2)
    found = probe(name, settings.destinations[name])
    print(f"{found.destination}: {found.address}{f', C-ECHO: {found.echo}' if found.echo else ''}")
    for item in found.contexts:
        print(f"  {'yes' if item.is_accepted else 'no ':3} {item.sop_class}, {item.transfer_syntax}")
    print(f"{'ok' if found.is_ok else 'PROBLEM'}: {found.detail}")
    raise typer.Exit(0 if found.is_ok else 1)


ConflictId = Annotated[int, typer.Argument(help="Number of the conflict, as `hilum conflicts list` shows it.")]


@conflicts_app.command("list")
def list_conflicts(
    config: Config = None, every: Annotated[bool, typer.Option("--all", help="Also those that a person has decided.")] = False
) -> None:
    """List the conflicts that nobody has decided yet, newest first, one a line: number, state, SOP Instance UID, sender, size, file."""
    settings = _migrated(config)
    from hilum.store.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    views, cursor = LedgerViews(settings.ledger_url), None
    while True:
        found, cursor = views.conflicts(limit=500, cursor=cursor)
        for item in found:
            if every or item["state"] == "held":
                print(*(item[name] for name in ("id", "state", "sop_instance_uid", "calling_ae_title", "size_bytes", "path")), sep="  ")
        if cursor is None:
            return


@conflicts_app.command("keep")
def keep_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Leave the first bytes in use; the file stays in quarantine, kept out of everything."""
    _decide(config, lambda decisions: decisions.keep(conflict), f"no conflict {conflict}")


@conflicts_app.command("replace")
def replace_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Take the quarantined bytes as the image: it is read and reported again. The former bytes go to quarantine."""
    _decide(config, lambda decisions: decisions.replace(conflict), f"no conflict {conflict}")


@conflicts_app.command("discard")
def discard_conflict(conflict: ConflictId, config: Config = None) -> None:
    """Delete the quarantined file."""
    _decide(config, lambda decisions: decisions.discard(conflict), f"no conflict {conflict}")


@destinations_app.command("list")
def list_destinations(config: Config = None) -> None:
    """List the destinations: paused or not, and how many deliveries wait, are in work, or need a person."""
    settings = _migrated(config)
    from hilum.store.views import LedgerViews  # noqa: PLC0415 - imports the ledger

    for item in LedgerViews(settings.ledger_url).destination_states(settings.destinations):
        words = ["PAUSED" if item["is_paused"] else "in use" if item["is_configured"] else "not in the settings"]
        words += [f"{item[name]} {name}" for name in ("due", "waiting", "leased") if item[name]]
        words += [f"{count} dead: {reason}" for reason, count in item["dead"].items()]
        print(f"{item['name']:24} {', '.join(words)}{': ' + item['detail'] if item['detail'] else ''}")


@destinations_app.command("pause")
def pause_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Send nothing more to a destination until it is resumed. What is on the wire is finished; documents wait."""
    _pause(config, name, is_paused=True)


@destinations_app.command("resume")
def resume_destination(name: Annotated[str, typer.Argument(help="As in [destinations.<name>].")], config: Config = None) -> None:
    """Send again, beginning with what waited."""
    _pause(config, name, is_paused=False)


def _pause(config: Path | None, name: str, *, is_paused: bool) -> None:
    settings = _migrated(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    if name not in settings.destinations:
        print(f"hilum: no destination {name!r} in the settings; known: {', '.join(settings.destinations) or 'none'}", file=sys.stderr)
        raise typer.Exit(2)
    Ledger(settings.ledger_url).pause(name, is_paused=is_paused)
    print(f"{name}: {'paused' if is_paused else 'in use'}")


@studies_app.command("complete")
def complete_study(
    uid: Annotated[str, typer.Argument(help="Study Instance UID.")],
    config: Config = None,
    without_waiting: Annotated[bool, typer.Option(help="Images that nobody reads yet end as not_waited_for.")] = False,
) -> None:
    """End a study's quiet period now: it is reported as soon as its images are read. A further image revises it as ever."""
    settings = _migrated(config)
    from hilum.store.ledger import Ledger  # noqa: PLC0415 - imports the ledger

    done = Ledger(settings.ledger_url).complete(uid, is_waiting=not without_waiting)
    if done is None:
        print(f"hilum: no study {uid} in the ledger; `GET /api/v1/studies` lists what there is", file=sys.stderr)
        raise typer.Exit(1)
    said = "its quiet period is over" if done.state == "due" else f"it was {done.state} already"
    ended = f"; {done.ended_readings} readings ended as not_waited_for" if done.ended_readings else ""
    print(f"{said}; waits for {done.waits_for} readings{ended}")


@app.command()
def erase(
    patient: Annotated[str, typer.Option(help="Patient ID (0010,0020), the whole of it; -: read it from standard input.")],
    config: Config = None,
    issuer: Annotated[str | None, typer.Option(help="Issuer of Patient ID (0010,0021); left out: whichever issued it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do it. Without this only what would be erased is counted.")] = False,
    rewrite: Annotated[bool, typer.Option(help="Rewrite the ledger's file, so that no free page holds old bytes.")] = True,
) -> None:
    """Erase a patient: files, headers, results and documents of all studies with this Patient ID. It cannot be undone.

    What destinations have already, and backups, are not touched: the answer counts what was delivered where. Safe to repeat.
    """
    wanted = (sys.stdin.readline() if patient == "-" else patient).strip()
    if not wanted:
        print("hilum: --patient is empty; many images have no Patient ID, and they are not one patient's", file=sys.stderr)
        raise typer.Exit(2)
    settings = _migrated(config)
    from hilum.receive.patient import Patient  # noqa: PLC0415 - imports pydicom
    from hilum.wiring.erasing import erase as erase_patient  # noqa: PLC0415 - imports every room below

    with _explained():
        report = erase_patient(settings, Patient(wanted, issuer), is_dry_run=not yes, has_to_rewrite=rewrite)
    print(report.said(is_dry_run=not yes))
    raise typer.Exit(0 if yes and (report.is_complete or not rewrite) else 1)


@app.command()
def backup(folder: Annotated[Path, typer.Argument(help="Where to, new or with an earlier backup.")], config: Config = None) -> None:
    """Back up the running installation: a snapshot of the ledger, then the files that it names. To restore, start on the copy.

    On the same file system files get a second name instead of a copy. A ledger on PostgreSQL is yours to dump, before this.
    """
    settings = _migrated(config)
    from hilum.store.archive import Archive  # noqa: PLC0415 - imports the ledger
    from hilum.store.backup import back_up  # noqa: PLC0415 - the same

    with _explained():
        put = back_up(settings.ledger_url, Archive(settings.archive_dir), folder)
    ledger = "the ledger" if settings.ledger_url.startswith("sqlite") else "no ledger (dump your PostgreSQL)"
    print(f"{folder}: {ledger}, {sum(put.values())} files: {', '.join(f'{count} {how}' for how, count in sorted(put.items())) or 'none'}")
    raise typer.Exit(1 if put["missing"] else 0)


@images_app.command("reject")
def reject_image(uid: Annotated[str, typer.Argument(help="SOP Instance UID.")], config: Config = None) -> None:
    """Take an image out of results, as a rejection note would: its study gets a new result and report without it."""
    _decide(config, lambda decisions: decisions.reject(uid), f"no image {uid}")


def _migrated(config: Path | None) -> Settings:
    """Settings of an installation whose ledger is there."""
    settings = _settings(config)
    from hilum.store.migrate import require_revision  # noqa: PLC0415 - imports the ledger

    with _explained():
        require_revision(settings.ledger_url)
    return settings


def _decide(config: Path | None, decide: Callable[[Decisions], dict[str, Any] | None], missing: str) -> None:
    """Print what became of it as JSON; exit status 1 if it is not there or not open for this decision."""
    settings = _migrated(config)
    from hilum.store.decisions import CannotResolve  # noqa: PLC0415 - imports the ledger
    from hilum.wiring.deciding import open_decisions  # noqa: PLC0415 - the same

    with closing(open_decisions(settings)) as decisions:
        try:
            found = decide(decisions)
        except (CannotResolve, OSError) as error:
            print(f"hilum: {error}", file=sys.stderr)
            raise typer.Exit(1) from error
    if found is None:
        print(f"hilum: {missing} in the ledger", file=sys.stderr)
        raise typer.Exit(1)
    print(json.dumps(found, indent=2))


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
            "reads every image" if name in settings.active_releases else "not in models.releases",
        ]
        print(f"{name:32} {', '.join(words)}")


@models_app.command("build")
def build_models(
    releases: Annotated[list[str] | None, typer.Argument(help="Releases, name@version; none: models.releases and those of routes.")] = None,
    config: Config = None,
    weights: Annotated[Path | None, typer.Option(help="Folder of weights files that you bring.")] = None,
    profile: Annotated[str, typer.Option(help="embedded, or onnxruntime for a Triton that you run.")] = "embedded",
) -> None:
    """Build the Triton model repository from the manifests: ONNX first, then the profile. Nothing is downloaded."""
    settings = _settings(config)
    from hilum.models.build import build  # noqa: PLC0415 - imports torch and onnx

    chosen = tuple(releases or settings.active_releases)
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
