"""What must work under each version of Python that Hilum names; run by that Python as a script.

It prints one line for each thing that worked.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tempfile
from pathlib import Path

import hilum
import hilum_preprocessing
from hilum.domain import Release
from hilum.report import build_documents
from hilum.settings import describe, load
from hilum_preprocessing import InputSpec, prepare
from testing.phantoms.phantom import make_study
from tests.support.ledger.storing import data_set, meta
from tests.support.reports.results import CONTEXT, make_release, parse, report_of
from tests.support.server.taking import StoreRequest, store

# An entry point; what Alembic runs; and C, which ctypes loads.
_NO_MODULES = (
    "hilum.__main__",
    "hilum.store.migrations.env",
    "hilum.receive.storage.transfer",
    "hilum_preprocessing.resize.resize",
)
# Of NVIDIA, by a lock of its own; its absence is explained where it is asked for.
_OPTIONAL = frozenset({"tensorrt_rtx"})


def import_every_module() -> int:
    """The number of modules imported."""
    found = [
        module.name
        for package in (hilum, hilum_preprocessing)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if module.name not in _NO_MODULES
    ]
    for name in found:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in _OPTIONAL:
                raise
    return len(found)


def prepare_an_image() -> tuple[int, ...]:
    """The shape of the tensor."""
    (image,) = make_study(3, views=("PA",), rows=512, columns=448)
    spec = InputSpec.from_mapping({"recipe": "torchxrayvision_224"})
    return tuple(prepare(image, spec).tensor.shape)


def build_an_sr() -> str:
    """The SOP Class UID of a report."""
    release: Release = make_release()
    job = report_of(make_study(3, views=("PA",), rows=16, columns=16), release, (True,))
    return str(parse(build_documents(job, release, CONTEXT, ("sr",))[0].content).SOPClassUID)


def receive_an_object(folder: Path) -> int:
    """The number of images that the ledger has."""
    from hilum.receive.indexing.indexer import Indexer
    from hilum.receive.storage.image_store import ImageStore
    from hilum.receive.storage.session import open_inbox
    from hilum.store.ledger import Ledger
    from hilum.store.migrations.migrate import migrate

    config = folder / "hilum.toml"
    config.write_text(f'[site]\nstate_dir = "{folder}/state"\n', encoding="utf-8")
    settings = load(config)
    settings.site.state_dir.mkdir()
    migrate(settings.ledger_url)
    ledger = Ledger(settings.ledger_url)
    archive = open_inbox(settings, "listener-1")
    indexer = Indexer(settings, ledger, archive)
    images = ImageStore(settings.receive, archive, indexer)
    request = StoreRequest(
        meta("1.2.3.1"), meta("1.2.3.1").sop_class_uid, memoryview(data_set("1.2.3.1"))
    )
    indexer.start()
    store(request, images.begin)
    indexer.stop(30)
    return sum(1 for _ in (settings.site.state_dir / "archive").rglob("*.dcm"))


def main() -> None:
    """Each in turn."""
    print("python", ".".join(map(str, sys.version_info[:2])))
    print("modules", import_every_module() > 500)
    print("settings", len(list(describe())) > 50)
    print("tensor", prepare_an_image())
    print("sr", build_an_sr())
    with tempfile.TemporaryDirectory() as folder:
        print("received", receive_an_object(Path(folder)))


if __name__ == "__main__":
    main()
