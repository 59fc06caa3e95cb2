"""`hilum campaign compare`: two releases on the studies of a campaign."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import (
    Config,
    acting,
    campaign_app,
    ended,
    explained,
    migrated_settings,
    performs,
)
from hilum.verbs import Thing, Verb

if TYPE_CHECKING:
    from hilum.services.campaigns.comparison import Comparison


@campaign_app.command("compare")
@performs(Verb.COMPARE_RELEASES)
def compare_releases(
    name: Annotated[str, typer.Argument(help="Name of the campaign, or `all` for all studies.")],
    first: Annotated[str, typer.Argument(help="Release, name@version.")],
    second: Annotated[str, typer.Argument(help="The other release.")],
    config: Config = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write: .html with plots, or .json. Default: a table here."),
    ] = None,
) -> None:
    """Compare two releases on studies that both have read.

    Flips, kappa, McNemar's test and limits of agreement by finding, and the discrepant studies.
    The page and the JSON name studies by their UIDs.
    """
    settings = migrated_settings(config)
    if out is not None and out.suffix not in (".html", ".json"):
        raise ended(2, f"--out {out}: give a name that ends in .html or .json")
    for release in (first, second):
        if "@" not in release:
            raise ended(2, f"{release!r} names no release: give name@version")
    from hilum.services.campaigns.comparison import compare  # noqa: PLC0415 - imports the ledger
    from hilum.store.campaigns.campaigns import Campaigns  # noqa: PLC0415 - the same

    with explained(), acting(settings, None, Thing.CAMPAIGN, name) as deed:
        campaign_id = None
        if name != "all":
            campaigns = Campaigns(settings.ledger_url)
            known = campaigns.find(name)
            campaigns.close()
            if known is None:
                raise ended(2, f"there is no campaign {name}: `hilum campaign list` shows all")
            campaign_id = known.id
        found = compare(settings, campaign_id, first, second)
        deed.count = found.studies
        if out is not None:
            out.write_text(_document(found, name, out.suffix), encoding="utf-8")
    _print(found)
    if not found.studies:
        raise ended(1, f"no study of {name} was read by both {first} and {second}")
    if out is not None:
        print(f"written: {out}")


def _document(found: Comparison, name: str, suffix: str) -> str:
    from hilum.services.campaigns.comparison import as_json  # noqa: PLC0415 - imports the ledger
    from hilum.services.campaigns.comparison_page import page  # noqa: PLC0415 - the same

    if suffix == ".json":
        return json.dumps(as_json(found), indent=1, allow_nan=False)
    title = "All studies" if name == "all" else f"Campaign {name}"
    return page(found, title, datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"))


def _print(found: Comparison) -> None:
    """Print a table of 80 columns."""
    print(f"{found.studies} studies read by {found.first} and {found.second}")
    for release in found.untrained:
        print(f"hilum: {release} has untrained weights: its scores mean nothing")
    if not found.summaries:
        return
    print(
        f"{'finding':28}{'decided':>9}{'flips':>7}{'kappa':>8}{'McNemar p':>11}{'difference':>12}"
    )
    for item in found.summaries:
        kappa = "-" if item.kappa.value is None else f"{item.kappa.value:.3f}"
        p = "-" if item.mcnemar is None else f"{item.mcnemar:.4f}"
        print(
            f"{item.finding[:27]:28}{item.decided:>9}{item.flips:>7}{kappa:>8}{p:>11}"
            f"{item.difference:>+12.4f}"
        )
