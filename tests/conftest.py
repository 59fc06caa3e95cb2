"""Fixtures that every test may use."""

from __future__ import annotations

import gc
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapreplace
from pathlib import Path

# Before torch is imported. Its threads spin at barriers: with as many busy processes as cores, a
# millisecond becomes a second.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

from tests.support.ledger.ledgers import (
    # Fixtures.
    clock,  # noqa: F401
    empty_url,  # noqa: F401
    ledger,  # noqa: F401
    ledger_url,  # noqa: F401
    postgres_url,  # noqa: F401
    street,  # noqa: F401
    views,  # noqa: F401
)
from tests.support.ledger.rolling import rolling  # noqa: F401 - a fixture
from tests.support.machine.disks import tiny_disk  # noqa: F401 - a fixture
from tests.support.models.releases import built_models, tiny  # noqa: F401 - fixtures
from tests.support.models.triton import embedded_triton  # noqa: F401 - a fixture
from tests.support.peers.certificates import authority  # noqa: F401 - a fixture
from tests.support.peers.peers import down_port, refuser  # noqa: F401 - fixtures
from tests.support.peers.pynetdicom_reactor import mend
from tests.support.server.api_client import rig, shared_rig  # noqa: F401 - fixtures
from tests.support.server.reception import reception_rig  # noqa: F401 - a fixture

mend()

# Seconds that the longest files take on two busy cores; another one below tests/integration takes
# `_USUAL_SECONDS`. The demo builds a release that test_release_numbers builds, too: it comes later,
# and finds it built.
_LONG_SECONDS = {
    "test_release_numbers": 110,
    "test_pages_browser": 90,
    "test_power_proof_short": 90,
    "test_faults_short": 80,
    "test_operations": 75,
    "test_report_templates": 70,
    "test_delivery_trouble": 60,
    "test_rollout_street": 60,
    "test_load_generator": 55,
    "test_kills": 55,
    "test_receive_dcmtk": 55,
    "test_api_doors": 50,
    "test_odd_files": 50,
    "test_listeners": 50,
    "test_models_tutorial": 45,
    "test_ingest": 45,
    "test_street": 45,
    "test_peer": 45,
    "test_commitment": 45,
    "test_object_changes": 45,
    "test_marked_names": 40,
    "test_stow": 40,
    "test_sr_variants": 40,
    "test_nih_street": 40,
    "test_picture_street": 30,
    "test_sr_template": 40,
    "test_demo": 40,
    "test_trouble": 40,
    "test_dripping": 30,
}
_USUAL_SECONDS = 15.0
_INTEGRATION = Path(__file__).with_name("integration")

# Its deadline of 200 ms is wall-clock time, of which two cores with four test processes have none
# to give away.
hypothesis.settings.register_profile("hilum", deadline=None)
hypothesis.settings.load_profile("hilum")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the files that compute between those that wait for servers, the longest first.

    `make test` hands out files in this order. While three processes wait, a fourth computes, and no
    process is left with a long file at the end.
    """
    files: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    waiting = {
        path: _LONG_SECONDS.get(path.stem, _USUAL_SECONDS)
        for path in files
        if path.is_relative_to(_INTEGRATION)
    }
    computing = {path: float(len(tests)) for path, tests in files.items() if path not in waiting}
    longest_first = dict(sorted(waiting.items(), key=lambda pair: -pair[1]))
    turns = sorted([*_turns(longest_first, 3), *_turns(computing, 1)], key=lambda turn: turn[0])
    items[:] = [item for _, path in turns for item in files[path]]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """The ten thousand collected tests are no garbage.

    The collector looks at them no more, and seldom at young objects.

    A third of the CPU of tests of the REST interface was its. `garbage` lets it look once a file,
    so that an exception in `__del__` still fails a test.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _turns(costs: Mapping[Path, float], at_once: int) -> Sequence[tuple[float, Path]]:
    """When each begins if so many run at once, as a share of the time that all take."""
    free = [0.0] * at_once
    begins = [heapreplace(free, free[0] + cost) for cost in costs.values()]
    return [(begin / max(free), path) for begin, path in zip(begins, costs, strict=True)]


@pytest.fixture(scope="module", autouse=True)
def garbage() -> Iterator[None]:
    """What a file leaves is looked at before its last test ends."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def test_data() -> Path:
    """Folder of real radiographs, named by HILUM_TEST_DATA.

    They are not ours to publish, so a fresh checkout has none.
    """
    named = os.environ.get("HILUM_TEST_DATA")
    if not named or not Path(named, "manifest.json").is_file():
        if os.environ.get("CI") == "true" and named:
            pytest.fail(f"HILUM_TEST_DATA={named} holds no manifest.json")
        pytest.skip("HILUM_TEST_DATA does not name a folder of test radiographs")
    return Path(named).resolve()
