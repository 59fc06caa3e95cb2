"""A campaign over a thousand old studies that is killed on its way, with its output as text.

`python -m load_tests.campaign.show --studies 1000 --source c-move|dicomweb|dcmqrscp`
"""

from __future__ import annotations

import argparse
import copy
import csv
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pydicom import Dataset
from pydicom.uid import generate_uid

from load_tests.campaign.archives import MOVE_TITLE
from load_tests.campaign.sending_archives import (
    MOST_STUDIES,
    Missing,
    Old,
    SendingArchive,
    SendingDcmQrScp,
    SendingOrthanc,
    sent_again,
)
from load_tests.campaign.systems import NotFinished, command
from load_tests.load import command_line
from testing.accounting import roles
from testing.phantoms import phantom
from testing.serving import Hilum, HilumEnded, free_ports
from testing.tiny_release import make_tiny

SOURCES = ("c-move", "dicomweb", "dcmqrscp")
_NAME = "old"
_DAYS = 28
_DELETED = 3  # studies, between plan and run
_START_SECONDS = 180.0
_STALL_SECONDS = 300.0
_LOOK_SECONDS = 0.1


@dataclass
class Show:
    """One run. `events`: seconds since `hilum campaign run`, and the fact."""

    server: Hilum
    archive: SendingArchive
    images: Sequence[Old]
    chance: random.Random
    began: float = 0.0
    events: list[tuple[float, str]] = field(default_factory=list)
    middle: str = ""

    def note(self, text: str) -> None:
        """Keep and print a fact."""
        self.events.append((time.time() - self.began, text))
        print(f"{self.events[-1][0]:7.1f} s  {text}", flush=True)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return rows of the ledger."""
        file = self.server.folder / "state" / "ledger.sqlite"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as ledger:
            return ledger.execute(query).fetchall()

    def ended(self) -> int:
        """Return how many series have ended."""
        return int(
            self.rows(
                "SELECT COUNT(*) FROM campaign_series"
                " WHERE state IN ('read', 'dead', 'nothing_to_read')"
            )[0][0]
        )

    def is_over(self) -> bool:
        """Return whether the campaign is finished."""
        return bool(self.rows("SELECT 1 FROM campaign WHERE state = 'finished'"))


def main(words: Sequence[str] | None = None) -> int:
    """Exit code: 0 each image was read once, 1 not, 2 the run did not take place."""
    options = parse(words)
    try:
        with tempfile.TemporaryDirectory(prefix="hilum-show-", dir=options.folder) as folder:
            return shown(Path(folder), options)
    except (Missing, HilumEnded, NotFinished, OSError) as error:
        print(f"no run: {error}", file=sys.stderr)
        return 2


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = command_line.parser("load_tests.campaign.show", __doc__)
    add = parser.add_argument
    add("--studies", type=int, default=1000, help="of one or two images (%(default)s)")
    add("--source", choices=SOURCES, default="c-move", help="(%(default)s)")
    add("--kills", type=int, default=5, help="of the retriever (%(default)s)")
    add("--seed", type=int, default=1, help="of the moments of the kills (%(default)s)")
    add("--folder", type=Path, help="where to work (the system's folder for temporary files)")
    options = parser.parse_args(words)
    if options.source == "dcmqrscp" and options.studies > MOST_STUDIES:
        parser.error(f"dcmqrscp keeps at most {MOST_STUDIES} studies")
    return options


def shown(folder: Path, options: argparse.Namespace) -> int:
    """Plan, run, kill, and print all of it."""
    images = draw(folder / "studies", options.studies)
    with _parts(folder, options) as (server, archive):
        archive.fill([old.file for old in images])
        print(f"{options.source}: {options.studies} studies, {len(images)} images", flush=True)
        show = Show(server, archive, images, random.Random(options.seed))
        print(_plan(show))
        _delete(show, options.studies)
        show.began = time.time()
        command(server, "campaign", "run", _NAME, "--release", "tiny@1")
        show.note("hilum campaign run")
        _disturb(show, options)
        _await(show, show.is_over, "the end")
        show.note("the campaign is finished")
        print(f"\nIn the middle:\n\n{show.middle}")
        print(f"At the end:\n\n{command(server, 'campaign', 'status', _NAME)}")
        _export(show, folder)
        return _verdict(show)


def _plan(show: Show) -> str:
    days = "2019-01-01..2019-01-31"
    began = time.monotonic()
    text = command(show.server, "campaign", "plan", _NAME, "--source", "pacs", "--dates", days)
    return f"planned in {time.monotonic() - began:.1f} s\n\n{text}"


def _delete(show: Show, studies: int) -> None:
    """Delete some studies that are planned."""
    uids = sorted({old.study for old in show.images})
    gone = set(show.chance.sample(uids, min(_DELETED, studies // 10)))
    show.archive.delete([old for old in show.images if old.study in gone])
    print(f"{len(gone)} planned studies were deleted in the archive\n")


def _disturb(show: Show, options: argparse.Namespace) -> None:
    """Kill the retriever some times, and in the middle the whole server once."""
    total = int(show.rows("SELECT COUNT(*) FROM campaign_series")[0][0])
    moments = sorted(show.chance.uniform(0.05, 0.9) for _ in range(options.kills))
    shares = sorted([(share, "retriever") for share in moments] + [(0.5, "server")])
    for share, victim in shares:
        _await(show, partial(_has_ended, show, share * total), f"{share:.0%} of the series")
        time.sleep(show.chance.uniform(0, 0.5))
        if victim == "server":
            show.middle = command(show.server, "campaign", "status", _NAME)
            _kill_server(show)
        else:
            _kill_retriever(show)


def _has_ended(show: Show, series: float) -> bool:
    return show.ended() >= series


def _kill_retriever(show: Show) -> None:
    found: list[int] = []

    def lives() -> bool:
        found[:] = [pid for pid, role in roles(show.server.pid).items() if role == "retriever"]
        return bool(found)

    _await(show, lives, "a retriever to kill")
    os.kill(found[0], signal.SIGKILL)
    show.note(f"kill -9 of the retriever; {show.ended()} series had ended")


def _kill_server(show: Show) -> None:
    """Kill the supervisor and everything below it, and start it again."""
    group = show.server.pid
    others = [pid for pid in roles(group) if pid != group]
    os.killpg(group, signal.SIGKILL)
    show.server.stop()
    show.note(f"kill -9 of the whole server; {show.ended()} series had ended")
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in others) and time.monotonic() < end:
        time.sleep(_LOOK_SECONDS)
    show.server.__enter__()
    show.server.wait_until_ready(_START_SECONDS)
    show.note("hilum serve again: ready")


def _await(show: Show, condition: Callable[[], bool], what: str) -> None:
    seen = -1
    end = time.monotonic() + _STALL_SECONDS
    while not condition():
        if (count := show.ended()) != seen:
            seen = count
            end = time.monotonic() + _STALL_SECONDS
        if time.monotonic() > end:
            raise NotFinished(f"{what}: {count} series ended.\n{show.server.log_end(40)}")
        time.sleep(_LOOK_SECONDS)


def _export(show: Show, folder: Path) -> None:
    out = folder / "results.csv"
    print(command(show.server, "campaign", "export", _NAME, "--out", str(out)))
    for file in sorted(folder.glob("results*.csv")):
        with file.open(encoding="utf-8", newline="") as text:
            rows = list(csv.reader(text))
        print(f"{file.name}: {len(rows) - 1} rows")
        for row in rows[:4]:
            print(f"  {','.join(row)[:400]}")
    print()


def _verdict(show: Show) -> int:
    """Print the counts; return the exit code."""
    states = Counter[str]()
    for state, count in show.rows("SELECT state, COUNT(*) FROM campaign_series GROUP BY state"):
        states[state] += count
    readings = show.rows("SELECT COUNT(*), COUNT(DISTINCT instance_id) FROM reading")[0]
    conflicts = show.rows("SELECT COUNT(*) FROM conflict")[0][0]
    repeated = show.rows(
        "SELECT COUNT(*), COALESCE(SUM(interruptions), 0), COALESCE(MAX(attempts), 0)"
        " FROM campaign_series WHERE interruptions > 0 OR attempts > 1"
    )[0]
    sent = show.archive.sent(show.images)
    received = dict(show.rows("SELECT sop_instance_uid, received_at FROM instance"))
    counts = Counter(item.image for item in sent)
    again = sent_again(sent, received)
    planned = states.total()
    figures = {
        "series planned": planned,
        "series read": states["read"],
        "series without images now": states["nothing_to_read"],
        "series dead": states["dead"],
        "images read": readings[0],
        "images read twice": readings[0] - readings[1],
        "images in conflict": conflicts,
        "images that the archive sent": len(counts),
        "images sent twice": sum(count > 1 for count in counts.values()),
        "images sent again after they were received": len(again),
        "series asked for again": repeated[0],
        "interrupted requests": repeated[1],
        "most attempts of a series": repeated[2],
    }
    for name, value in figures.items():
        print(f"{name:44} {value:>8}")
    left = set(received) ^ set(counts)
    is_right = (
        planned == states["read"] + states["dead"] + states["nothing_to_read"]
        and not states["dead"]
        and readings[0] == readings[1] == len(received)
        and not (again or conflicts or left)
    )
    print("each image was read once" if is_right else "NOT AS IT SHOULD BE")
    return 0 if is_right else 1


def draw(folder: Path, studies: int) -> list[Old]:
    """Return the images of so many studies of one or two images, on all days of January 2019."""
    (drawn,) = phantom.make_study(0, views=("PA",), rows=64, columns=64)
    return [old for number in range(studies) for old in _study(folder, drawn, number)]


def _study(folder: Path, drawn: Dataset, number: int) -> Iterator[Old]:
    study = generate_uid()
    series = generate_uid()
    day = date(2019, 1, 1) + timedelta(days=number % _DAYS)
    place = folder / f"{number // 100:04}" / f"{number:06}"
    place.mkdir(parents=True)
    for index in range(1 + number % 2):
        new = copy.copy(drawn)
        new.file_meta = copy.deepcopy(drawn.file_meta)
        new.PatientID = f"S{number}"
        new.StudyInstanceUID = study
        new.SeriesInstanceUID = series
        new.SOPInstanceUID = generate_uid()
        new.file_meta.MediaStorageSOPInstanceUID = new.SOPInstanceUID
        new.StudyDate = f"{day:%Y%m%d}"
        new.InstanceNumber = str(index + 1)
        file = phantom.save(new, place / f"{index}.dcm")
        yield Old(file, new.PatientID, study, series, str(new.SOPInstanceUID))


@contextmanager
def _parts(folder: Path, options: argparse.Namespace) -> Iterator[tuple[Hilum, SendingArchive]]:
    """Yield a Hilum with the archive as its source `pacs`."""
    tiny = make_tiny(folder / "release")
    ports = free_ports(3)
    archive = _archive(options.source, folder / "archive", ports)
    models = {
        "manifests": str(tiny.manifests_dir),
        "built": str(tiny.built_dir),
        "releases": [tiny.release.id],
    }
    sections: Mapping[str, Mapping[str, Any]] = {
        "models": models,
        "studies": {"quiet_seconds": 1},
        "receive": {"ae_titles": ["HILUM", MOVE_TITLE]},
        "analyse": {"decode_processes": 1},
        "sources.pacs": archive.source(),
    }
    server = Hilum(folder / "hilum", {}, **sections)
    server.dicom_port = ports[2]
    server.write_settings()
    with archive, server:
        server.wait_until_ready(_START_SECONDS)
        yield server, archive


def _archive(kind: str, folder: Path, ports: Sequence[int]) -> Any:  # noqa: ANN401 - of two classes
    if kind == "dcmqrscp":
        return SendingDcmQrScp(folder, ports[0], ports[2])
    return SendingOrthanc(folder, (ports[0], ports[1]), ports[2], web=kind == "dicomweb")


if __name__ == "__main__":
    sys.exit(main())
