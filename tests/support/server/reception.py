"""A reception over a ledger that can be taken away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hilum.receive.indexing.indexer import Indexer
from hilum.receive.policy.association_policy import Policy
from hilum.receive.storage.dispatcher import EquipmentIdentity, ObjectDispatcher
from hilum.receive.storage.image_store import ImageStore
from hilum.store.archive.archive import Archive
from hilum.store.ledger import Ledger
from tests.support.server.listening import make_settings

MAKER = EquipmentIdentity("Hilum project", "5e71a1")


class ReceptionRig:
    """A reception over a ledger that can be taken away."""

    def __init__(self, state: Path) -> None:
        settings = make_settings(
            state,
            {
                "CR1": {"sop_classes": ["ComputedRadiographyImageStorage"]},
                "STRICT": {"other_objects": "refuse"},
            },
        )
        self.file = state / "ledger.sqlite"
        self.ledger = Ledger(settings.ledger_url)
        self.archive = Archive(settings.archive_dir, "listener-1")
        intake = ImageStore(
            settings.receive, self.archive, Indexer(settings, self.ledger, self.archive)
        )
        self.reception = ObjectDispatcher(
            intake, self.ledger, MAKER, Policy(settings.receive, settings.senders)
        )

    def take_ledger_away(self) -> None:
        """Delete the ledger's file."""
        self.ledger.close()
        self.file.unlink()


@pytest.fixture
def reception_rig(tmp_path: Path) -> Iterator[ReceptionRig]:
    """A reception in a state folder of its own."""
    made = ReceptionRig(tmp_path / "state")
    yield made
    made.ledger.close()
