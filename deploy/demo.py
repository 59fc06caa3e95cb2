"""`make demo`: one study in by C-STORE, its structured report in a PACS, on real parts.

`DEMO_EXIT=1` ends when the report has arrived (exit code 0) or has not (1). Otherwise it stays up
until Ctrl-C. `--weights` has trained weights read the study: see `deploy/demo_weights.py`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pydicom
from pydicom.uid import Comprehensive3DSRStorage

from deploy import demo_weights
from deploy.demo_output import (
    WIDTH,
    heading,
    json_lines,
    shortened,
    shortened_tree,
    step,
    times,
    what_is_open,
)
from testing.peers import Peer, best_peer
from testing.phantoms import phantom
from testing.serving import REPOSITORY, Hilum, HilumEnded, hilum_program

# Imported weights stay: a second demo downloads nothing.
WEIGHTS = REPOSITORY / "state/weights"
QUIET_SECONDS = 2.0
PATIENCE_SECONDS = 180.0


class DemoFailed(Exception):
    """What went wrong, for the person at the terminal."""


def main(arguments: Sequence[str]) -> int:
    """Exit code of the demo."""
    asked = parsed(arguments)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(143)
    )  # unwinds, so that nothing is left running
    with ExitStack() as stack:
        folder = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="hilum-demo-", ignore_cleanup_errors=True)
            )
        )
        try:
            return show(stack, folder, asked.study, asked.weights)
        except (DemoFailed, HilumEnded, demo_weights.NoWeights) as error:
            print(f"\nThe demo failed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            step("stopping")
            return 130


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments: `study`, a path, and `weights`, each None where it is not given."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("study", nargs="?", type=Path, help="a file or folder of your own")
    parser.add_argument("--weights", help="torchxrayvision, or the path of its file")
    return parser.parse_args(arguments)


def show(stack: ExitStack, folder: Path, given: Path | None, weights: str | None) -> int:
    """Everything a person wants to see, in order."""
    paths = (
        [given]
        if given
        else [
            phantom.save(item, folder / f"{item.ViewPosition}.dcm")
            for item in phantom.make_study(seed=1)
        ]
    )
    studies = study_uids(paths)
    step(
        f"{'your files' if given else 'phantom study, PA and lateral'}: {len(studies)}"
        f" {'study' if len(studies) == 1 else 'studies'}"
    )
    peer = stack.enter_context(best_peer(folder))
    step(f"destination: {peer.title}")
    hilum = Hilum(
        folder / "hilum",
        {"pacs": peer.settings},
        studies={"quiet_seconds": QUIET_SECONDS},
        models=demo_weights.models_section(WEIGHTS) if weights else {},
    )
    hilum.write_settings()
    if weights:
        step(f"trained weights: {demo_weights.RELEASE}, kept in state/weights")
        demo_weights.bring(weights, WEIGHTS, hilum.command)
    step("building the models, kept in state/models (first time: a minute)")
    run(hilum.command("models", "build"))
    stack.enter_context(hilum)
    step("starting Hilum and its Triton")
    hilum.wait_until_ready(
        PATIENCE_SECONDS, lambda missing: print(f"{'':9}waiting: {missing}"[:WIDTH], flush=True)
    )
    step("ready; sending by C-STORE")
    run(
        [
            hilum_program(),
            "send",
            *map(str, paths),
            "--to",
            f"HILUM@127.0.0.1:{hilum.dicom_port}",
            "--from",
            "DEMO_DR",
        ]
    )
    verdicts = [report(hilum, peer, uid) for uid in studies]
    is_good = all(verdicts)
    heading("Look around")
    link = subprocess.run(
        hilum.command("login"), capture_output=True, text=True, check=False
    ).stdout.strip()
    print(f"pages, once        {link}\nthen also          {hilum.api}/docs {hilum.api}/metrics")
    print("another link       hilum login --config SETTINGS")
    print(f"settings, log      {hilum.settings_file}\n                   {hilum.log}")
    if os.environ.get("DEMO_EXIT") != "1":
        linger(hilum)
    step(f"{'a' if is_good else 'NO'} valid SR arrived; stopping")
    return 0 if is_good else 1


def report(hilum: Hilum, peer: Peer, uid: str) -> bool:
    """Wait for one study and show what became of it; True if a valid SR lies in the destination."""
    study = wait_for(hilum, uid)
    step(f"study {uid} is done")
    heading(f"REST: GET {hilum.api}/api/v1/studies/<uid>, shortened")
    print("\n".join(json_lines(shortened(study))))
    heading("The structured report: hilum study <uid> --tree, shortened")
    show_tree(hilum, uid)
    heading("Time of each stage")
    print("\n".join(times(study)))
    heading(f"Delivered to {peer.title}")
    documents = [
        item
        for result in study["results"]
        if result["is_current"]
        for item in result["documents"]
        if item["kind"] == "sr"
    ]
    if not documents:
        print(
            "no SR: "
            + "; ".join(
                f"{result['release']}: {result['outcome']} ({result['reason']})"
                for result in study["results"]
            )
        )
    verdicts = [arrived(peer, item) for item in documents]
    return bool(verdicts) and all(verdicts)


def show_tree(hilum: Hilum, uid: str) -> None:
    """The SR as people read it."""
    answer = subprocess.run(
        hilum.command("study", uid, "--tree"), capture_output=True, text=True, check=False
    )
    print(
        "\n".join(shortened_tree(answer.stdout))
        if answer.returncode == 0
        else answer.stderr.strip()
    )


def arrived(peer: Peer, document: dict[str, Any]) -> bool:
    """Fetch the SR back out of the destination and look at it as its next reader would."""
    uid = document["sop_instance_uid"]
    path = peer.fetch(uid)
    if path is None:
        states = ", ".join(
            f"{item['state']} {item['detail'] or ''}" for item in document["deliveries"]
        )
        print(f"the SR {uid} is NOT there; delivery: {states}")
        return False
    print(peer.where(uid))
    problems = list(problems_of(path))
    print(
        "\n".join(f"  {problem}" for problem in problems)
        or f"  valid: {path.stat().st_size} bytes, read by {', '.join(readers())}"
    )
    return not problems


def problems_of(path: Path) -> Iterator[str]:
    """What pydicom, dciodvfy and dsrdump have against the file."""
    dataset = pydicom.dcmread(path)
    if dataset.SOPClassUID != Comprehensive3DSRStorage:
        yield f"SOP Class is {dataset.SOPClassUID.name}, not Comprehensive 3D SR"
    if not dataset.get("ContentSequence"):
        yield "no content"
    if "dciodvfy" in readers():
        words = subprocess.run(
            ["dciodvfy", "-new", path], capture_output=True, text=True, check=False
        )
        yield from (
            line for line in (words.stdout + words.stderr).splitlines() if line.startswith("Error")
        )
    if (
        "dsrdump" in readers()
        and subprocess.run(["dsrdump", path], capture_output=True, check=False).returncode != 0
    ):
        yield "dsrdump cannot read it"


def readers() -> list[str]:
    """Who reads the SR here."""
    return ["pydicom", *(name for name in ("dciodvfy", "dsrdump") if shutil.which(name))]


def study_uids(paths: Sequence[Path]) -> list[str]:
    """Study Instance UIDs of the DICOM files in these files and folders, in order.

    Raises DemoFailed.
    """
    files = [
        file
        for path in paths
        for file in ([path] if path.is_file() else sorted(path.rglob("*")))
        if file.is_file()
    ]
    found: dict[str, None] = {}
    for file in files:
        try:
            uid = pydicom.dcmread(
                file, specific_tags=["StudyInstanceUID"], stop_before_pixels=True
            ).get("StudyInstanceUID")
        except pydicom.errors.InvalidDicomError:
            continue
        if uid:
            found[str(uid)] = None
    if not found:
        raise DemoFailed(
            f"{', '.join(map(str, paths))}: no DICOM file with a Study Instance UID. Give a file or"
            " a folder: make demo STUDY=path"
        )
    return list(found)


def wait_for(hilum: Hilum, uid: str) -> dict[str, Any]:
    """The study's JSON once it is closed and nothing of it is open any more.

    Raises DemoFailed after a while.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    last = ""
    while time.monotonic() < deadline:
        answer = hilum.get(f"/api/v1/studies/{uid}")
        if answer.is_success:
            study: dict[str, Any] = answer.json()
            if not (missing := what_is_open(study)):
                return study
            if missing != last:
                print(f"{'':9}{missing}"[:WIDTH], flush=True)
                last = missing
        time.sleep(0.1)
    raise DemoFailed(
        f"study {uid} is not done after {PATIENCE_SECONDS:.0f} s:"
        f" {last or 'never recorded'}\n{hilum.log_end()}"
    )


def linger(hilum: Hilum) -> None:
    """Stay up until Ctrl-C."""
    print(
        f"\nSend your own: hilum send FILES --to HILUM@127.0.0.1:{hilum.dicom_port}\nCtrl-C stops"
        " everything.",
        flush=True,
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        print()


def run(command: Sequence[str]) -> None:
    """A command of ours, its words shown. Raises DemoFailed with its exit code."""
    if (code := subprocess.run(command, check=False).returncode) != 0:
        raise DemoFailed(f"{' '.join(command)} ended with exit code {code}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
