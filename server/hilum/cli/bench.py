"""How fast a release is here."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hilum.cli.frame import Config, explained, models_app, settings_of
from hilum.verbs import OF_FILES, performs

if TYPE_CHECKING:
    from hilum.services.releases.benchmark import Bench


@models_app.command("bench")
@performs(OF_FILES)
def bench_model(
    release: Annotated[str, typer.Argument(help="Release, name@version.")],
    seconds: Annotated[float, typer.Option(min=0.1, help="For each batch size.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
    config: Config = None,
) -> None:
    """Measure a release on the Tritons of the settings, or on an embedded one started for it.

    Images a second, and latency.
    """
    settings = settings_of(config)
    from hilum.observability import telemetry  # noqa: PLC0415 - brings the metrics' library
    from hilum.services.releases.benchmark import bench  # noqa: PLC0415 - imports the client of Triton

    telemetry.configure_logging("error", settings.log.format, "bench")
    print(f"measuring {release} ...", file=sys.stderr)
    with explained():
        found = bench(settings, release, seconds)
    if as_json:
        print(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        _show(found)


def _show(found: Bench) -> None:
    """For a person, 80 columns at most."""
    print(f"{found.release} on {', '.join(found.endpoints)}")
    print(f"images/s with {found.in_flight} requests under way; latency of one alone")
    print(f"{'batch':>8}{'images/s':>12}{'p50 ms':>10}{'p95 ms':>10}")
    for speed in found.speeds:
        print(
            f"{speed.batch:8}{speed.images_per_second:12.1f}{speed.p50_ms:10.2f}{speed.p95_ms:10.2f}"
        )
