"""Run, examine, migrate and back up an installation; list its packages."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    actor_here,
    app,
    explained,
    performs,
    settings_explained,
    settings_of,
    waiting,
)
from hilum.cli.tokens import login_link
from hilum.services import roles
from hilum.services.state_dir import hold, make_state_folder
from hilum.verbs import NoVerb, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.store.admin.backup import Put
    from hilum.supervisor.checks.check import Check


@app.command()
@performs(Verb.START)
def serve(
    config: Config = None,
    role: Annotated[
        str,
        typer.Option(
            help=(
                "all, or some of listener, analyser, dispatcher, api, with commas between:"
                " listener,dispatcher."
            )
        ),
    ] = "all",
) -> None:
    """Run the server until Ctrl-C, SIGTERM, or the end of its terminal (unless with nohup).

    One machine: role all. Several machines: the roles of each, with ledger.url naming one
    PostgreSQL, one Triton, and one archive mounted at archive/ in the state folder of each. Each
    machine has a host name of its own, which its leases carry. Each `hilum serve` has an API port
    of its own: where two of them share a machine, set HILUM_API__PORT for one, or give one both
    roles.
    """
    with settings_explained():
        role = roles.parse(role)
    settings = settings_of(config)
    with settings_explained(), hold(settings, role) as held:
        from hilum.observability import telemetry  # noqa: PLC0415 - its metrics go to the folder of `hold`
        from hilum.supervisor import Supervisor  # noqa: PLC0415 - the same

        telemetry.configure_logging(settings.log.level, settings.log.format, "supervisor")
        if (
            "api" in roles.of(role) and sys.stdout.isatty()
        ):  # a journal would show the link to others
            print(f"Pages, once and within ten minutes: {login_link(settings)}", flush=True)
        raise typer.Exit(Supervisor(settings, role, actor=actor_here(), held=held).run())


@app.command()
@declare_verb(NoVerb("it examines, and shows no study"))
def check(config: Config = None) -> None:
    """Examine the installation: settings, ports, disk, ledger, Triton, releases, destinations.

    It gives a remedy for each problem.
    """
    settings = settings_of(config)
    from hilum.settings import find_file  # noqa: PLC0415 - imports pydantic
    from hilum.supervisor.checks.doctor import examine  # noqa: PLC0415 - imports every room

    with explained():
        findings = list(examine(settings, find_file(config)))
    for finding in findings:
        _show(finding)
    problems = sum(not finding.ok for finding in findings)
    print(f"{len(findings)} checks, {problems} problem{'' if problems == 1 else 's'}")
    raise typer.Exit(1 if problems else 0)


def _show(finding: Check) -> None:
    print(f"{'ok     ' if finding.ok else 'PROBLEM'} {finding.name}: {finding.detail}")
    if not finding.ok and finding.advice:
        print(f"        -> {finding.advice}")


@app.command()
@performs(Verb.MIGRATE)
def migrate(
    config: Config = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            help=(
                "Seconds to wait for a ledger that does not answer yet, and for servers of the"
                " earlier version to stop."
            ),
        ),
    ] = 0.0,
) -> None:
    """Bring the ledger to the revision of this version.

    `hilum serve` (role all) does it by itself; back up first.

    A server that works with it has to be stopped before. On other hosts `hilum ledger wait` waits
    for this.
    """
    settings = settings_of(config)
    from hilum.services.same_user import require_same_user  # noqa: PLC0415 - the same
    from hilum.services.upgrade import migrate_at_rest, until_done  # noqa: PLC0415 - the same
    from hilum.store.archive.archives import open_archive  # noqa: PLC0415 - imports the ledger
    from hilum.store.archive.consistency import require_ledger  # noqa: PLC0415 - the same
    from hilum.store.database.engines import place_of_ledger  # noqa: PLC0415 - the same
    from hilum.store.migrations.revision import current_revision  # noqa: PLC0415 - the same

    with explained():
        require_same_user(settings)
        archive = open_archive(settings)
        until_done(lambda: require_ledger(settings.ledger_url, archive), wait, waiting)
        make_state_folder(settings)
        is_new = current_revision(settings.ledger_url) is None
        revision = until_done(lambda: migrate_at_rest(settings), wait, waiting)
        with acting(settings) as deed:  # its table may be new
            deed.detail = f"revision {revision}"
    print(
        f"ledger at revision {revision}{', new and empty' if is_new else ''}:"
        f" {place_of_ledger(settings.ledger_url)}"
    )


@app.command()
@performs(Verb.BACK_UP)
def backup(
    folder: Annotated[Path, typer.Argument(help="Where to, new or with an earlier backup.")],
    config: Config = None,
) -> None:
    """Back up the running installation: a snapshot of the ledger, then the files that it names.

    To restore, start on the copy.

    On the same file system files get a second name instead of a copy. A ledger on PostgreSQL is
    yours to dump, before this. One that an earlier version has left is copied as it is, so an
    upgrade may begin with this.
    """
    settings = settings_of(config)
    from hilum.store.admin.backup import back_up, has_images  # noqa: PLC0415 - the same
    from hilum.store.archive.archives import open_archive  # noqa: PLC0415 - imports the ledger
    from hilum.store.database.engines import place_of_ledger  # noqa: PLC0415 - the same
    from hilum.store.migrations.revision import require_readable  # noqa: PLC0415 - the same

    with explained(), acting(settings) as deed:
        require_readable(settings.ledger_url)
        archive = open_archive(settings)
        put = back_up(settings.ledger_url, archive, folder)
        deed.count = sum(put.values())
        is_empty = not (put or has_images(settings.ledger_url))
    print(f"{folder}: {_backed_up(settings.ledger_url, put)}")
    if archive.is_remote:
        print(f"objects stay in {archive.address}: back up the store by its own means")
    if is_empty:
        advice = "If the server has received some, it has other settings: give those (--config)."
        print(
            f"hilum: {place_of_ledger(settings.ledger_url)} has no image: this is a backup of"
            f" nothing. {advice}",
            file=sys.stderr,
        )
    raise typer.Exit(1 if is_empty or put["missing"] else 0)


def _backed_up(ledger_url: str, put: Counter[Put]) -> str:
    is_copied = ledger_url.startswith("sqlite")
    ledger = "the ledger" if is_copied else "no ledger (dump your PostgreSQL)"
    counts = ", ".join(f"{count} {how}" for how, count in sorted(put.items())) or "none"
    return f"{ledger}, {sum(put.values())} files: {counts}"


@app.command()
@declare_verb(NoVerb("it lists packages, and touches no study"))
def sbom(
    licences: Annotated[
        bool, typer.Option("--licences", help="Their licences, as a table.")
    ] = False,
) -> None:
    """Print the packages of this server as CycloneDX JSON, for a scanner.

    Each package, program and library has its SHA-256 and licence.
    It is for the locked packages, with torch for CPU.
    """
    from hilum.sbom import COMPONENTS, LICENCES  # noqa: PLC0415 - the command has its name

    print((LICENCES if licences else COMPONENTS).read_text(encoding="utf-8"), end="")
