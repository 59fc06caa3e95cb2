"""A real dispatcher with a receiver of each kind, and results that its ledger has to report."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import create_engine, select
from sqlalchemy.exc import DBAPIError

from hilum.domain import Advance, Instance, ReadingState
from hilum.receive.indexing.arrivals import arrivals_of
from hilum.receive.indexing.describe import describe
from hilum.settings import Settings
from hilum.store.ledger import Ledger
from hilum.store.migrations.migrate import migrate
from hilum.store.schema.tables import delivery, document, result
from load_tests.proof.destinations.receivers import TITLE, Receiver, opened
from load_tests.proof.destinations.relay import Relay
from load_tests.proof.street.street import NotQuiet
from testing import accounting, postgres
from testing.peers import Program
from testing.phantoms.phantom import make_study, save
from testing.serving import Hilum, environment_without_settings
from testing.tiny_release import Tiny

_PATIENCE_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.1
_QUIET_SECONDS: Final = 0.1
_OPEN: Final = ("due", "leased")


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of the ledger: a document on its way to a destination.

    `finished_at`: seconds since the epoch; None: it is not over.
    """

    destination: str
    kind: str
    content: bytes
    state: str
    reason: str | None
    detail: str | None
    finished_at: float | None


class Scene:
    """The dispatcher, its receivers by kind, and the studies of the trouble that is on now."""

    def __init__(
        self,
        hilum: Hilum,
        settings: Settings,
        receivers: Mapping[str, Receiver],
        studies: int,
        database: Path | None,
    ) -> None:
        self.hilum = hilum
        self.receivers = receivers
        self.database = database
        self._settings = settings
        self._studies = studies
        self._next = 1
        self._engine = create_engine(settings.ledger_url, pool_pre_ping=True)
        self._fed: list[str] = []
        self.dead: list[Delivery] = []

    def relays(self) -> dict[str, Relay]:
        """The relays, by kind."""
        found = {kind: receiver.relay for kind, receiver in self.receivers.items()}
        return {kind: relay for kind, relay in found.items() if relay is not None}

    def folders(self) -> list[Receiver]:
        """The receivers that are folders."""
        return [receiver for receiver in self.receivers.values() if receiver.relay is None]

    def program(self, kind: str) -> Program:
        """The program of a receiver behind a relay."""
        program = self.receivers[kind].program
        assert program is not None, "a folder has none"
        return program

    def close(self) -> None:
        """Close what it reads the ledger by."""
        self._engine.dispose()

    @property
    def fed(self) -> int:
        """How many studies the trouble has."""
        return len(self._fed)

    def feed(self) -> None:
        """Put studies into the ledger whose images are read, so that their results are due now."""
        numbers = range(self._next, self._next + self._studies)
        self._next = numbers.stop
        folder = self.hilum.folder / "images"
        folder.mkdir(exist_ok=True)
        instances = [_instance(number, folder) for number in numbers]
        self._fed = [item.study_instance_uid for item in instances]
        self.dead = []
        with closing(Ledger(self._settings.ledger_url)) as ledger:
            ledger.record(arrivals_of(instances, self._settings, lambda _: {}))
            jobs = ledger.claim("analyse", len(instances), "proof", _PATIENCE_SECONDS)
            read = Advance(
                ReadingState.ANALYSED,
                {"logits": [1.5, -2.0, 0.25], "view": "PA", "preprocessing_version": "hp1-0"},
            )
            ledger.advance("analyse", [(job.lease, read) for job in jobs])

    def deliveries(self) -> list[Delivery]:
        """The rows of the trouble's studies. Raises DBAPIError while the ledger is away."""
        query = (
            select(
                delivery.c.destination,
                document.c.kind,
                document.c.content,
                delivery.c.state,
                delivery.c.reason,
                delivery.c.detail,
                delivery.c.finished_at,
            )
            .join_from(delivery, document, delivery.c.document_id == document.c.id)
            .join(result, document.c.result_id == result.c.id)
            .where(result.c.study_instance_uid.in_(self._fed))
        )
        with self._engine.connect() as connection:
            return [Delivery(*row) for row in connection.execute(query)]

    def wait_for_the_end(self) -> None:
        """Until each study has been sent to each destination, or is dead. Raises NotQuiet."""
        self.wait_until(self._has_ended, "the end of all deliveries")

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Look often. Raises NotQuiet."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > end:
                raise NotQuiet(f"not within {_PATIENCE_SECONDS:.0f} s: {what}")
            if not self.hilum.is_running:
                raise NotQuiet(f"hilum serve has ended: {self.hilum.log_end(3)}")
            time.sleep(_LOOK_SECONDS)

    def is_met(self, kind: str, documents: int = 1) -> bool:
        """Whether so many documents wait, because their destination is away."""
        rows = [item for item in self.deliveries() if item.destination == kind]
        return sum(item.state in _OPEN and item.detail is not None for item in rows) >= documents

    def note_dead(self) -> None:
        """Remember which deliveries are dead now, before they are requeued."""
        self.dead = [item for item in self.deliveries() if item.state == "dead"]

    def kill_dispatcher(self) -> None:
        """End the dispatcher's process by SIGKILL; the supervisor starts the next one."""
        found = accounting.roles(self.hilum.pid)
        for pid, role in found.items():
            if role == "dispatcher":
                os.kill(pid, signal.SIGKILL)

    def requeue(self) -> None:
        """Have all dead deliveries sent again, as a person does."""
        subprocess.run(
            self.hilum.command("requeue", "deliver", "--all"),
            check=True,
            capture_output=True,
            env=environment_without_settings(),
        )

    def stop_ledger(self) -> None:
        """End PostgreSQL as a crash does."""
        self._postgres("-m", "immediate", "stop")

    def start_ledger(self) -> None:
        """Start it as before."""
        self._postgres("-l", "server.log", "restart")

    def _postgres(self, *words: str) -> None:
        assert self.database is not None, "only with a ledger on PostgreSQL"
        data = str(self.database.resolve() / "data")
        program = str(postgres.programs() / "pg_ctl")
        postgres.run_as_postgres(self.database, [program, "-D", data, "-w", *words])

    def _has_ended(self) -> bool:
        try:
            rows = self.deliveries()
        except DBAPIError:
            return False
        wanted = len(self._fed) * len(self.receivers)
        ended = [item for item in rows if item.state not in _OPEN]
        return len(rows) == len(ended) == wanted


@contextlib.contextmanager
def scene(
    folder: Path, tiny: Tiny, kinds: Sequence[str], studies: int, *, with_postgres: bool
) -> Iterator[Scene]:
    """All of it, as long as the block runs. Raises PostgresMissing."""
    folder.mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        receivers = {
            kind: stack.enter_context(opened(kind, folder / "receivers" / kind)) for kind in kinds
        }
        url = f"sqlite:///{folder / 'state/ledger.sqlite'}"
        database = None
        if with_postgres:
            # its user may not enter the folders of this one
            database = Path(stack.enter_context(TemporaryDirectory(prefix="hilum-pg-")))
            url = stack.enter_context(postgres.postgres_cluster(database, {}))
        sections = _sections(tiny, url)
        tables = {kind: receiver.section for kind, receiver in receivers.items()}
        hilum = Hilum(folder, tables, **sections)
        hilum.role = "dispatcher"
        hilum.write_settings()
        (folder / "state").mkdir(exist_ok=True)
        migrate(url)
        settings = Settings.model_validate({**sections, "destinations": tables})
        made = stack.enter_context(closing(Scene(hilum, settings, receivers, studies, database)))
        stack.enter_context(hilum)
        yield made


def _sections(tiny: Tiny, url: str) -> dict[str, dict[str, Any]]:
    """Quick retries, so that a trouble takes seconds."""
    return {
        "ledger": {"url": url},
        "models": {
            "manifests": str(tiny.manifests_dir),
            "built": str(tiny.built_dir),
            "releases": [tiny.release.id],
        },
        "studies": {"quiet_seconds": _QUIET_SECONDS},
        "pipeline": {
            "backoff_seconds": 0.2,
            "maximum_backoff_seconds": 1.0,
            "poll_seconds": 0.5,
        },
    }


def _instance(number: int, folder: Path) -> Instance:
    (image,) = make_study(number, views=("PA",), rows=32, columns=32)
    found = describe(save(image, folder / f"{number}.dcm"))
    return replace(found, calling_ae_title=TITLE, called_ae_title="HILUM", peer_address="127.0.0.1")
