"""From one release to another while the server runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hilum.cli.frame import (
    Config,
    acting,
    ended,
    explained,
    migrated_settings,
    performs,
    rollout_app,
)
from hilum.domain import Rollout, RolloutMode
from hilum.verbs import NoVerb, Thing, Verb
from hilum.verbs import performs as declare_verb

if TYPE_CHECKING:
    from hilum.services.releases.rollouts import RolloutVerbs
    from hilum.store.audit.log import Deed

Alias = Annotated[
    str, typer.Argument(help="Name of a release of the settings, without its version.")
]
Canary = Annotated[
    float | None,
    typer.Option(
        "--canary", metavar="FRACTION", help="Report it for this share of new studies, as 0.1."
    ),
]
_LINES_OF_HISTORY = 10
_NO_STUDY = NoVerb("it shows releases, and no study")


@rollout_app.command("start")
@performs(Verb.START_ROLLOUT)
def start_rollout(
    alias: Alias,
    release: Annotated[str, typer.Argument(help="Release that shall follow, name@version.")],
    config: Config = None,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Read along and report nothing.")
    ] = False,
    canary: Canary = None,
) -> None:
    """Load a release beside the one that reads and prove it.

    Then let it read along, read a share of new studies, or all of them.
    """
    from hilum.store.rollouts.rollouts import CannotRollOut, RolloutRequest  # noqa: PLC0415 - imports the ledger

    def start(verbs: RolloutVerbs, deed: Deed) -> Rollout:
        if shadow and canary is not None:
            raise CannotRollOut("--shadow and --canary exclude each other")
        mode = (
            RolloutMode.SHADOW
            if shadow
            else RolloutMode.SWITCH
            if canary is None
            else RolloutMode.CANARY
        )
        return verbs.start(alias, release, RolloutRequest(mode, canary), deed.actor.name, deed)

    _do(config, alias, start)


@rollout_app.command("promote")
@performs(Verb.PROMOTE)
def promote_rollout(alias: Alias, config: Config = None, canary: Canary = None) -> None:
    """Go one step further: from shadow to canary, to a larger canary, or to all new studies.

    Without --canary it goes to all new studies.
    """
    _do(config, alias, lambda verbs, deed: verbs.promote(alias, canary, deed.actor.name, deed))


@rollout_app.command("rollback")
@performs(Verb.ROLL_BACK)
def roll_back_rollout(
    alias: Alias,
    config: Config = None,
    pending: Annotated[
        bool,
        typer.Option(
            "--pending", help="Also take back studies that the release left has not reported."
        ),
    ] = False,
) -> None:
    """One step back: a candidate gets no more studies.

    After a switch the previous release reads new studies again, at once.
    """
    _do(
        config,
        alias,
        lambda verbs, deed: verbs.roll_back(alias, deed.actor.name, is_pending=pending, deed=deed),
    )


@rollout_app.command("stop")
@performs(Verb.STOP_ROLLOUT)
def stop_rollout(alias: Alias, config: Config = None) -> None:
    """End the rollout: the serving release continues alone.

    Other releases are unloaded when they have finished.
    """
    _do(config, alias, lambda verbs, deed: verbs.stop(alias, deed.actor.name, deed))


@rollout_app.command("list")
@declare_verb(_NO_STUDY)
def list_rollouts(config: Config = None) -> None:
    """List the release that reads for each alias, and the one that is to follow."""
    from hilum.services.releases.rollouts import in_words  # noqa: PLC0415 - imports the ledger

    with _verbs(config) as verbs:
        for item in verbs.list():
            print(in_words(item))


@rollout_app.command("show")
@declare_verb(_NO_STUDY)
def show_rollout(alias: Alias, config: Config = None) -> None:
    """One alias with its history and, where a shadow has read along, how far both agree."""
    from hilum.services.releases.rollouts import in_words  # noqa: PLC0415 - imports the ledger

    with _verbs(config) as verbs:
        found = verbs.show(alias)
    if found is None:
        raise ended(
            1,
            f"the settings name no release of {alias!r}; `hilum rollout list` shows what there is",
        )
    print(in_words(found))
    for event in reversed(found["events"][:_LINES_OF_HISTORY]):
        print(_line_of(event))
    if found["comparison"] is not None:
        print(*_comparison(found["comparison"]), sep="\n")


def _do(config: Path | None, alias: str, verb: Callable[[RolloutVerbs, Deed], Rollout]) -> None:
    """Print how the alias stands after it; exit status 1 if it cannot be done."""
    from hilum.services.releases.rollouts import in_words  # noqa: PLC0415 - the same
    from hilum.store.rollouts.rollouts import CannotRollOut  # noqa: PLC0415 - imports the ledger

    with _verbs(config) as verbs, acting(verbs.settings, None, Thing.ALIAS, alias) as deed:
        try:
            print(in_words(dataclasses.asdict(verb(verbs, deed))))
        except CannotRollOut as error:
            raise ended(1, f"{error}") from error


@contextmanager
def _verbs(config: Path | None) -> Iterator[RolloutVerbs]:
    settings = migrated_settings(config)
    from hilum.services.releases.rollouts import RolloutVerbs  # noqa: PLC0415 - the same
    from hilum.store.queries.views import LedgerViews  # noqa: PLC0415 - the same
    from hilum.store.rollouts.rollouts import Rollouts  # noqa: PLC0415 - imports the ledger

    verbs = RolloutVerbs(settings, Rollouts(settings.ledger_url), LedgerViews(settings.ledger_url))
    with explained():
        try:
            yield verbs
        finally:
            verbs.rollouts.close()
            verbs.views.close()


def _line_of(event: Mapping[str, Any]) -> str:
    about = [event["candidate"] or event["serving"], event["detail"]]
    return (
        f"  {_moment(event['changed_at'])}  {event['verb']:9} {event['state']:9}"
        f" {event['changed_by']}: {' '.join(filter(None, about))}"
    )


def _moment(seconds: float) -> str:
    return (
        datetime.fromtimestamp(seconds, UTC)
        .isoformat(sep=" ", timespec="seconds")
        .removesuffix("+00:00")
        + "Z"
    )


def _comparison(found: Mapping[str, Any]) -> Iterator[str]:
    waiting = f", {found['waiting']} waiting" if found["waiting"] else ""
    failed = f", {found['failed']} failed" if found["failed"] else ""
    yield (
        f"\n{found['shadow']} read along with {found['release']}: {found['compared']} studies"
        f" compared{waiting}{failed}"
    )
    yield f"  {'finding':32} {'studies':>8} {'flips':>6} {'mean |difference|':>18} {'kappa':>6}"
    yield from map(_agreement, found["findings"])


def _agreement(item: Mapping[str, Any]) -> str:
    kappa = "" if item["kappa"] is None else f"{item['kappa']:.2f}"
    flips = item["flips"] if item["decided"] else ""
    return (
        f"  {item['finding']:32} {item['studies']:8} {flips:6} {item['mean_difference']:18.4f}"
        f" {kappa:>6}"
    )
