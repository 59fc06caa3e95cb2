"""One study to a receiver of every kind, from a whole server whose dispatcher dies on the way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from hilum.deliver import send
from hilum.domain import DOCUMENT_KINDS, Made
from testing.serving import Hilum
from tests.support.deliver.receivers import RECEIVERS, TITLE, Receiver
from tests.support.machine.waiting import wait_for
from tests.support.models.releases import make_tiny
from tests.support.server.campaigns import releases_of, rows
from tests.support.server.installation import (
    START_SECONDS,
    hilum_with,
    kill,
    processes,
    save_all,
    small_study,
)

pytestmark = pytest.mark.slow


def test_one_study_reaches_a_receiver_of_every_kind_once(tmp_path: Path) -> None:
    # one image: a second one that comes late on a busy machine would make a second result
    images = save_all(tmp_path / "images", small_study(seed=28, views=("PA",)))
    with ExitStack() as stack:
        receivers: Mapping[str, Receiver] = {
            name: stack.enter_context(kind.open(_made(tmp_path / name)))
            for name, kind in RECEIVERS.items()
        }
        sections = {
            name: {**receiver.section, "accept_untrained": True}
            for name, receiver in receivers.items()
        }
        kinds = [name for name, kind in DOCUMENT_KINDS.items() if kind.made is not Made.DERIVED]
        everything = {"kind": "folder", "path": str(tmp_path / "all"), "documents": kinds}
        sections["all"] = {**everything, "accept_untrained": True}
        server = stack.enter_context(hilum_with(tmp_path / "hilum", make_tiny(tmp_path), sections))
        server.wait_until_ready(START_SECONDS)

        assert send(images, "127.0.0.1", server.dicom_port, "HILUM", TITLE).is_ok
        wait_for(lambda: rows(server, "SELECT id FROM delivery"), 120, what="deliveries")
        kill(processes(server, "dispatcher"))
        wait_for(lambda: _states(server) == {"delivered"}, 120, what="the end of all deliveries")

        assert {
            name: len(receiver.held()) for name, receiver in receivers.items()
        } == dict.fromkeys(receivers, 1)
        (uid,) = [str(uid) for (uid,) in rows(server, "SELECT study_instance_uid FROM study")]
        assert releases_of(server, uid) == ["tiny@1"]
        suffixes = sorted(path.suffix for path in (tmp_path / "all").iterdir())
        assert len(suffixes) == len([kind for kind in kinds if kind != "heatmap"])


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _states(server: Hilum) -> set[str]:
    return {str(state) for (state,) in rows(server, "SELECT DISTINCT state FROM delivery")}
