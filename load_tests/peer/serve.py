"""The peer's program: starts Orthanc and the workers, and gives each study that has become stable to the next free worker.

`python -m load_tests.peer.serve --folder … --material … --variant plain …`; SIGTERM ends it. The file `ready` appears in its folder.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import urllib3

from load_tests.load import command_line
from load_tests.peer.orthanc import Orthanc
from load_tests.peer.report import Label
from load_tests.peer.worker import VARIANTS, Charge, analyse, start

_CHANGES = 100
_PAUSE_SECONDS = 0.1
_START_SECONDS = 100


def main(words: Sequence[str] | None = None) -> None:
    """Until SIGTERM."""
    options = parse(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    os.environ["OMP_NUM_THREADS"] = str(
        options.threads
    )  # for the workers: torch's threads must not outnumber the cores
    host, _, port = options.pacs.partition(":")
    labels = read_labels(options.material / "labels.json")
    with Orthanc(
        options.folder / "orthanc", options.dicom_port, options.http_port, options.stable_age
    ) as orthanc:
        pacs = (host, int(port), options.pacs_ae_title)
        charge = Charge(
            options.variant,
            labels,
            options.material,
            orthanc.url,
            pacs,
            options.threads,
            options.precision,
        )
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(options.workers + 1)
        with context.Pool(options.workers, start, (charge, ready)) as pool:
            ready.wait(
                _START_SECONDS
            )  # a pool starts a worker that cannot load its model again and again
            (options.folder / "ready").touch()
            for study in stable_studies(orthanc.url):
                pool.apply_async(analyse, (study,), error_callback=_complain)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.peer.serve", __doc__)
    add = parser.add_argument
    add("--folder", type=Path, required=True, help="state of the run")
    add(
        "--material",
        type=Path,
        required=True,
        help="folder of labels.json, weights.pt and model.onnx",
    )
    add("--variant", choices=VARIANTS, required=True)
    add("--dicom-port", type=int, required=True)
    add("--http-port", type=int, required=True)
    add("--pacs", required=True, help="host:port that the reports go to")
    add("--pacs-ae-title", required=True)
    add("--stable-age", type=int, default=1, help="Orthanc's StableAge (%(default)s s, its least)")
    add("--workers", type=int, default=2, help="(%(default)s)")
    add(
        "--threads",
        type=int,
        default=max(1, (os.cpu_count() or 1) // 2),
        help="threads of each worker (%(default)s)",
    )
    add(
        "--precision",
        choices=("bf16", "f32"),
        default="bf16",
        help="of the informed variant (%(default)s)",
    )
    return parser.parse_args(words)


def read_labels(path: Path) -> tuple[Label, ...]:
    """In the order of the network's outputs."""
    return tuple(
        Label(row["key"], tuple(row["code"]))
        for row in json.loads(path.read_text(encoding="utf-8"))
    )


def stable_studies(url: str) -> Iterator[str]:
    """Orthanc identifiers of studies, each as often as it becomes stable."""
    http = urllib3.PoolManager()
    since = 0
    while True:
        answer = http.request("GET", f"{url}/changes?since={since}&limit={_CHANGES}").json()
        yield from (
            change["ID"] for change in answer["Changes"] if change["ChangeType"] == "StableStudy"
        )
        since = answer["Last"]
        if answer["Done"]:
            time.sleep(_PAUSE_SECONDS)


def _complain(error: BaseException) -> None:
    print(f"a study was not reported: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
