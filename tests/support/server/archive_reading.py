"""A campaign over a real archive, on a server without listener and retriever."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from hilum.settings import load
from testing.serving import Hilum
from tests.support.peers.archives import ARCHIVE_TITLE, MOVE_TITLE, ArchivedSeries
from tests.support.peers.peers import Orthanc
from tests.support.server.campaigns import await_end, hilum, rows
from tests.support.server.listening import ListenerProcess
from tests.support.server.retriever import retriever

DAYS = "2019-01-01..2019-01-05"


def source(kind: str, archive: Any, **more: Any) -> dict[str, Any]:
    """The section of a source."""
    if kind == "dicomweb":
        url = f"http://127.0.0.1:{archive.http_port}/dicom-web"
        return {"kind": kind, "url": url, "quiet_seconds": 2, **more}
    moved = {"move_ae_title": MOVE_TITLE} if kind == "c-move" else {}
    return {
        "kind": kind,
        "host": "127.0.0.1",
        "port": archive.dicom_port,
        "ae_title": ARCHIVE_TITLE,
        "quiet_seconds": 2,
        **moved,
        **more,
    }


@dataclass
class ArchiveReading:
    """A campaign of this name, and the processes that a test gives the server."""

    server: Hilum
    name: str
    stack: ExitStack = field(default_factory=ExitStack)

    def use(self, section: dict[str, Any]) -> None:
        """Set the source for processes and commands that start from now on."""
        self.server._sections["sources.pacs"] = section  # type: ignore[index] # a dict, as passed
        self.server.write_settings()

    def plan(self) -> str:
        """Plan it."""
        return hilum(
            self.server, "campaign", "plan", self.name, "--source", "pacs", "--dates", DAYS
        )

    def run(self, release: str) -> None:
        """Begin it."""
        self.order("run", "--release", release)

    def order(self, verb: str, *words: str) -> str:
        """Have a command done."""
        return hilum(self.server, "campaign", verb, self.name, *words)

    def fetch(self) -> None:
        """Start a retriever, until the test ends."""
        self.stack.enter_context(retriever(self.server))

    def listen(self) -> ListenerProcess:
        """Return a listener on a port of its own."""
        return ListenerProcess(load(self.server.settings_file))

    def finish(self, seconds: float = 80, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait for the end."""
        await_end(self.server, self.name, seconds, meanwhile)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the ledger; `{id}` in the query is the campaign's number."""
        ((number,),) = rows(self.server, f"SELECT id FROM campaign WHERE name = '{self.name}'")
        return rows(self.server, query.format(id=number))

    def series(self, columns: str = "state") -> list[tuple[object, ...]]:
        """Different values of these columns of its series, and how many series have them."""
        return self.rows(
            f"SELECT {columns}, COUNT(*) FROM campaign_series WHERE campaign_id = {{id}}"
            f" GROUP BY {columns} ORDER BY {columns}"
        )

    def readings(self) -> list[tuple[object, ...]]:
        """SOP Instance UIDs of its images with the state of each reading."""
        return self.rows(
            "SELECT instance.sop_instance_uid, reading.state FROM campaign_image JOIN instance"
            " ON instance.sop_instance_uid = campaign_image.sop_instance_uid JOIN reading"
            " ON reading.instance_id = instance.id WHERE campaign_image.campaign_id = {id}"
            " ORDER BY 1"
        )


def analysed(archived: Sequence[ArchivedSeries]) -> list[tuple[object, ...]]:
    """The readings of a campaign that has read these, each image once."""
    return [(uid, "analysed") for uid in sorted(uids_of(archived))]


def uids_of(archived: Sequence[ArchivedSeries]) -> list[str]:
    """SOP Instance UIDs."""
    return [uid for item in archived for uid in item.sop_instance_uids]


def set_destination(archive: Orthanc, port: int) -> None:
    """Have an Orthanc send to this port, as an administrator corrects its list of modalities."""
    modality = {"AET": MOVE_TITLE, "Host": "127.0.0.1", "Port": port}
    archive.request("/modalities/hilum", "PUT", json.dumps(modality).encode())
